/** A VM with 24 disks, all of which are lent. */
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import type { LendLab } from './lab.ts';

export const MANY = 24;

/** @returns it, off, and the ids of its disks */
export async function defineRich(lab: LendLab): Promise<{ rich: Guest; ids: string[] }> {
  const { path } = lab.base.world.node.pool(0);
  const disks = Array.from({ length: MANY }, (_, index) => ({
    path: join(path, `${newId()}.qcow2`),
    format: 'qcow2' as const,
    target: `sd${String.fromCharCode(97 + index)}`,
    bus: 'scsi' as const,
  }));
  for (const disk of disks) await run(['qemu-img', 'create', '-q', '-f', 'qcow2', disk.path, '1M']);
  const rich = await lab.base.world.defineTiny({ name: 'rich', disks });
  const ids = await lab.diskIds(rich);
  expect(new Set(ids).size).toBe(MANY);
  return { rich, ids };
}

/** Attaches all of them. */
export async function attachAll(lab: LendLab, borrower: Guest, ids: readonly string[]): Promise<void> {
  for (const id of ids) await lab.attach(borrower, id);
  expect((await lab.known(borrower)).attachments).toHaveLength(ids.length);
}

/** The guest itself has so many virtio disks. */
export async function sees(guest: Guest, count: number): Promise<void> {
  const seen = async () => Number(await guest.sh('ls /sys/block | grep -c vd'));
  await waitFor('the disks', async () => (await seen()) === count, 120_000);
}
