// A VM that is started from its archive: it runs at once, ends independent, and the archive is never touched.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { instantRestoreWorkflow } from '../../../agent/src/workflows/restore/instant/instant-restore.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { StateArchive } from '../archives/state-archive.ts';
import { type RestoreResult, WorkflowLab } from '../backup/lab.ts';

let lab: WorkflowLab;
let bootId: string;
const FILE = 'instant.tar';

const pathOf = (filename: string) => join(lab.world.node.pool(1).path, 'backups', filename);
const virsh = (...args: string[]) => lab.world.node.virsh(...args);
const restored = (name: string) => new Guest(lab.world.node, name);
const hashOf = (path: string) => createHash('sha256').update(readFileSync(path)).digest('hex');

/** State 1, then one with memory; the original is gone, and files that are no disks lie where its layers were. */
beforeAll(async () => {
  lab = await WorkflowLab.start();
  const image = join(lab.world.node.pool(0).path, `${newId()}.qcow2`);
  const guest = await lab.world.defineTiny({ dataDisks: [{}, { sizeMiB: 96 }] });
  await makePlainDisk(image, { sizeBytes: 1 << 20 });
  await (await guest.start()).waitForAgent();
  const archive = new StateArchive(guest, lab.world.dir);
  const write = (state: number) =>
    guest.sh(`echo ${state} > /mnt/vda/${state}; head -c 8000000 /dev/urandom > /mnt/vdb/${state}; sync`);
  await write(1);
  await archive.take();
  await write(2);
  await guest.sh('echo kept > /tmp/in-memory-only');
  bootId = await guest.sh('cat /proc/sys/kernel/random/boot_id');
  await archive.take({ memoryIn: lab.world.node.pool(0).path });
  await archive.write(pathOf(FILE), { hash: true });
  await archive.write(pathOf(`${FILE}.zst`), { compress: true });
  const chains = await Promise.all(
    Object.values(await guest.disks())
      .filter(isFile)
      .map(chainOf),
  );
  await guest.destroy();
  await virsh('undefine', guest.name, '--snapshots-metadata');
  for (const path of chains.flat()) writeFileSync(path, 'not a disk any more');
});
afterAll(() => lab?.stop());

const isFile = (path: string) => path.startsWith('/');

async function chainOf(path: string): Promise<string[]> {
  const { stdout } = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', path]);
  return (JSON.parse(stdout) as { filename: string }[]).map(layer => layer.filename);
}

/** Starts the operation; it goes on while the test looks at it. */
function start(state: string, request: Partial<StartRestoreRequest> = {}, filename = FILE): string {
  const id = newId();
  const full = StartRestoreRequest.fromPartial({
    file: { poolId: lab.world.node.pool(1).uuid, filename },
    domainId: newId(),
    poolId: lab.world.node.pool(0).uuid,
    state,
    instant: true,
    ...request,
  });
  lab.runner.start({
    id,
    kind: 'restore',
    request: full,
    entities: [],
    locks: [
      { kind: 'domain', id: full.domainId, mode: 'exclusive' },
      { kind: 'file', id: pathOf(filename), mode: 'shared' },
    ],
    cancellable: true,
    workflow: instantRestoreWorkflow(lab.dependencies, full),
  });
  return id;
}

/** The result, which is there when the VM runs; `phase` is told then. */
async function committed(id: string): Promise<RestoreResult> {
  return waitFor(
    'the start of the VM',
    () => {
      const { resultJson, error } = lab.runner.get(id);
      if (error) throw new Error(error.detail);
      return resultJson === '' ? undefined : (JSON.parse(resultJson) as RestoreResult);
    },
    120_000,
    20,
  );
}

/** As good as stops the pull of the first disk, and all after it, until `goOn`: a guest boots as slowly as it likes. */
async function holdBack(result: RestoreResult): Promise<void> {
  const slow = () =>
    virsh('blockjob', result.name, 'vda', '--bandwidth', '1000', '--bytes').then(
      () => true,
      () => false,
    );
  await waitFor('the pull of the first disk', slow, 120_000, 20);
}

async function goOn(result: RestoreResult): Promise<void> {
  for (const target of ['vda', 'vdb'])
    await virsh('blockjob', result.name, target, '--bandwidth', '0').catch(() => {});
}

