/** UEFI variables and the state of the TPM belong to a saved state like the disks do. */

import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { SnapshotLab } from './lab.ts';

let lab: SnapshotLab;
beforeAll(async () => {
  lab = await SnapshotLab.start();
  // where libvirt itself looks for those that go by a VM's name
  lab.lab.dependencies.nvramDirectory = join(lab.world.node.dir, 'lib', 'qemu', 'nvram');
});
afterAll(() => lab?.stop());

const nvramDirectory = () => lab.lab.dependencies.nvramDirectory;
const tpmOf = (uuid: string) => join(lab.lab.dependencies.swtpmDirectory, uuid, 'tpm2', 'tpm2-00.permall');
const varsOf = async (guest: Guest) => /<nvram[^>]*>([^<]*)<\/nvram>/.exec(await guest.xml(true))![1]!;
const kept = () => readdirSync(nvramDirectory()).filter(name => name.startsWith('virtkeep_'));

/** A guest that was started once: then both exist. */
async function makeGuest(): Promise<Guest> {
  const defined = await lab.plainGuest(['qcow2'], { idle: false, agent: false, uefi: true, tpm: true });
  const vars = join(nvramDirectory(), `${defined.name}_VARS.fd`);
  const xml = (await defined.xml(true)).replace(
    /<nvram([^>]*)(\/>|>[^<]*<\/nvram>)/,
    `<nvram$1>${vars}</nvram>`,
  );
  const guest = await defineGuest(lab.world.node, defined.name, xml);
  await guest.start();
  await guest.destroy();
  return guest;
}

/** The content of both, changed at a place where a mark does no harm to who reads them. */
async function mark(guest: Guest, byte: number): Promise<{ vars: Buffer; tpm: Buffer }> {
  for (const path of [await varsOf(guest), tpmOf(await guest.uuid())])
    writeFileSync(path, Buffer.concat([readFileSync(path).subarray(0, -1), Buffer.from([byte])]));
  return read(guest);
}

async function read(guest: Guest): Promise<{ vars: Buffer; tpm: Buffer }> {
  return { vars: readFileSync(await varsOf(guest)), tpm: readFileSync(tpmOf(await guest.uuid())) };
}

test('come back with the disks, go away with the state, and are restored with it', async () => {
  const guest = await makeGuest();
  const first = await mark(guest, 1);
  await lab.create(guest, 's1');
  const second = await mark(guest, 2);
  await lab.create(guest, 's2');
  await mark(guest, 3);
  expect(kept()).toHaveLength(4);

  await lab.revert(guest, 's1');
  expect(await read(guest)).toEqual(first);
  await lab.revert(guest, 's2');
  expect(await read(guest)).toEqual(second);
  expect(kept()).toHaveLength(4);

  const third = await mark(guest, 3);
  const { file, manifest } = await lab.lab.backup(guest);
  const names = manifest.members.map(({ name }: { name: string }) => name);
  expect(names).toEqual(expect.arrayContaining(['0001_s1.nvram.fd', '0001_s1.tpm.tar', '0001_s2.nvram.fd']));
  const { result } = await lab.lab.restore(file);
  const copy = new Guest(lab.world.node, result.name);
  expect(await read(copy)).toEqual(third);
  await lab.revert(copy, 's1');
  expect(await read(copy)).toEqual(first);
  await lab.revert(copy, 's2');
  expect(await read(copy)).toEqual(second);
  expect(await read(guest)).toEqual(third);

  await lab.remove(guest, 's1');
  await lab.remove(copy, 's2');
  expect(kept()).toHaveLength(4);
  await lab.remove(guest, 's2');
  await lab.remove(copy, 's1');
  expect(kept()).toEqual([]);
});

test('that libvirt finds by the name of a VM are kept in states and archives, too', async () => {
  const guest = await lab.plainGuest(['qcow2'], { idle: false, agent: false, uefi: 'chosen' });
  const variablesOf = (name: string) => join(nvramDirectory(), `${name}_VARS.fd`);
  await guest.start();
  await guest.destroy();
  // libvirt 11 finds none by a name: it writes their path into the definition
  if ((await guest.xml(true)).includes('<nvram')) return;
  const whole = readFileSync(variablesOf(guest.name)).subarray(0, -1);
  const put = (byte: number) =>
    writeFileSync(variablesOf(guest.name), Buffer.concat([whole, Buffer.from([byte])]));
  const last = (path: string) => readFileSync(path).at(-1);
  put(1);
  await lab.create(guest, 's1');
  put(2);
  await lab.revert(guest, 's1');
  expect(last(variablesOf(guest.name))).toBe(1);
  expect(await guest.xml(true)).not.toContain('<nvram');
  put(3);
  const { file } = await lab.lab.backup(guest);
  for (const isTaken of [false, true]) {
    const name = `chosen-${isTaken}`;
    if (isTaken) writeFileSync(variablesOf(name), 'of another');
    await lab.lab.restore(file, { name });
    const copy = new Guest(lab.world.node, name);
    const path = await varsOf(copy);
    expect(last(path)).toBe(3);
    await lab.revert(copy, 's1');
    await copy.start();
    expect(await copy.xml()).toContain(`>${path}</nvram>`);
    await copy.destroy();
    expect(last(path)).toBe(1);
    if (isTaken) expect(readFileSync(variablesOf(name), 'utf8')).toBe('of another');
    await lab.remove(copy, 's1');
  }
  await lab.remove(guest, 's1');
});

test('are as before when a revert fails', async () => {
  const guest = await makeGuest();
  await mark(guest, 1);
  await lab.create(guest, 's1');
  const now = await mark(guest, 2);
  lab.lab.inject('revert_snapshot.start.before=fail');
  await expect(lab.revert(guest, 's1')).rejects.toBeDefined();
  lab.lab.inject('');
  expect(await read(guest)).toEqual(now);
  expect(kept()).toHaveLength(2);
});

test('of the states that increments make are in their archive once', async () => {
  const guest = await makeGuest();
  const first = await mark(guest, 1);
  const { file } = await lab.lab.backup(guest, { canBeIncremental: true });
  await mark(guest, 2);
  const extend = { poolId: lab.world.node.pool(1).uuid, filename: file.filename };
  const { manifest } = await lab.lab.backup(guest, { extend, poolId: '' });
  const names = manifest.members.flatMap(({ name }: { name: string }) =>
    name.includes('nvram') ? [name] : [],
  );
  expect(names).toEqual(['0001_nvram.fd', '0002_nvram.fd']);
  expect(manifest.snapshots[0]).toMatchObject({ nvram: { member: '0001_nvram.fd' } });
  const { result } = await lab.lab.restore(file);
  const copy = new Guest(lab.world.node, result.name);
  await lab.revert(copy, manifest.snapshots[0].name);
  expect(await read(copy)).toEqual(first);
});
