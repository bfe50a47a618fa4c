import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { savedStateId } from '../../../agent/src/snapshots/index.ts';
import { InventoryLab } from '../inventory/lab.ts';

let lab: InventoryLab;
beforeAll(async () => {
  lab = await InventoryLab.start(1_000);
});
afterAll(() => lab?.stop());

test('states are listed as a tree, and one that virsh deletes or reverts to is noticed', async () => {
  const guest = await lab.world.defineTiny();
  const id = await guest.uuid();
  const virsh = (...args: string[]) => lab.world.node.virsh(...args);
  for (const name of ['a', 'b', 'c']) await virsh('snapshot-create-as', guest.name, name);
  const shown = await lab.domain(id, domain => domain.savedStates.length === 3);
  expect(shown.savedStates).toMatchObject([
    { name: 'a', parent: '', current: false, targets: ['vda'] },
    { name: 'b', parent: 'a', current: false },
    { name: 'c', parent: 'b', current: true, backupId: '' },
  ]);
  expect(shown.statesDeleted).toBeUndefined();

  await virsh('snapshot-delete', guest.name, 'b');
  const deleted = await lab.domain(id, domain => domain.statesDeleted !== undefined);
  await virsh('snapshot-revert', guest.name, 'a');
  const reverted = await lab.domain(
    id,
    domain => domain.statesDeleted !== undefined && domain.statesDeleted > deleted.statesDeleted!,
  );
  expect(reverted.savedStates.find(state => state.current)?.name).toBe('a');

  const held = lab.hold(id, ['domain']);
  const [a] = reverted.savedStates;
  expect(savedStateId(id, { name: 'a', createdUnix: a!.created!.getTime() / 1000 })).toBe(a!.id);
  await held.release();
});