async function expectIndependent(result: RestoreResult): Promise<void> {
  for (const { path } of result.disks) {
    expect(await chainOf(path)).toEqual([path]);
    const { stdout } = await run(['qemu-img', 'info', '-U', '--output=json', path]);
    expect(JSON.parse(stdout)).not.toHaveProperty('backing-filename');
  }
  const copy = restored(result.name);
  for (const xml of [await copy.xml(), await copy.xml(true)]) expect(xml).not.toContain(FILE);
  expect(await copy.xml(true)).not.toContain('<backingStore');
}

async function remove(result: RestoreResult): Promise<void> {
  const copy = restored(result.name);
  if ((await copy.state()) !== 'shut off') await copy.destroy();
  for (const { path } of result.disks) await run(['qemu-img', 'check', '-q', path]);
  await virsh('undefine', result.name);
  for (const { path } of result.disks) rmSync(path);
}

const contentOf = (copy: Guest) => copy.sh('ls /mnt/vda; md5sum < /mnt/vdb/1');

test('runs while its data are pulled in, and without the archive afterwards', async () => {
  const before = hashOf(pathOf(FILE));
  const id = start('1', { bandwidth: 500_000n });
  const result = await committed(id);
  await holdBack(result);
  const copy = restored(result.name);
  expect(await copy.state()).toBe('running');
  expect(await copy.xml(true)).toContain(FILE);
  expect(lab.runner.holderOf('file', pathOf(FILE))?.operationId).toBe(id);
  expect(() => lab.runner.cancel(id)).toThrow(expect.objectContaining({ msgKey: 'not_cancellable' }));
  await copy.waitForAgent();
  const content = await contentOf(copy);
  expect(content.split('\n')).toEqual(expect.arrayContaining(['1']));
  expect(content.split('\n')).not.toContain('2');
  await copy.sh('echo new > /mnt/vda/new; sync');
  await goOn(result);
  expect((await lab.ended(id)).warnings).toEqual([]);
  await expectIndependent(result);
  expect(hashOf(pathOf(FILE))).toBe(before);
  expect(lab.runner.holderOf('file', pathOf(FILE))).toBeUndefined();
  // not even a restart needs the archive
  const kept = readFileSync(pathOf(FILE));
  rmSync(pathOf(FILE));
  await copy.destroy();
  await (await copy.start()).waitForAgent();
  expect(await copy.sh('cat /mnt/vda/new')).toBe('new\n');
  expect(await copy.sh('md5sum < /mnt/vdb/1')).toBe(`${content.trim().split('\n').at(-1)}\n`);
  writeFileSync(pathOf(FILE), kept);
  await remove(result);
});

test('a state with memory goes on where the guest was', async () => {
  const id = start('2');
  const result = await committed(id);
  const copy = await restored(result.name).waitForAgent();
  expect(await copy.sh('cat /tmp/in-memory-only /proc/sys/kernel/random/boot_id')).toBe(`kept\n${bootId}`);
  expect(await copy.sh('cat /mnt/vda/2')).toBe('2\n');
  expect((await lab.ended(id)).warnings).toEqual([]);
  await expectIndependent(result);
  expect(lab.files(0).filter(name => name.endsWith('resume.memory'))).toEqual([]);
  await remove(result);
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
  await virsh('undefine', guest.name, '--nvram');
  for (const lost of [disk, image]) rmSync(lost);
  rmSync(dirname(dirname(tpm)), { recursive: true, force: true });

  const pause = join(lab.world.dir, 'define.pause');
  lab.inject(`restore.define.before=pause:${pause}`);
  const id = start('', { keepIdentity: true, domainId, poolId: '' }, file.filename);
  await waitFor('the firmware', () => existsSync(`${pause}.reached`), 180_000, 20);
  expect(firmware()).toEqual(before);
  writeFileSync(pause, '');
  const result = await committed(id);
  expect(result).toMatchObject({ domain_id: domainId, name: guest.name, disks: [{ path: disk }] });
  expect((await lab.ended(id)).warnings).toEqual([]);
  lab.inject('');
  const copy = restored(result.name);
  expect(await copy.state()).toBe('running');
  expect(await copy.xml()).toContain(`<source file='${image}'`);
  expect(await copy.xml()).toContain(`>${vars}</nvram>`);
  expect(await chainOf(disk)).toEqual([disk]);
  expect([readFileSync(image, 'utf8'), hashOf(path)]).toEqual(['an image', archive]);
  await copy.destroy();
  await copy.start();
  await copy.destroy();
  await virsh('undefine', result.name, '--nvram');
});

