/**
 * A revert to a state of the memory alone that is undone: the VM's disks are LUNs, so no overlay tells what was done. Its definition and
 * the state of its firmware are the former ones again, and what runs is the guest of before.
 */
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { ErrorCode } from '@virtkeep/node-libvirt';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { ActiveOperation } from '../../agent/src/operations/active.ts';
import { Journal } from '../../agent/src/operations/journal.ts';
import { revertSnapshotWorkflow } from '../../agent/src/workflows/snapshot/revert.ts';
import { undoEffects } from '../../agent/src/workflows/undo/recover.ts';
import { refuse } from './scripted-machine.ts';
import { type MemoryState, makeMemoryState } from './stories/memory-state.ts';
import { stateId } from './stories/vm.ts';
import { ALONE, silent, World } from './world.ts';

const faults = { active: false, reach: async () => {}, middle: () => undefined } as never;

let world: World;
let journal: Journal;
beforeEach(() => {
  world = new World();
  journal = new Journal(join(world.root, 'journal.db'));
});
afterEach(() => {
  journal.close();
  world.remove();
});

/** Reverts, fails at that call of libvirt, and undoes it. @returns what could not be undone */
async function failingAt(point: string, { machine }: MemoryState): Promise<unknown[]> {
  const message = Operation.fromPartial({
    ...{ id: newId(), kind: 'revert_snapshot', state: OperationState.RUNNING, created: new Date() },
  });
  const record = { message, fingerprint: '', locks: [], committed: false };
  journal.insertOperation(record);
  const undoEffect = undoEffects(world.dependencies);
  const operation = new ActiveOperation(record, {
    ...{ journal, undoEffect, faults, log: silent, changed: () => {} },
  });
  world.scripted.reach = async reached => {
    if (reached === point) throw refuse(ErrorCode.OPERATION_FAILED, `${point} fails`);
  };
  const request = { operationId: message.id, domainId: machine.uuid, snapshotId: stateId(machine, 's') };
  const reverted = revertSnapshotWorkflow(world.dependencies, request as never)(operation.context(ALONE));
  await expect(reverted).rejects.toMatchObject({ msgKey: 'revert_failed' });
  world.scripted.reach = async () => {};
  return operation.effects.undoAll(
    () => AbortSignal.timeout(60_000),
    () => {},
  );
}

test.each([
  ['its memory could not be read', true, 'virDomainRestoreFlags.before'],
  ['its memory could not be read', false, 'virDomainRestoreFlags.before'],
  ['it runs already', true, 'virDomainRestoreFlags.after'],
  ['it runs already', false, 'virDomainRestoreFlags.after'],
  ['it is defined, and its firmware is not exchanged yet', true, 'virDomainDefineXMLFlags.after'],
  ['it was never stopped', true, 'virDomainDestroyFlags.before'],
])('%s (it ran before: %s)', async (_what, running, point) => {
  const state = await makeMemoryState(world, running);
  const { machine, nvram } = state;
  const [config, files] = [machine.config, world.files()];
  const formerRun = machine.live;
  expect(await failingAt(point, state)).toEqual([]);
  expect([machine.config, machine.live]).toEqual([config, formerRun]);
  expect([readFileSync(nvram, 'utf8'), world.files()]).toEqual(['now', files]);
});
