import { beforeEach, expect, test } from '@jest/globals';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { encodedForm, keepIfEqual, Shown, type Source } from './shown.ts';

let rendered: string[];
/** Its first letter is the id; all of it is what the message is made of. */
const named = (...names: string[]): Source<Domain>[] =>
  names.map(name => ({
    id: name.slice(0, 1),
    inputs: [name],
    render: () => {
      rendered.push(name);
      return Domain.fromPartial({ id: name.slice(0, 1), name: name.split(' ')[0]! });
    },
  }));
const counter = () => {
  let revision = 0n;
  const next = () => {
    revision += 1n;
    return revision;
  };
  return { next };
};
const unheard = { changed: () => {}, removed: () => {} };

beforeEach(() => {
  rendered = [];
});

test('each change has a greater revision, also on the wire; what stays as it was keeps its own', () => {
  const changes: string[] = [];
  const shown = new Shown(Domain, counter(), {
    changed: ({ name }) => changes.push(name),
    removed: () => {},
  });
  const revisions = () => shown.all().map(domain => Domain.decode(encodedForm(domain)!).revision);
  shown.replace(named('a', 'b'));
  const [first, second] = revisions() as [bigint, bigint];
  expect(second).toBeGreaterThan(first);
  shown.replace(named('a', 'b2'));
  expect(revisions()).toEqual([first, second + 1n]);
  expect(shown.get('b')?.revision).toBe(second + 1n);
  expect(changes).toEqual(['a', 'b', 'b2']);
});

test('only what is made of something else is made anew', () => {
  const shown = new Shown(Domain, counter(), unheard);
  shown.replace(named('a', 'b', 'c'));
  rendered = [];
  shown.replace(named('a', 'b2', 'c'));
  expect(rendered).toEqual(['b2']);
});

test('what is made of something else and is no different is made once, and nobody is told', () => {
  const changes: string[] = [];
  const shown = new Shown(Domain, counter(), { ...unheard, changed: ({ name }) => changes.push(name) });
  shown.replace(named('a'));
  const before = shown.get('a');
  shown.replace(named('a again'));
  shown.replace(named('a again'));
  expect(rendered).toEqual(['a', 'a again']);
  expect(changes).toEqual(['a']);
  expect(shown.get('a')).toBe(before);
});

test('what goes is told with a revision, too', () => {
  const gone: [string, bigint][] = [];
  const shown = new Shown(Domain, counter(), {
    ...unheard,
    removed: (id, revision) => gone.push([id, revision]),
  });
  shown.replace(named('a', 'b'));
  shown.replace(named('b'));
  expect(gone).toEqual([['a', 3n]]);
});

test('what was read anew stays the one from before unless it is different', () => {
  const before = { states: [{ name: 'a' }] };
  expect(keepIfEqual(before, { states: [{ name: 'a' }] })).toBe(before);
  const now = { states: [{ name: 'b' }] };
  expect(keepIfEqual(before, now)).toBe(now);
  expect(keepIfEqual(undefined, now)).toBe(now);
});
