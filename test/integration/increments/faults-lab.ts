/** Increments of a guest that is off which fail inside one process, and what must be as before then. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { compareStates, diskHashes, firstBackup, increment, type Made } from './lab.ts';

const MIB = 1024 * 1024;
let mark = 0;

export async function offGuest(lab: WorkflowLab): Promise<Guest> {
  const disks = [];
  for (const format of ['qcow2', 'raw'] as const) {
    const path = join(lab.world.node.pool(0).path, `${newId()}.${format}`);
    disks.push({ path: await makePlainDisk(path, { sizeBytes: 8 * MIB, dataBytes: MIB, format }), format });
  }
  return lab.world.defineTiny({ disks, idle: true });
}

async function write(guest: Guest, length = '64k'): Promise<void> {
  mark = (mark % 250) + 1;
  for (const path of Object.values(await guest.disks()).filter(found => found?.startsWith('/')))
    await run(['qemu-io', '-c', `write -P ${mark} 1M ${length}`, path!]);
}

const bytesOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');
export const picture = async (lab: WorkflowLab, guest: Guest, made: Made) => ({
  states: await guest.snapshots(),
  disks: await guest.disks(),
  shown: await diskHashes(lab, guest),
  files: [lab.files(0), lab.files(1)],
  archive: bytesOf(made.path),
});

/** Fails at a moment of a step, and leaves VM and archive as before; a merge comes behind the commit. */
export async function failsAt(lab: WorkflowLab, where: string): Promise<void> {
  const guest = await offGuest(lab);
  let made = await firstBackup(lab, guest);
  const wanted = [await diskHashes(lab, guest)];
  await write(guest);
  const before = await picture(lab, guest, made);
  lab.inject(`backup.${where}=fail`);
  try {
    if (where.startsWith('merge')) made = await increment(lab, guest, made);
    else await expect(increment(lab, guest, made)).rejects.toMatchObject({ msgKey: 'io_failed' });
  } finally {
    lab.inject('');
  }
  if (where.startsWith('merge')) wanted.push(await diskHashes(lab, guest));
  else expect(await picture(lab, guest, made)).toEqual(before);
  await write(guest);
  made = await increment(lab, guest, made);
  wanted.push(await diskHashes(lab, guest));
  await compareStates(lab, made.path, wanted);
}
