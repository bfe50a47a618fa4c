// Backups that keep to a rate: alone, and two that share it; and one that gives way to a VM that waits for its disk.
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { readBlockWaits } from '../../../agent/src/bandwidth/block-waits.ts';
import { LatencyTargets, type LatencyTargetsOptions } from '../../../agent/src/bandwidth/latency-targets.ts';
import { BandwidthLimits, type JoinedLimits } from '../../../agent/src/bandwidth/limits.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import { run, waitFor } from '../../lab/run.ts';
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

test('one that reads from a pool whose VMs wait too long is slowed down, and says so', async () => {
  const { guest, path } = await makeGuest('qcow2');
  const neighbour = await lab.world.defineTiny({ cmdline: 'writer=/mnt/vda/w' });
  await (await neighbour.start()).waitForAgent();
  // each of its writes waits for its turn
  await lab.world.node.virsh('blkdeviotune', neighbour.name, 'vda', '--total-iops-sec', '20', '--live');
  const said: string[] = [];
  const { uuid: poolId, name: poolName } = lab.world.node.pool(0);
  let samples = 0;
  let operations = 0;
  // each sample has something to tell, however slow the machine is
  const counters: LatencyTargetsOptions['counters'] = pools =>
    waitFor(
      'more writes of the neighbour',
      async () => {
        const found = await readBlockWaits(lab.libvirt, pools);
        const waits = [...found.get(poolId)!.values()].flatMap(disk => Object.values(disk));
        const now = waits.reduce((sum, kind) => sum + kind.operations, 0);
        if (now < operations + 10) return undefined;
        operations = now;
        samples += 1;
        return found;
      },
      180_000,
    );
  const targets = new LatencyTargets({ counters, log: lab.dependencies.log });
  const join: LatencyTargets['join'] = user =>
    targets.join({
      ...user,
      say: text => {
        said.push(text);
        user.say(text);
      },
    });
  const { bandwidth } = lab.dependencies;
  lab.dependencies.latency = Object.assign(Object.create(targets), { join });
  // it reads on with each sample, until it is slowed
  const patient: JoinedLimits = {
    take: async () => {
      const before = samples;
      await waitFor('a sample', () => samples > before || said.length > 0, 180_000);
    },
    atFixedRate: work => work(0),
    leave: () => {},
  };
  lab.dependencies.bandwidth = Object.assign(new BandwidthLimits(), { join: () => patient });
  try {
    const { file } = await lab.backup(guest, {
      limits: [{ key: 'patient', bytesPerSecond: 1n }],
      latencyTargets: [
        { poolId, targetMs: 1 },
        { poolId: newId(), targetMs: 1 },
      ],
    });
    expect(said[0]).toMatch(
      new RegExp(
        `^Reading at most \\d+ MiB/s: VMs wait [\\d.]+ ms for disks of ${poolName}, whose target is 1 ms`,
      ),
    );
    expect(targets.pools).toEqual([]);
    const { result } = await lab.restore(file, { poolId: lab.world.node.pool(1).uuid });
    await run(['qemu-img', 'compare', '-q', '-f', 'qcow2', path, result.disks[0]!.path]);
  } finally {
    lab.dependencies.bandwidth = bandwidth!;
    delete lab.dependencies.latency;
  }
});
