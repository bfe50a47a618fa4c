/** Disks that the definition names as volumes of libvirt's pools: the same as files in all that is done with states. */
import { readdirSync } from 'node:fs';
import { basename, resolve } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { diskHashes, firstBackup, increment } from '../increments/lab.ts';
import { SnapshotLab } from './lab.ts';

let lab: SnapshotLab;
beforeAll(async () => {
  lab = await SnapshotLab.start();
});
afterAll(() => lab?.stop());

const virsh = (...args: string[]) => lab.world.node.virsh(...args);

/** Of the definition; a volume's file bears its name. */
class VolumeGuest extends Guest {
  override async disks(): Promise<Record<string, string>> {
    const disks: Record<string, string> = {};
    for (const [disk] of (await this.xml()).matchAll(/<disk [\s\S]*?<\/disk>/g)) {
      const path = /<source [^>]*(?:file|volume)='([^']+)'/.exec(disk)![1]!;
      const target = /<target dev='([^']+)'/.exec(disk)![1]!;
      disks[target] = resolve(lab.world.node.pool(0).path, path);
    }
    return disks;
  }
}

/** A guest that is off, with a qcow2 and a raw volume. */
async function volumeGuest(): Promise<Guest> {
  const files = await lab.plainGuest(['qcow2', 'raw']);
  const pool = lab.world.node.pool(0);
  await virsh('pool-refresh', pool.name);
  const xml = (await files.xml(true))
    .replaceAll(/<disk type='file'/g, "<disk type='volume'")
    .replaceAll(/<source file='([^']+)'\/>/g, (_, path: string) => {
      return `<source pool='${pool.name}' volume='${basename(path)}'/>`;
    });
  await virsh('undefine', files.name);
  await defineGuest(lab.world.node, files.name, xml.replace(/<uuid>[^<]*<\/uuid>/, ''));
  return new VolumeGuest(lab.world.node, files.name);
}

test.each(['off', 'running'])('states are made, reverted to and merged; %s', async power => {
  const guest = await volumeGuest();
  const files = readdirSync(lab.world.node.pool(0).path).length;
  if (power === 'running') await guest.start();
  await lab.create(guest, 's1');
  const atS1 = await lab.contents(guest);
  expect(Object.keys(atS1)).toEqual(['vda', 'vdb']);
  await lab.write(guest, 'vda', 2);
  await lab.create(guest, 's2');
  const atS2 = await lab.contents(guest);
  await lab.write(guest, 'vdb', 3);
  expect(await lab.statesContents(guest)).toEqual({ s1: atS1, s2: atS2 });
  await lab.revert(guest, 's1');
  expect(await lab.contents(guest)).toEqual(atS1);
  await lab.write(guest, 'vda', 4);
  const now = await lab.contents(guest);
  await lab.check(guest);
  for (const name of ['s2', 's1']) await lab.remove(guest, name);
  expect(await lab.contents(guest)).toEqual(now);
  expect(await guest.snapshots()).toEqual([]);
  expect(readdirSync(lab.world.node.pool(0).path)).toHaveLength(files);
  if (power === 'off') await guest.start();
  await guest.destroy();
});

test('a backup, increments and restores; off and running', async () => {
  const guest = await volumeGuest();
  const plain = await lab.lab.backup(guest);
  expect(plain.manifest.disks.map(({ target }: { target: string }) => target)).toEqual(['vda', 'vdb']);
  await guest.start();
  expect((await lab.lab.backup(guest)).manifest.disks).toHaveLength(2);
  await guest.destroy();

  const again = await volumeGuest();
  let made = await firstBackup(lab.lab, again);
  const first = await diskHashes(lab.lab, again);
  await lab.write(again, 'vda', 5);
  made = await increment(lab.lab, again, made);
  const second = await diskHashes(lab.lab, again);
  for (const [state, wanted] of [
    ['1', first],
    ['2', second],
  ] as const) {
    const { result } = await lab.lab.restore(made.file, { state });
    const copy = new Guest(lab.world.node, result.name);
    expect(await diskHashes(lab.lab, copy)).toEqual(wanted);
    expect(await copy.xml(true)).not.toContain('volume=');
    await copy.start();
    await copy.destroy();
  }
  await lab.revert(again, made.manifest.states[0].name);
  expect(await diskHashes(lab.lab, again)).toEqual(first);
});
