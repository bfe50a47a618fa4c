import { expect, test } from '@jest/globals';
import type { Effect } from '../workflows/context.ts';
import { type PendingEffect, undoOrder, waitsFor } from './undo-order.ts';

const TYPES = [
  ...['frozen_guest', 'paused_guest', 'automatic_state', 'loan', 'removed_state', 'revert', 'unused_layers'],
  ...['appended_archive', 'archive', 'file', 'directory', 'domain', 'instant_pull', 'archive_access'],
  ...['changed_disks', 'template_change', 'orphaned_files'],
];
const pending = (types: string[]): PendingEffect[] =>
  types.map((type, effectId) => ({ effectId, effect: { type } as Effect, when: 'always' }));
const typesOf = (effects: PendingEffect[]) => effects.map(({ effect }) => effect.type);

test('every set of effects has an order: the table turns in no circle', () => {
  for (const types of [TYPES, TYPES.toReversed()])
    expect(typesOf(undoOrder(pending(types))).toSorted()).toEqual(TYPES.toSorted());
});

test('newest first, but guests before all and what others stand on after them', () => {
  const declared = pending([
    'paused_guest',
    'frozen_guest',
    'removed_state',
    'revert',
    'file',
    'file',
    'loan',
  ]);
  const order = undoOrder(declared);
  expect(typesOf(order)).toEqual([
    ...['paused_guest', 'frozen_guest', 'loan', 'revert', 'file', 'file', 'removed_state'],
  ]);
  expect(typesOf(undoOrder(pending(['file', 'directory'])))).toEqual(['file', 'directory']);
  expect(order.filter(({ effect }) => effect.type === 'file').map(({ effectId }) => effectId)).toEqual([
    5, 4,
  ]);
});

test('a file waits for a later one, which may stand on it, and an archive does not', () => {
  const [base, layer, archive] = pending(['file', 'file', 'archive']);
  expect([waitsFor(base!, layer!), waitsFor(archive!, layer!)]).toEqual([true, false]);
});
