import { expect, test } from '@jest/globals';
import { DEFAULTS } from './definition.ts';
import { type Candidate, type Present, targetsOf } from './targets.ts';

const candidate = (id: string, changes: Partial<Candidate> = {}): Candidate => ({
  id,
  name: `vm ${id}`,
  nodeIds: [],
  tags: [],
  ...changes,
});

const present = (candidates: Candidate[]): Present => ({
  candidates,
  hasTag: id => ['web', 'test'].includes(id),
  hasNode: id => id === 'n1',
});

test('what is chosen, less what is excluded, by name, and what nobody has any more', () => {
  const selection = {
    ...DEFAULTS,
    entities: ['b', 'a', 'gone', 'excluded and gone', 'c'],
    tags: ['web'],
    exclude_entities: ['c', 'excluded and gone'],
    exclude_tags: ['test'],
  };
  const candidates = [
    candidate('b'),
    candidate('a'),
    candidate('c'),
    candidate('d', { tags: ['web'] }),
    candidate('e', { tags: ['web', 'test'] }),
    candidate('f'),
  ];
  const { found, missing } = targetsOf(selection, present(candidates));
  expect(found.map(({ id }) => id)).toEqual(['a', 'b', 'd']);
  expect(missing).toEqual(['gone']);
});

test('tags and nodes that are gone are missing, as are VMs: with them those go that were chosen by them', () => {
  const selection = { ...DEFAULTS, tags: ['web', 'gone tag'], nodes: ['n1', 'gone node'] };
  const candidates = [candidate('a', { tags: ['web'] }), candidate('b', { nodeIds: ['n1'] }), candidate('c')];
  const { found, missing } = targetsOf(selection, present(candidates));
  expect(found.map(({ id }) => id)).toEqual(['a', 'b']);
  expect(missing).toEqual(['gone tag', 'gone node']);
});

test('a task may exclude hundreds of thousands', () => {
  const ids = Array.from({ length: 200_000 }, (_, at) => `11111111-2222-4333-8444-${at}`);
  const candidates = ids.map(id => candidate(id));
  const excluded = ids.slice(1).toReversed();
  const selection = { ...DEFAULTS, entities: ids.map(id => `${id}!`), exclude_entities: excluded };
  expect(targetsOf(selection, present(candidates))).toMatchObject({
    found: [],
    missing: { length: ids.length },
  });
  const all = { ...DEFAULTS, all: true, exclude_entities: excluded };
  expect(targetsOf(all, present(candidates)).found.map(({ id }) => id)).toEqual([ids[0]]);
});
