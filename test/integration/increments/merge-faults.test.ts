// A disk that runs full while states are merged: before it begins, in the middle, of a guest that runs or is off, by hand or
// after an increment. Nothing is lost, and with room again it is completed.
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals';
import { RemoveSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { loadStates, savedStateId } from '../../../agent/src/snapshots/index.ts';
import { removeSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/remove.ts';
import { makeDataDisk, makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { SmallDisk } from '../../lab/small-disk.ts';
import { SnapshotLab } from '../snapshots/lab.ts';
import { contentOf, firstBackup, increment, type Made, unpack } from './lab.ts';

const MIB = 1024 * 1024;
let small: SmallDisk;
let lab: SnapshotLab;
beforeAll(async () => {
  small = await SmallDisk.mount(160);
  lab = await SnapshotLab.start();
});
afterAll(async () => {
  await lab?.stop();
  await small?.unmount();
});
beforeEach(() => small.free());

const files = () => readdirSync(small.path).filter(name => name !== 'filler');

async function idOf(guest: Guest, name: string): Promise<string> {
  const states = await loadStates(lab.libvirt.domain(await guest.uuid()));
  return savedStateId(await guest.uuid(), states.find(state => state.name === name)!);
}

/** Removes a state, slowly if asked. @returns its operation's error, or undefined */
async function remove(guest: Guest, snapshotId: string, bytesPerSecond = 0): Promise<unknown> {
  const domainId = await guest.uuid();
  const request = RemoveSnapshotRequest.fromPartial({
    domainId,
    snapshotId,
    bandwidth: BigInt(bytesPerSecond),
  });
  const workflow = removeSnapshotWorkflow(lab.lab.dependencies, request);
  return lab.lab.run('remove_snapshot', workflow, [domainId]).then(
    () => undefined,
    (error: unknown) => error,
  );
}

/** Fills the disk once the merge has moved something. */
async function fillInTheMiddle(lower: string): Promise<void> {
  const blocks = async () => Number((await run(['stat', '-c', '%b', lower])).stdout);
  const before = await blocks();
  await waitFor('the merge', async () => (await blocks()) > before + 1024, 120_000, 20);
  small.fill(1);
}

describe('of a guest that runs', () => {
  let guest: Guest;
  let disk: string;
  // an emulated guest takes long for noise of its own, and for hashes
  const seed = randomBytes(MIB);
  const contents = createHash('md5');

  beforeAll(async () => {
    disk = await makeDataDisk(join(small.path, 'disk.qcow2'), { sizeMiB: 96, files: { seed } });
    guest = await lab.world.defineTiny({ disks: [{ path: disk }] });
    await (await guest.start()).waitForAgent();
  });
  afterAll(() => guest?.destroy());

  let written = 0;

  /** A file more: in blocks that the disk does not have yet. */
  async function write(mib: number): Promise<void> {
    written += 1;
    const seeds = '/mnt/vda/seed '.repeat(mib);
    await guest.sh(`{ echo ${written}; cat ${seeds}; } > /mnt/vda/big${written}; sync`);
    contents.update(`${written}\n`);
    for (let count = 0; count < mib; count += 1) contents.update(seed);
  }

  /** A state with so much data on top of it. */
  async function stateBelow(name: string, mib: number): Promise<string> {
    await lab.create(guest, name);
    await write(mib);
    return idOf(guest, name);
  }

  /** The guest reads what it wrote, its file system is clean, every layer is sound. */
  async function expectSound(): Promise<void> {
    expect(await guest.state()).toBe('running');
    expect(await guest.sh('cat /mnt/vda/big* | md5sum')).toContain(contents.copy().digest('hex'));
    await guest.agent('guest-fsfreeze-freeze');
    try {
      const [top] = Object.values(await guest.disks()).filter(path => path?.startsWith('/'));
      const whole = join(lab.world.dir, 'whole.raw');
      await run(['qemu-img', 'convert', '-U', '-f', 'qcow2', '-O', 'raw', top!, whole]);
      await run(['e2fsck', '-fn', whole]);
    } finally {
      await guest.agent('guest-fsfreeze-thaw');
    }
    await lab.check(guest);
  }

  test('without room it is refused, and the state stays', async () => {
    const id = await stateBelow('s1', 12);
    small.fill(10);
    expect(await remove(guest, id)).toMatchObject({ msgKey: 'pool_no_space' });
    expect(await guest.snapshots()).toEqual(['s1']);
    expect(small.freeBytes).toBeGreaterThan(9 * 1024 * 1024);
    await expectSound();
    small.free();
    expect(await remove(guest, id)).toBeUndefined();
    expect(files()).toEqual(['disk.qcow2']);
    await expectSound();
  });

  test('that runs full in the middle it ends, the guest waits, and both go on with room', async () => {
    const id = await stateBelow('s1', 16);
    const ending = remove(guest, id, 2 * 1024 * 1024);
    await fillInTheMiddle(disk);
    expect(await ending).toMatchObject({ msgKey: 'snapshot_remove_failed', message: /bytes free/ });
    expect(await guest.snapshots()).toEqual([]);
    expect(await lab.world.node.virsh('blockjob', guest.name, 'vda')).not.toContain('Commit');
    // QEMU stops a guest that writes to a full disk
    await guest.background('/bin/sh', ['-c', `cat ${'/mnt/vda/seed '.repeat(8)} > /mnt/vda/more; sync`]);
    await waitFor('the stop', async () => (await guest.state()) === 'paused', 120_000);
    expect(await remove(guest, id)).toMatchObject({
      msgKey: 'snapshot_remove_failed',
      message: /bytes free/,
    });
    small.free();
    expect(await remove(guest, id)).toBeUndefined();
    expect(files()).toEqual(['disk.qcow2']);
    await expectSound();
    expect((await guest.sh('sync; stat -c %s /mnt/vda/more; rm /mnt/vda/more')).trim()).toBe('8388608');
  });

  test('after an increment: the backup is good, the next one completes the merge', async () => {
    const note = async (text: string) => {
      await guest.sh(`echo ${text} > /mnt/vda/note`);
      await write(6);
      return text;
    };
    const texts = [await note('first')];
    let made: Made = await firstBackup(lab.lab, guest);
    for (const text of ['second', 'third']) {
      texts.push(await note(text));
      made = await increment(lab.lab, guest, made);
    }
    texts.push(await note('fourth'));
    (lab.lab.dependencies as { mergeBandwidthMiB: number }).mergeBandwidthMiB = 1;
    const ending = increment(lab.lab, guest, made);
    await fillInTheMiddle(disk);
    made = await ending;
    expect(made.operation.warnings).toEqual([expect.stringMatching(/bytes free/)]);
    (lab.lab.dependencies as { mergeBandwidthMiB: number }).mergeBandwidthMiB = 0;
    small.free();
    await expectSound();
    texts.push(await note('fifth'));
    made = await increment(lab.lab, guest, made);
    expect(made.operation.warnings).toEqual([]);
    expect(await guest.snapshots()).toHaveLength(3);
    await expectSound();
    const { directory, manifests } = await unpack(lab.lab, made.path);
    const joined = new Map<string, string | undefined>();
    for (const [index, text] of texts.entries())
      expect(await contentOf(directory, manifests.get(index + 1)!, 'note', joined)).toBe(text);
  });
});

test('of a guest that is off', async () => {
  const path = join(small.path, 'off.qcow2');
  await makePlainDisk(path, { sizeBytes: 32 * MIB, dataBytes: MIB });
  const guest = await lab.world.defineTiny({ disks: [{ path }], idle: true });
  const before = await lab.contents(guest);
  await lab.create(guest, 's1');
  // more than qemu-img moves at once, whatever the bound
  const noise = join(lab.world.dir, 'noise');
  await run(['dd', 'if=/dev/urandom', `of=${noise}`, 'bs=1M', 'count=28']);
  await run(['qemu-io', '-c', `write -s ${noise} 2M 28M`, (await guest.disks()).vda!]);
  const contents = await lab.contents(guest);
  const id = await idOf(guest, 's1');
  small.fill(10);
  expect(await remove(guest, id)).toMatchObject({ msgKey: 'pool_no_space' });
  expect(await lab.statesContents(guest)).toEqual({ s1: before });
  small.free();
  const ending = remove(guest, id, 4 * MIB);
  await fillInTheMiddle(path);
  expect(await ending).toMatchObject({ msgKey: 'snapshot_remove_failed', message: /bytes free/ });
  expect(await lab.contents(guest)).toEqual(contents);
  await lab.check(guest);
  small.free();
  expect(await remove(guest, id)).toBeUndefined();
  expect(await lab.contents(guest)).toEqual(contents);
  await lab.check(guest);
});
