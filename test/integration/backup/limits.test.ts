// Backups that keep to a rate: alone, and two that share it.
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { BandwidthLimits } from '../../../agent/src/bandwidth-limits.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from './lab.ts';

const MiB = 1024 * 1024;
let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
  lab.dependencies.bandwidth = new BandwidthLimits();
});
afterAll(() => lab?.stop());

async function makeGuest(format: 'qcow2' | 'raw') {
  const path = join(lab.world.node.pool(0).path, `${newId()}.${format}`);
  const disk = await makePlainDisk(`${path}.made`, { sizeBytes: 8 * MiB, dataBytes: 6 * MiB });
  await run(['qemu-img', 'convert', '-O', format, disk, path]);
  const guest = await lab.world.defineTiny({ disks: [{ path, format }], idle: true });
  return { guest, path };
}

const seconds = async (work: Promise<unknown>): Promise<number> => {
  const begun = performance.now();
  await work;
  return (performance.now() - begun) / 1000;
};

test.each(['qcow2', 'raw'] as const)('a %s disk is not read faster than it may', async format => {
  const { guest, path } = await makeGuest(format);
  const limits = [{ key: 'task', bytesPerSecond: BigInt(2 * MiB) }];
  const making = lab.backup(guest, { limits });
  expect(await seconds(making)).toBeGreaterThan(2.5);
  const { result } = await lab.restore((await making).file, { poolId: lab.world.node.pool(1).uuid });
  await run(['qemu-img', 'compare', '-q', '-f', format, path, result.disks[0]!.path]);
  expect(lab.dependencies.bandwidth!.keys).toEqual([]);
});

test('two share the rate of a key', async () => {
  const guests = [await makeGuest('qcow2'), await makeGuest('qcow2')];
  const limits = [{ key: 'pool', bytesPerSecond: BigInt(4 * MiB) }];
  const making = guests.map(({ guest }) => lab.backup(guest, { limits, compress: true }));
  expect(await seconds(Promise.all(making))).toBeGreaterThan(2.5);
});
