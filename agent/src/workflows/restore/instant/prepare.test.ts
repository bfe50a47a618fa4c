import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { createImage, readImageHeader } from '../../../disks/index.ts';
import type { OpenedBackup } from '../../archives/source.ts';
import type { OperationContext } from '../../context.ts';
import type { RestorePlan } from '../check.ts';
import { instantDisks, makeOverlays } from './prepare.ts';

const { signal } = new AbortController();
let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'vk-prepare-'));
});
afterEach(() => rmSync(directory, { recursive: true }));

/** An archive that is nothing but the layer of one disk, as which so many bytes are recorded. */
async function archived(virtualSize: number, virtualSizeBytes: number) {
  const path = join(directory, 'a.tar');
  await createImage(path, { signal, format: 'qcow2', virtualSize });
  const member = { name: 'd.qcow2', dataOffset: 0, sizeBytes: statSync(path).size };
  const disk = { target: 'vda', virtualSizeBytes, layers: [{ member: member.name }] };
  const placed = { disk, layers: [{ path: join(directory, 'overlay') }] };
  const plan = { config: { disks: [] }, bases: new Map(), placement: { disks: [placed] } };
  return {
    backup: { archive: { format: 'tar', path, members: [member] } } as unknown as OpenedBackup,
    plan: plan as unknown as RestorePlan,
  };
}

test('a raw disk without the end of its last sector has what its guest sees, as it is restored otherwise', async () => {
  const { backup, plan } = await archived(1024, 1000);
  const disks = await instantDisks(backup, { filename: 'a.tar' } as never, plan, signal);
  const context = { signal, effects: { begin: () => ({ keep: () => {} }) } } as unknown as OperationContext;
  await makeOverlays(context, plan, disks);
  expect((await readImageHeader(join(directory, 'overlay'))).virtualSize).toBe(1024);
});

test('a disk of another size is damaged', async () => {
  const { backup, plan } = await archived(1024, 1536);
  await expect(instantDisks(backup, { filename: 'a.tar' } as never, plan, signal)).rejects.toMatchObject({
    msgKey: 'archive_damaged',
  });
});
