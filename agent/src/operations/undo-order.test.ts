import { expect, test } from '@jest/globals';
import type { Effect } from '../workflows/effect.ts';
import { isNeededBy, type PendingEffect, undoOrder, waitsFor } from './undo-order.ts';

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

test('a layer waits for a later one of its disk, which may stand on it, and for no file of others', () => {
  const file = (stack?: string): PendingEffect => ({
    effectId: 1,
    effect: { type: 'file', path: '/pool/x', ...(stack && { stack }) },
    when: 'failure',
  });
  const [layer, above, other, alone] = [file('a'), file('a'), file('b'), file()];
  expect([above, other, alone].map(earlier => waitsFor(layer, earlier))).toEqual([true, false, false]);
  expect([other, alone].map(earlier => waitsFor(alone, earlier))).toEqual([false, false]);
  expect(isNeededBy(layer, above)).toBe(false);
});
