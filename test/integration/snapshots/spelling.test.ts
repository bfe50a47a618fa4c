/** Disks whose definition spells their paths otherwise than the headers of images do: the same in all that is done with states. */
import { basename, dirname } from 'node:path';
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

/** A guest that is off, with a qcow2 and a raw disk. */
async function oddGuest(): Promise<Guest> {
  const plain = await lab.plainGuest(['qcow2', 'raw']);
  const odd = (path: string) => `/${dirname(path)}${path.endsWith('.raw') ? '/./' : '//'}${basename(path)}`;
  const xml = (await plain.xml(true)).replaceAll(
    /<source file='([^']+)'\/>/g,
    (_, path: string) => `<source file='${odd(path)}'/>`,
  );
  await virsh('undefine', plain.name);
  await defineGuest(lab.world.node, plain.name, xml.replace(/<uuid>[^<]*<\/uuid>/, ''));
  const guest = new Guest(lab.world.node, plain.name);
  expect(Object.values(await guest.disks()).filter(path => path.startsWith('//'))).toHaveLength(2);
  return guest;
}

test.each(['running', 'off'])('states are made, reverted to and merged; %s', async power => {
  const guest = await oddGuest();
  const files = lab.files();
  if (power === 'running') await guest.start();
  await lab.create(guest, 's1');
  const atS1 = await lab.contents(guest);
  await lab.write(guest, 'vda', 2);
  await lab.create(guest, 's2');
  const atS2 = await lab.contents(guest);
  await lab.write(guest, 'vdb', 3);
  expect(await lab.statesContents(guest)).toEqual({ s1: atS1, s2: atS2 });
  await lab.remove(guest, 's2');
  await lab.create(guest, 's3');
  const made = lab.files();
  await lab.revert(guest, 's1');
  // what was written to belonged to no state
  expect(lab.files()).toHaveLength(made.length);
  expect(await lab.contents(guest)).toEqual(atS1);
  await lab.write(guest, 'vda', 4);
  const now = await lab.contents(guest);
  await lab.check(guest);
  for (const name of ['s3', 's1']) await lab.remove(guest, name);
  expect(await lab.contents(guest)).toEqual(now);
  expect(await guest.snapshots()).toEqual([]);
  expect(await guest.xml()).not.toContain('<mirror');
  expect(lab.files()).toEqual(files);
  if (power === 'off') await guest.start();
  await guest.destroy();
});

test('backups, increments and restores; running and off', async () => {
  const guest = await oddGuest();
  const files = lab.files();
  expect((await lab.lab.backup(guest)).manifest.disks).toHaveLength(2);
  await guest.start();
  const plain = await lab.lab.backup(guest);
  expect(plain.manifest.disks.map(({ target }: { target: string }) => target)).toEqual(['vda', 'vdb']);
  expect(await guest.xml()).not.toContain('<mirror');
  expect(lab.files()).toEqual(files);

  let made = await firstBackup(lab.lab, guest);
  const first = await diskHashes(lab.lab, guest);
  await lab.write(guest, 'vda', 5);
  made = await increment(lab.lab, guest, made);
  expect(made.manifest.states).toHaveLength(2);
  const second = await diskHashes(lab.lab, guest);
  expect(await guest.xml()).not.toContain('<mirror');
  for (const [state, wanted] of [
    ['1', first],
    ['2', second],
  ] as const) {
    const { result } = await lab.lab.restore(made.file, { state });
    const copy = new Guest(lab.world.node, result.name);
    expect(await diskHashes(lab.lab, copy)).toEqual(wanted);
  }
  await guest.destroy();
  for (const name of await guest.snapshots()) await lab.remove(guest, name);
  expect(await diskHashes(lab.lab, guest)).toEqual(second);
});

test('no state is made while the definition spells a file otherwise than the running VM: its next start would be without what comes', async () => {
  const guest = await oddGuest();
  await guest.start();
  const xml = await guest.xml(true);
  await defineGuest(lab.world.node, guest.name, xml.replaceAll("file='//", "file='/"));
  const files = lab.files();
  await expect(lab.create(guest, 's1')).rejects.toMatchObject({ msgKey: 'power_state_conflict' });
  expect([await guest.snapshots(), lab.files()]).toEqual([[], files]);
  await lab.lab.backup(guest);
  expect(lab.files()).toEqual(files);
  await defineGuest(lab.world.node, guest.name, xml);
  await lab.create(guest, 's1');
  await lab.write(guest, 'vda', 6);
  await guest.destroy();
  const now = await lab.contents(guest);
  await lab.remove(guest, 's1');
  expect(await lab.contents(guest)).toEqual(now);
});
