/** Merging a layer that has another size than the one below it: the disk keeps the size it has. */
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { readLayers } from '../../../agent/src/disks/index.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { BLOCK, SnapshotLab } from './lab.ts';

let lab: SnapshotLab;
beforeAll(async () => {
  lab = await SnapshotLab.start();
});
afterAll(() => lab?.stop());

const topOf = async (guest: Guest, target: string) => {
  const path = (await guest.disks())[target]!;
  return (await readLayers(path, path.endsWith('.raw') ? 'raw' : 'qcow2'))[0]!;
};

async function resize(guest: Guest, target: string, blocks: number): Promise<void> {
  if ((await guest.state()) === 'running') {
    await lab.world.node.virsh('blockresize', guest.name, target, `${blocks * BLOCK}B`);
    return;
  }
  const { path, format } = await topOf(guest, target);
  await run(['qemu-img', 'resize', '-q', '--shrink', '-f', format, path, String(blocks * BLOCK)]);
}

/** Sizes of both disks in blocks, as a start of the guest would see them. */
async function sizes(guest: Guest): Promise<number[]> {
  const found = [];
  for (const target of ['vda', 'vdb']) {
    const { format, virtualSize, fileSize } = await topOf(guest, target);
    found.push((format === 'raw' ? fileSize : virtualSize) / BLOCK);
  }
  return found;
}

test.each(['off', 'running'])('grown and shrunk since the state; %s', async power => {
  const guest = await lab.plainGuest(['qcow2', 'raw']);
  if (power === 'running') await guest.start();
  for (const block of [1, 20]) for (const target of ['vda', 'vdb']) await lab.write(guest, target, block);
  for (const [name, blocks] of [
    ['grown', 40],
    ['shrunk', 12],
    ['grown again', 30],
  ] as const) {
    await lab.create(guest, name);
    for (const target of ['vda', 'vdb']) await resize(guest, target, blocks);
    await lab.write(guest, 'vda', 3);
    await lab.write(guest, 'vdb', 4);
  }
  const now = await lab.contents(guest);
  // "shrunk" goes first: what was below it is larger, and what is above it is, too
  for (const name of ['grown again', 'shrunk', 'grown']) {
    if (name === 'shrunk' && power === 'running') {
      await expect(lab.remove(guest, name)).rejects.toMatchObject({ msgKey: 'snapshot_remove_failed' });
      expect(await guest.snapshots()).toContain(name);
      await guest.destroy();
    }
    await lab.remove(guest, name);
    expect([name, await lab.contents(guest)]).toEqual([name, now]);
    expect(await sizes(guest)).toEqual([30, 30]);
  }
  await resize(guest, 'vda', 24);
  await resize(guest, 'vdb', 24);
  await lab.create(guest, 'last');
  for (const target of ['vda', 'vdb']) await resize(guest, target, 8);
  const small = await lab.contents(guest);
  await lab.remove(guest, 'last');
  expect(await lab.contents(guest)).toEqual(small);
  expect(await sizes(guest)).toEqual([8, 8]);
  await lab.check(guest);
});
