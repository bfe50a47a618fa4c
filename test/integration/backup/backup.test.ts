import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makeDataDisk, makePlainDisk } from '../../lab/disks.ts';
import type { DiskSpec } from '../../lab/domain-xml.ts';
import type { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { checkFileSystem, joinLayers, pythonNames, sameContent, untar } from '../archives/archive-tools.ts';
import { WorkflowLab } from './lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

const inPool = (name: string) => join(lab.world.node.pool(0).path, name);

/** Compares every disk of an archive with a file of the source; both must be at rest. */
async function expectSameDisks(path: string, manifest: Manifest, sources: Record<string, [string, string]>) {
  const directory = await untar(path, join(lab.world.dir, 'unpacked'));
  if (existsSync(`${path}.sha256`))
    await run(['sha256sum', '--quiet', '-c', `${path}.sha256`], { cwd: directory });
  for (const disk of manifest.disks) {
    const top = await joinLayers(
      directory,
      disk.layers.map(layer => layer.member),
    );
    const [source, format] = sources[disk.target]!;
    expect(`${disk.target} ${await sameContent(top, source, format)}`).toBe(`${disk.target} true`);
  }
  return directory;
}

interface Manifest {
  disks: { id: string; target: string; layers: { member: string }[]; formerPath: string }[];
  states: { consistency: string; memoryMember: string | null }[];
  members: { name: string }[];
  excludedDisks: { target: string; reason: string }[];
  isos: { target: string; member: string | null }[];
  luns: { target: string }[];
}

/** Nothing of the backup is left on the VM or beside its disks. */
async function expectUntouched(guest: Guest, before: { files: string[]; disks: Record<string, string> }) {
  expect(await guest.snapshots()).toEqual([]);
  expect(await guest.disks()).toEqual(before.disks);
  expect(lab.files(0)).toEqual(before.files);
}

async function lookAt(guest: Guest) {
  return { files: lab.files(0), disks: await guest.disks() };
}

describe('a running guest with an agent', () => {
  test('that writes at full speed: quiesced, byte for byte, with a clean file system, and never down', async () => {
    const guest = await lab.world.defineTiny({
      cmdline: 'writer=/mnt/vda/w',
      dataDisks: [{}, { format: 'raw' }],
    });
    await (await guest.start()).waitForAgent();
    const before = await lookAt(guest);
    const pid = guest.qemuPid();
    let compared: string | undefined;
    lab.whileFrozen = async path => {
      const manifest = JSON.parse((await run(['tar', '-xOf', path, '0001_manifest.json'])).stdout);
      const [vda, vdb] = [before.disks.vda!, before.disks.vdb!];
      expect(await guest.disks()).not.toEqual(before.disks);
      const directory = await expectSameDisks(path, manifest, { vda: [vda, 'qcow2'], vdb: [vdb, 'raw'] });
      for (const disk of manifest.disks) await checkFileSystem(join(directory, disk.layers[0].member));
      compared = path;
    };
    const { manifest, path } = await lab.backup(guest);
    expect(compared).toBe(path);
    expect(manifest.states[0].consistency).toBe('quiesced');
    expect(await pythonNames(path)).toEqual([
      ...manifest.members.map(({ name }: { name: string }) => name),
      '0001_manifest.json',
    ]);
    await expectUntouched(guest, before);
    expect(guest.qemuPid()).toBe(pid);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
    // before its first one there is none
    const rounds = async () => Number(await guest.sh('cat /mnt/vda/w/rounds 2>/dev/null || echo 0'));
    const now = await rounds();
    await waitFor('the next round of the writer', async () => (await rounds()) > now, 180_000);
    await guest.destroy();
  });
});

describe('a guest without an answering agent', () => {
  test('is saved with its memory while it runs on', async () => {
    const guest = await lab.world.defineTiny({ agent: false });
    await guest.start();
    const before = await lookAt(guest);
    lab.whileFrozen = async path => {
      const manifest = JSON.parse((await run(['tar', '--zstd', '-xOf', path, '0001_manifest.json'])).stdout);
      await expectSameDisks(path, manifest, { vda: [before.disks.vda!, 'qcow2'] });
    };
    const { manifest } = await lab.backup(guest, { compress: true });
    expect(manifest.states[0]).toMatchObject({
      consistency: 'memory',
      memoryMember: expect.stringMatching(/\.memory$/),
    });
    await expectUntouched(guest, before);
    expect(await guest.state()).toBe('running');
    await expect(lab.backup(guest, { requireConsistency: true })).rejects.toMatchObject({
      msgKey: 'consistency_unavailable',
    });
    await lab.world.node.virsh('suspend', guest.name);
    expect((await lab.backup(guest)).manifest.states[0].consistency).toBe('crash');
    expect(await guest.state()).toBe('paused');
    await expectUntouched(guest, before);
    await guest.destroy();
  });
});

describe('an off guest', () => {
  test('byte for byte: qcow2, raw, backing file, empty disk, odd sizes; compressed, with hashes', async () => {
    const base = await makeDataDisk(inPool(`${newId()}.qcow2`), { files: { 'base.txt': 'below' } });
    const overlay = inPool(`${newId()}.qcow2`);
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', base, '-F', 'qcow2', overlay]);
    await run(['qemu-io', '-c', 'write -P 0x5a 10M 1M', overlay]);
    const rawBase = await makePlainDisk(inPool('base.raw'), {
      sizeBytes: 3 * 1024 * 1024,
      dataBytes: 100_000,
      format: 'raw',
    });
    const onRaw = inPool('on-raw.qcow2');
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', rawBase, '-F', 'raw', onRaw]);
    await run(['qemu-io', '-c', 'write -P 0x11 0 64k', onRaw]);
    const odd = 1024 * 1024 + 512;
    const disks: DiskSpec[] = [
      { path: overlay },
      { path: await makeDataDisk(inPool('plain.raw'), { format: 'raw' }), format: 'raw' },
      { path: await makePlainDisk(inPool('empty.qcow2'), { sizeBytes: 64 * 1024 * 1024 }) },
      { path: await makePlainDisk(inPool('odd.qcow2'), { sizeBytes: odd, dataBytes: odd }) },
      {
        path: await makePlainDisk(inPool('odd.raw'), { sizeBytes: odd, dataBytes: odd, format: 'raw' }),
        format: 'raw',
      },
      { path: await makePlainDisk(inPool('empty.raw'), { sizeBytes: 512, format: 'raw' }), format: 'raw' },
      { path: onRaw },
    ];
    const guest = await lab.world.defineTiny({ disks });
    const before = await lookAt(guest);
    const sources = Object.fromEntries(
      disks.map((disk, index) => [
        `vd${'abcdefg'[index]}`,
        [disk.path, disk.format ?? 'qcow2'] as [string, string],
      ]),
    );
    for (const request of [{}, { compress: true, hashSum: true }, { hashSum: true }]) {
      const { path, manifest } = await lab.backup(guest, request);
      expect(manifest.states[0]).toMatchObject({ consistency: 'off', name: null, memoryMember: null });
      await expectSameDisks(path, manifest, sources);
      expect(existsSync(`${path}.sha256`)).toBe(request.hashSum === true);
      await expectUntouched(guest, before);
    }
  });

  test('a hostile name, an image, an excluded disk, other storage', async () => {
    const kept = await makePlainDisk(inPool(`${newId()}.qcow2`), { sizeBytes: 1024 * 1024 });
    const excludedId = newId();
    const excluded = await makePlainDisk(inPool(`${excludedId}.qcow2`), { sizeBytes: 1024 * 1024 });
    writeFileSync(inPool('tools.iso'), 'an image');
    const guest = await lab.world.defineTiny({
      name: 'böse name;rm -rf $HOME "x"&amp;',
      disks: [{ path: kept }, { path: excluded }, { path: inPool('tools.iso'), device: 'cdrom' }],
      devices: `<disk type='network' device='disk'><driver name='qemu' type='raw'/><source protocol='nbd' name='x'><host name='127.0.0.1' port='1'/></source><target dev='vdx' bus='virtio'/></disk>`,
    }); // biome-ignore format: XML
    const named = Object.assign(Object.create(Object.getPrototypeOf(guest)), guest, {
      name: 'böse name;rm -rf $HOME "x"&',
    });
    const { path, manifest, operation } = await lab.backup(named, { excludeVdisks: [excludedId] });
    expect(path).toMatch(/\/böse_name_rm_-rf__HOME__x___\d{8}T\d{6}Z\.tar$/);
    expect(manifest.disks.map((disk: { target: string }) => disk.target)).toEqual(['vda']);
    expect(manifest.excludedDisks.map((disk: { target: string }) => disk.target).sort()).toEqual([
      'vdb',
      'vdx',
    ]);
    expect(manifest.isos).toMatchObject([{ member: 'tools.iso' }]);
    expect(operation.warnings.join()).toContain('network');
    const without = await lab.backup(named, { excludeIso: true });
    expect(without.manifest.isos).toMatchObject([{ member: null }]);
    await expect(lab.backup(named, { excludeVdisks: [newId()] })).rejects.toMatchObject({
      msgKey: 'vdisk_not_found',
    });
  });

  test('that is started in the middle is not kept', async () => {
    const guest = await lab.world.defineTiny({ cmdline: 'writer=/mnt/vda/w' });
    const archives = () => lab.files(1).filter(name => name !== 'backups');
    const before = archives();
    const pause = join(lab.world.dir, 'started.pause');
    lab.inject(`backup.copy.before=pause:${pause}`);
    const refused = expect(lab.backup(guest)).rejects.toMatchObject({ msgKey: 'power_state_conflict' });
    await waitFor('the copy', () => existsSync(`${pause}.reached`), 180_000, 20);
    await guest.start();
    writeFileSync(pause, '');
    await refused;
    lab.inject('');
    expect(archives()).toEqual(before);
    await guest.destroy();
  });
});

test('a disk given as a volume of a pool, off and running', async () => {
  const name = `${newId()}.qcow2`;
  await makeDataDisk(inPool(name));
  await lab.world.node.virsh('pool-refresh', 'fast');
  const guest = await lab.world.defineTiny({
    disks: [],
    devices: `<disk type='volume' device='disk'><driver name='qemu' type='qcow2'/><source pool='fast' volume='${name}'/><target dev='vda' bus='virtio'/></disk>`,
  }); // biome-ignore format: XML
  const { path, manifest } = await lab.backup(guest);
  await expectSameDisks(path, manifest, { vda: [inPool(name), 'qcow2'] });
  await (await guest.start()).waitForAgent();
  const files = lab.files(0);
  expect((await lab.backup(guest)).manifest.states[0].consistency).toBe('quiesced');
  expect(await guest.snapshots()).toEqual([]);
  expect(lab.files(0)).toEqual(files);
  const xml = await guest.xml();
  expect(xml.includes(name)).toBe(true);
  expect(xml.includes('virtkeep-tmp')).toBe(false);
  expect((await guest.xml(true)).includes('virtkeep-tmp')).toBe(false);
  await guest.destroy();
  const { result } = await lab.restore(await lab.backup(guest).then(made => made.file));
  expect(await sameContent(result.disks[0]!.path, inPool(name))).toBe(true);
});

describe('refusals (specification 2.3, 8)', () => {
  const refused = async (change: Parameters<typeof lab.poolChanges.set>[1], which: 0 | 1, msgKey: string) => {
    const guest = await lab.world.defineTiny();
    lab.poolChanges.set(lab.world.node.pool(which).name, change);
    try {
      await expect(lab.backup(guest)).rejects.toMatchObject({ msgKey });
    } finally {
      lab.poolChanges.clear();
    }
  };
  test('an lvm source', () => refused({ kind: 'thinlvm' }, 0, 'pool_kind_unsupported'));
  test('an lvm target', () => refused({ kind: 'lvm' }, 1, 'pool_kind_unsupported'));
  test('a read-only target', () => refused({ readonly: true }, 1, 'pool_read_only'));
  test('an outside target', () => refused({ outside: true }, 1, 'pool_outside'));
  test('an inactive target', () => refused({ active: false }, 1, 'pool_not_active'));

  test('saved states with a disk on zfs', async () => {
    const guest = await lab.world.defineTiny();
    await lab.world.node.virsh('snapshot-create-as', guest.name, 's1', '--disk-only');
    lab.poolChanges.set('fast', { kind: 'zfs' });
    await expect(lab.backup(guest)).rejects.toMatchObject({ msgKey: 'zfs_with_states' });
    lab.poolChanges.clear();
  });

  test('an unknown VM, an unknown pool', async () => {
    const guest = await lab.world.defineTiny();
    await expect(lab.backup(guest, { poolId: newId() })).rejects.toMatchObject({ msgKey: 'pool_not_found' });
    await expect(lab.backup(guest, { domainId: newId() })).rejects.toMatchObject({
      msgKey: 'domain_not_found',
    });
  });
});
