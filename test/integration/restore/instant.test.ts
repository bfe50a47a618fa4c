// A VM that is started from its archive: it runs at once, ends independent, and the archive is never touched.
import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makePlainDisk } from '../../lab/disks.ts';
import { defineGuest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { fileInside } from '../archives/archive-tools.ts';
import { StateArchive } from '../archives/state-archive.ts';
import type { WorkflowLab } from '../backup/lab.ts';
import { chainOf, FILE, InstantLab } from './instant-lab.ts';

let instant: InstantLab;
let lab: WorkflowLab;
let bootId: string;

const hashOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');
const isFile = (path: string) => path.startsWith('/');

/** State 1, then one with memory; the original is gone, and files that are no disks lie where its layers were. */
beforeAll(async () => {
  instant = await InstantLab.start();
  lab = instant.lab;
  const large = { sizeMiB: 96, files: { 1: randomBytes(8_000_000) } };
  const guest = await lab.world.defineTiny({ dataDisks: [{ files: { 1: '1\n' } }, large] });
  await (await guest.start()).waitForAgent();
  const archive = new StateArchive(guest, lab.world.dir);
  await archive.take();
  await guest.sh(
    'for disk in vda vdb; do echo 2 > /mnt/$disk/2; done; echo kept > /tmp/in-memory-only; sync',
  );
  bootId = await guest.sh('cat /proc/sys/kernel/random/boot_id');
  await archive.take({ memoryIn: lab.world.node.pool(0).path });
  await archive.write(instant.pathOf(FILE), { hash: true });
  await archive.write(instant.pathOf(`${FILE}.zst`), { compress: true });
  const chains = await Promise.all(
    Object.values(await guest.disks())
      .filter(isFile)
      .map(chainOf),
  );
  await guest.destroy();
  await instant.virsh('undefine', guest.name, '--snapshots-metadata');
  for (const path of chains.flat()) writeFileSync(path, 'not a disk any more');
});
afterAll(() => instant?.stop());

/** MD5 of a file on the second disk, as the guest's own program tells it. */
async function md5Inside(image: string, name: string): Promise<string> {
  const raw = `${image}.raw`;
  try {
    await run(['qemu-img', 'convert', '-f', 'qcow2', '-O', 'raw', image, raw]);
    await run(['debugfs', '-R', `dump ${name} ${raw}.file`, raw]);
    return createHash('md5')
      .update(readFileSync(`${raw}.file`))
      .digest('hex');
  } finally {
    rmSync(raw, { force: true });
    rmSync(`${raw}.file`, { force: true });
  }
}

test('runs while its data are pulled in, and without the archive afterwards', async () => {
  const archive = instant.pathOf(FILE);
  const before = hashOf(archive);
  const id = instant.beginHeld('1');
  const result = await instant.committed(id);
  const copy = instant.restored(result.name);
  expect(await copy.state()).toBe('running');
  expect(await copy.xml(true)).toContain(FILE);
  expect(lab.runner.holderOf('file', archive)?.operationId).toBe(id);
  expect(() => lab.runner.cancel(id)).toThrow(expect.objectContaining({ msgKey: 'not_cancellable' }));
  await copy.waitForAgent();
  const [files, md5] = [await copy.sh('ls /mnt/vda'), await copy.sh('md5sum < /mnt/vdb/1')];
  expect(files.split('\n')).toContain('1');
  expect(files.split('\n')).not.toContain('2');
  await copy.sh('echo new > /mnt/vda/new; sync');
  await instant.goOn(result);
  expect((await lab.ended(id)).warnings).toEqual([]);
  await instant.expectIndependent(result);
  expect(hashOf(archive)).toBe(before);
  expect(lab.runner.holderOf('file', archive)).toBeUndefined();
  // not even a restart needs the archive
  const kept = readFileSync(archive);
  rmSync(archive);
  await copy.sh('umount /mnt/vda /mnt/vdb'); // so that the files can be read from outside, without the journals
  await copy.destroy();
  await copy.start();
  expect(await copy.state()).toBe('running');
  await copy.destroy();
  const [first, second] = result.disks.map(({ path }) => path) as [string, string];
  expect(await fileInside(first, 'new')).toBe('new\n');
  expect(md5).toContain(await md5Inside(second, '1'));
  writeFileSync(archive, kept);
  await instant.remove(result);
});

test('a state with memory goes on where the guest was', async () => {
  const id = instant.begin('2');
  const result = await instant.committed(id);
  const copy = await instant.restored(result.name).waitForAgent();
  expect(await copy.sh('cat /tmp/in-memory-only /proc/sys/kernel/random/boot_id')).toBe(`kept\n${bootId}`);
  expect(await copy.sh('cat /mnt/vda/2')).toBe('2\n');
  expect((await lab.ended(id)).warnings).toEqual([]);
  await instant.expectIndependent(result);
  expect(lab.files(0).filter(name => name.endsWith('resume.memory'))).toEqual([]);
  await instant.remove(result);
});

test('in place of a lost VM, with its firmware, its TPM and its image', async () => {
  const image = join(lab.world.node.pool(0).path, 'tools.iso');
  writeFileSync(image, 'an image');
  const disk = await makePlainDisk(join(lab.world.node.pool(0).path, `${newId()}.qcow2`), {
    sizeBytes: 4 << 20,
    dataBytes: 1 << 20,
  });
  const made = await lab.world.defineTiny({
    uefi: true,
    tpm: true,
    agent: false,
    disks: [{ path: disk }, { path: image, device: 'cdrom' }],
  });
  const vars = join(lab.world.dir, 'nvram', `${made.name}_VARS.fd`);
  const xml = (await made.xml(true)).replace(
    /<nvram([^>]*)(\/>|>[^<]*<\/nvram>)/,
    `<nvram$1>${vars}</nvram>`,
  );
  const guest = await defineGuest(lab.world.node, made.name, xml);
  await guest.start(); // makes both
  await guest.destroy();
  const domainId = await guest.uuid();
  const tpm = join(lab.dependencies.swtpmDirectory, domainId, 'tpm2', 'tpm2-00.permall');
  const firmware = () => [hashOf(vars), hashOf(tpm)];
  const before = firmware();
  const { file, path } = await lab.backup(guest);
  const archive = hashOf(path);
  await instant.virsh('undefine', guest.name, '--nvram');
  for (const lost of [disk, image]) rmSync(lost);
  rmSync(dirname(dirname(tpm)), { recursive: true, force: true });

  const pause = join(lab.world.dir, 'define.pause');
  lab.inject(`restore.define.before=pause:${pause}`);
  const id = instant.begin('', { keepIdentity: true, domainId, poolId: '' }, file.filename);
  await waitFor('the firmware', () => existsSync(`${pause}.reached`), 180_000, 20);
  expect(firmware()).toEqual(before);
  writeFileSync(pause, '');
  const result = await instant.committed(id);
  expect(result).toMatchObject({ domain_id: domainId, name: guest.name, disks: [{ path: disk }] });
  expect((await lab.ended(id)).warnings).toEqual([]);
  lab.inject('');
  const copy = instant.restored(result.name);
  expect(await copy.state()).toBe('running');
  expect(await copy.xml()).toContain(`<source file='${image}'`);
  expect(await copy.xml()).toContain(`>${vars}</nvram>`);
  expect(await chainOf(disk)).toEqual([disk]);
  expect([readFileSync(image, 'utf8'), hashOf(path)]).toEqual(['an image', archive]);
  await copy.destroy();
  await copy.start();
  await copy.destroy();
  await instant.virsh('undefine', result.name, '--nvram');
});

describe('refused', () => {
  test('a compressed archive', async () => {
    const before = [lab.files(0), await instant.virsh('list', '--all', '--name')];
    await expect(lab.ended(instant.begin('1', {}, `${FILE}.zst`))).rejects.toMatchObject({
      msgKey: 'instant_restore_unsupported',
    });
    expect([lab.files(0), await instant.virsh('list', '--all', '--name')]).toEqual(before);
  });
});
