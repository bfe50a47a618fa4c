/** Restore points that are dropped from an archive of a real VM: what stays is as it was, is restored, and grows on. */
import { expect } from '@jest/globals';
import { TrimBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { newId } from '@virtkeep/shared/ids';
import type { CallContext } from 'nice-grpc-common';
import { type Manifest, openArchive } from '../../../agent/src/archive/index.ts';
import { backupService } from '../../../agent/src/grpc/backup-service.ts';
import { Guest } from '../../lab/guest.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { diskHashes, firstBackup, imageHash, increment, type Made, write } from './lab.ts';

const signal = new AbortController().signal;

/** Of an archive, by number: what each disk of a state shows. */
export type Shown = Map<number, Record<string, string>>;

export async function trim(lab: WorkflowLab, made: Made, keepStates: number): Promise<number[]> {
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
export async function expectRestored(
  lab: WorkflowLab,
  made: Made,
  shown: Shown,
): Promise<Map<number, string[]>> {
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

/** Three restore points become two, and grow. */
export async function trimmedAndGrown(lab: WorkflowLab, compress: boolean): Promise<void> {
  const guest = await lab.world.defineTiny({ dataDisks: [{ sizeMiB: 8 }, { sizeMiB: 8, format: 'raw' }] });
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
  expect(await trim(lab, made, 2)).toEqual([1, 2]);
  expect(await guest.snapshots()).toEqual(states);
  await again(5);
  expect(made.manifest.states.map(({ number }: { number: number }) => number)).toEqual([3, 4, 5]);
  // the VM keeps the two latest before the current one, as ever
  expect(await guest.snapshots()).toHaveLength(3);
  await guest.destroy();
  await expectRestored(lab, made, shown);
  expect(await trim(lab, made, 1)).toEqual([3, 4]);
  made = await increment(lab, guest, made);
  shown.set(6, await diskHashes(lab, guest));
  await expectRestored(lab, made, shown);
}
