// Restore points that are dropped from an archive of a real VM: what stays is as it was, is restored, and grows on.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { TrimBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import { type Manifest, openArchive } from '../../../agent/src/archive/index.ts';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import { Guest } from '../../lab/guest.ts';
import { WorkflowLab } from '../backup/lab.ts';
import { diskHashes, firstBackup, imageHash, increment, type Made, write } from './lab.ts';

const signal = new AbortController().signal;
let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

/** Of an archive, by number: what each disk of a state shows. */
type Shown = Map<number, Record<string, string>>;

async function trim(made: Made, keepStates: number): Promise<number[]> {
  const operationId = newId();
  const file = { poolId: lab.world.node.pool(1).uuid, filename: made.file.filename };
  const request = TrimBackupRequest.fromPartial({ operationId, file, fileId: made.file.id, keepStates });
  await backupService(lab.runner, lab.dependencies).trim(request, { signal } as CallContext);
  const operation = await lab.ended(operationId);
  return (JSON.parse(operation.resultJson) as { removed_states: number[] }).removed_states;
}

async function manifestIn(path: string): Promise<Manifest> {
  const archive = await openArchive(path, signal);
  const { problems } = await archive.verify({ signal });
  await archive.close();
  expect(problems).toEqual([]);
  return archive.manifest!;
}

/** Restores each state that is left, and compares its disks with what they were. @returns names of its saved states, by number */
async function expectRestored(made: Made, shown: Shown): Promise<Map<number, string[]>> {
  const names = new Map<number, string[]>();
  for (const { number } of (await manifestIn(made.file.path)).states) {
    const request = {
      state: String(number),
      name: `copy-${number}-${newId()}`,
      poolId: lab.world.node.pool(1).uuid,
    };
    const { result } = await lab.restore(made.file, request);
    const found: Record<string, string> = {};
    for (const { target_dev: target, path } of result.disks) found[target] = await imageHash(lab, path);
    expect(found).toEqual(shown.get(number));
    names.set(number, await new Guest(lab.world.node, result.name).snapshots());
  }
  return names;
}

describe.each([false, true])('an archive that is compressed: %s', compress => {
  test('of a guest that goes on: three restore points become two, and grow', async () => {
    const guest = await lab.world.defineTiny({ dataDisks: [{ sizeMiB: 64 }, { format: 'raw' }] });
    await (await guest.start()).waitForAgent();
    const shown: Shown = new Map();
    let made = await firstBackup(lab, guest, { compress, hashSum: compress });
    shown.set(1, await diskHashes(lab, guest));
    const again = async (number: number) => {
      await write(guest, '/mnt/vda/note', `text ${number}`);
      made = await increment(lab, guest, made);
      shown.set(number, await diskHashes(lab, guest));
    };
    for (const number of [2, 3, 4]) await again(number);
    const states = await guest.snapshots();
    expect(await trim(made, 2)).toEqual([1, 2]);
    expect(await guest.snapshots()).toEqual(states);
    await again(5);
    expect(made.manifest.states.map(({ number }: { number: number }) => number)).toEqual([3, 4, 5]);
    // the VM keeps the two latest before the current one, as ever
    expect(await guest.snapshots()).toHaveLength(3);
    await guest.destroy();
    await expectRestored(made, shown);
    expect(await trim(made, 1)).toEqual([3, 4]);
    made = await increment(lab, guest, made);
    shown.set(6, await diskHashes(lab, guest));
    await expectRestored(made, shown);
  });
});

test('saved states of the user come back with what stays', async () => {
  const guest = await lab.world.defineTiny();
  await (await guest.start()).waitForAgent();
  const shown: Shown = new Map();
  let made = await firstBackup(lab, guest);
  shown.set(1, await diskHashes(lab, guest));
  await write(guest, '/mnt/vda/note', 'before mine');
  const disksOnly = ['--disk-only', '--atomic', '--quiesce'];
  await lab.world.node.virsh('snapshot-create-as', guest.name, 'mine', ...disksOnly);
  for (const number of [2, 3, 4]) {
    await write(guest, '/mnt/vda/note', `text ${number}`);
    made = await increment(lab, guest, made, { holdStates: true });
    shown.set(number, await diskHashes(lab, guest));
  }
  expect(await trim(made, 2)).toEqual([1, 2]);
  made = await increment(lab, guest, made, { holdStates: true });
  shown.set(5, await diskHashes(lab, guest));
  await guest.destroy();
  const names = await expectRestored(made, shown);
  expect(names.get(3)).toEqual(['mine']);
  expect(names.get(4)).toHaveLength(2);
});
