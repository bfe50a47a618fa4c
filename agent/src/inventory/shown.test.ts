import { expect, test } from '@jest/globals';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { encodedForm, Shown } from './shown.ts';

const named = (...names: string[]) => names.map(name => Domain.fromPartial({ id: name.slice(0, 1), name }));

test('each change has a greater revision, also on the wire; what stays as it was keeps its own', () => {
  const changes: string[] = [];
  const shown = new Shown(Domain, { changed: ({ name }) => changes.push(name), removed: () => {} });
  const revisions = () => shown.all().map(domain => Domain.decode(encodedForm(domain)!).revision);
  shown.replace(named('a', 'b'));
  const [first, second] = revisions() as [bigint, bigint];
  expect(second).toBeGreaterThan(first);
  shown.replace(named('a', 'b2'));
  expect(revisions()).toEqual([first, second + 1n]);
  expect(shown.get('b')?.revision).toBe(second + 1n);
  expect(changes).toEqual(['a', 'b', 'b2']);
});