/** A small file system in a pool's place, for us and for the node, which has mounts of its own. @returns what ends it */
async function mountSmall(pool: string): Promise<() => Promise<void>> {
  const image = join(lab.world.dir, 'small.img');
  await run(['truncate', '-s', '100M', image]);
  await run(['mkfs.ext4', '-q', '-F', image]);
  const device = (await run(['losetup', '--find', '--show', image])).stdout.trim();
  const inside = ['nsenter', '--mount', '--target', String(lab.world.node.pids()[0])] as const;
  await run(['mount', device, pool]);
  await run([...inside, 'mount', device, pool]);
  return async () => {
    await run([...inside, 'umount', '-l', pool]);
    await run(['umount', '-l', pool]);
    await run(['losetup', '--detach', device]);
    rmSync(image);
  };
}

describe('what happens to the VM while its data are pulled in', () => {
  test.each([
    ['it is switched off', true],
    ['it is switched off and on', false],
  ])('%s', async (_what, off) => {
    const before = hashOf(pathOf(FILE));
    const id = start('1', { bandwidth: 500_000n });
    const result = await committed(id);
    await holdBack(result);
    const copy = await restored(result.name).waitForAgent();
    await copy.sh('echo new > /mnt/vda/new; sync');
    expect(await copy.xml()).toContain(FILE);
    await copy.destroy();
    // while qemu-img works on a disk, its lock keeps the VM from starting
    if (!off)
      await waitFor(
        'the start',
        () =>
          copy.start().then(
            () => true,
            () => false,
          ),
        120_000,
        100,
      );
    await goOn(result);
    expect((await lab.ended(id)).warnings).toEqual([]);
    if (off) {
      expect(await copy.state()).toBe('shut off');
      await copy.start();
    }
    await expectIndependent(result);
    await copy.waitForAgent();
    expect(await copy.sh('cat /mnt/vda/1 /mnt/vda/new')).toBe('1\nnew\n');
    expect(lab.files(0).filter(name => name.includes('.layer'))).toEqual([]);
    expect(hashOf(pathOf(FILE))).toBe(before);
    await remove(result);
  });

  test('its pool is full: the pull goes on when there is space again', async () => {
    const pool = lab.world.node.pool(0).path;
    const unmount = await mountSmall(pool);
    try {
      const id = start('1', { bandwidth: 500_000n });
      const result = await committed(id);
      await holdBack(result);
      const copy = restored(result.name);
      const filler = join(pool, 'filler');
      await run(['sh', '-c', `cat /dev/zero > ${filler} 2> /dev/null || true`]);
      await goOn(result);
      await waitFor('the trouble', () => lab.runner.get(id).warnings.length > 0, 240_000, 100);
      expect(lab.runner.holderOf('file', pathOf(FILE))?.operationId).toBe(id);
      rmSync(filler);
      const free = () => lab.runner.holderOf('file', pathOf(FILE)) === undefined;
      await waitFor('the end of the pull', free, 240_000, 100);
      await lab.ended(id);
      await expectIndependent(result);
      if ((await copy.state()) === 'paused') await virsh('resume', result.name);
      await copy.waitForAgent();
      expect(await copy.sh('cat /mnt/vda/1')).toBe('1\n');
      await remove(result);
    } finally {
      await unmount();
    }
  });

  test('it is undefined: nothing is left to do', async () => {
    const id = start('1', { bandwidth: 500_000n });
    const result = await committed(id);
    await virsh('destroy', result.name);
    await virsh('undefine', result.name);
    await lab.ended(id);
    for (const { path } of result.disks) rmSync(path, { force: true });
  });
});

describe('refused', () => {
  test('a compressed archive', async () => {
    const before = [lab.files(0), await virsh('list', '--all', '--name')];
    await expect(lab.ended(start('1', {}, `${FILE}.zst`))).rejects.toMatchObject({
      msgKey: 'instant_restore_unsupported',
    });
    expect([lab.files(0), await virsh('list', '--all', '--name')]).toEqual(before);
  });
});
