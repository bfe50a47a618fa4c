// What a restore does with all that comes with the disks, with archives that are hostile or damaged, and when it fails.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { ArchiveWriter, type Manifest, openArchive } from '../../../agent/src/archive/index.ts';
import { type Answer, NO_OTHER_NODES } from '../../../agent/src/other-nodes.ts';
import { RESTORE_STEPS } from '../../../agent/src/workflows/restore/restore.ts';
import { makeDataDisk, makePlainDisk } from '../../lab/disks.ts';
import { few } from '../../lab/few.ts';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { fileInside } from '../archives/archive-tools.ts';
import { WorkflowLab } from '../backup/lab.ts';

let lab: WorkflowLab;
beforeAll(async () => {
  lab = await WorkflowLab.start();
});
afterAll(() => lab?.stop());

const inPool = (name: string, pool = 0) => join(lab.world.node.pool(pool).path, name);
const poolId = (pool: number) => lab.world.node.pool(pool).uuid;
const virsh = (...args: string[]) => lab.world.node.virsh(...args);
const domains = async () => (await virsh('list', '--all', '--name')).split('\n').sort();
const restored = (name: string) => new Guest(lab.world.node, name);

async function removeGuest(guest: Guest, ...files: string[]): Promise<void> {
  await virsh('undefine', guest.name, '--nvram', '--snapshots-metadata');
  for (const file of files) rmSync(file);
}

describe('what comes with the disks', () => {
  test('images: used where they are, else written, else an empty drive', async () => {
    const image = inPool('cd-image.iso');
    writeFileSync(image, 'iso bytes');
    const disk = { path: await makePlainDisk(inPool(`${newId()}.qcow2`), { sizeBytes: 1024 * 1024 }) };
    const guest = await lab.world.defineTiny({ disks: [disk, { path: image, device: 'cdrom' }] });
    const { file } = await lab.backup(guest);
    const { file: without } = await lab.backup(guest, { excludeIso: true });
    const sdb = async (name: string) => (await restored(name).disks()).sdb;
    expect(await sdb((await lab.restore(file, { poolId: poolId(1) })).result.name)).toBe(image);
    rmSync(image);
    const written = await sdb((await lab.restore(file, { poolId: poolId(1) })).result.name);
    expect(written).toBe(inPool('cd-image.iso', 1));
    expect(readFileSync(written!, 'utf8')).toBe('iso bytes');
    const twice = await sdb((await lab.restore(file, { poolId: poolId(1) })).result.name);
    expect(twice).not.toBe(written);
    expect(readFileSync(twice!, 'utf8')).toBe('iso bytes');
    const empty = await lab.restore(without, { poolId: poolId(1) });
    expect(await sdb(empty.result.name)).toBe('-');
    expect(empty.operation.warnings.join()).toContain('drive is empty');
  });

  test('an image outside of the pools is used where it is as long as it is what it was', async () => {
    const image = join(lab.world.dir, 'outside.iso');
    writeFileSync(image, 'iso bytes');
    const disk = { path: await makePlainDisk(inPool(`${newId()}.qcow2`), { sizeBytes: 1024 * 1024 }) };
    const guest = await lab.world.defineTiny({ disks: [disk, { path: image, device: 'cdrom' }] });
    const files = [await lab.backup(guest, { excludeIso: true }), await lab.backup(guest)] as const;
    await removeGuest(guest, disk.path);
    const shown = async ({ file }: (typeof files)[0]) => {
      const { result } = await lab.restore(file, { poolId: poolId(1) });
      const { sdb: path } = await restored(result.name).disks();
      await removeGuest(restored(result.name));
      return { path, warnings: result.warnings.join() };
    };
    for (const made of files) expect(await shown(made)).toEqual({ path: image, warnings: '' });
    writeFileSync(image, 'of another size');
    expect(await shown(files[0])).toEqual({
      path: '-',
      warnings: expect.stringContaining('neither in the backup nor in a data pool of this node'),
    });
    expect((await shown(files[1])).path).toBe(inPool('outside.iso', 1));
  });

  test('a drive shows what a qcow2 image holds, and not its bytes', async () => {
    const disk = { path: await makePlainDisk(inPool(`${newId()}.qcow2`), { sizeBytes: 1024 * 1024 }) };
    const image = await makePlainDisk(inPool('tools.qcow2'), { sizeBytes: 1024 * 1024 });
    const overlay = inPool('overlay.qcow2');
    execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', image, '-F', 'qcow2', overlay]);
    const drive = { device: 'cdrom', format: 'qcow2' } as const;
    const disks = [disk, { ...drive, path: image }, { ...drive, path: overlay }];
    const guest = await lab.world.defineTiny({ disks });
    const { file, operation } = await lab.backup(guest);
    expect(operation.warnings.join()).toContain(`${overlay}, which has a backing file`);
    const { result } = await lab.restore(file, { poolId: poolId(1), keepIdentity: false });
    const made = restored(result.name);
    expect(await made.disks()).toMatchObject({ sdb: image, sdc: '-' });
    await removeGuest(guest, disk.path);
    for (const path of [image, overlay]) rmSync(path);
    const { result: again } = await lab.restore(file, { poolId: poolId(1) });
    const written = restored(again.name);
    expect((await written.disks()).sdb).toBe(inPool('tools.qcow2', 1));
    for (const vm of [made, written])
      expect(await vm.xml(true)).toMatch(/device='cdrom'>\s*<driver name='qemu' type='qcow2'\/>\s*<source/);
    await written.start();
    await written.destroy();
  });

  test('UEFI variables and the state of the TPM', async () => {
    const made = await lab.world.defineTiny({ uefi: true, tpm: true });
    const vars = join(lab.world.dir, 'nvram', 'original_VARS.fd');
    const xml = (await made.xml(true)).replace(
      /<nvram([^>]*)(\/>|>[^<]*<\/nvram>)/,
      `<nvram$1>${vars}</nvram>`,
    );
    const guest = await defineGuest(lab.world.node, made.name, xml);
    await guest.start();
    await guest.destroy();
    const tpm = (uuid: string) => join(lab.world.node.dir, 'lib', 'swtpm', uuid, 'tpm2', 'tpm2-00.permall');
    const { file } = await lab.backup(guest);
    const { result } = await lab.restore(file, { poolId: poolId(1) });
    const path = join(lab.world.dir, 'nvram', `${result.name}_VARS.fd`);
    expect(await restored(result.name).xml(true)).toContain(path);
    expect(readFileSync(path).equals(readFileSync(vars))).toBe(true);
    expect(readFileSync(tpm(result.domain_id)).equals(readFileSync(tpm(await guest.uuid())))).toBe(true);
    await restored(result.name).start();
    await restored(result.name).destroy();
  });

  test('a thin clone stands on its template again, and is refused without it', async () => {
    const templateId = newId();
    const metadata = (inner: string) =>
      `<virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' ${inner}</virtkeep:domain>`;
    const templateDisk = await makeDataDisk(inPool(`${newId()}.qcow2`), { files: { base: 'template' } });
    const template = await lab.world.defineTiny({
      uuid: templateId,
      disks: [{ path: templateDisk }],
      metadata: metadata("template='yes' version='1'>"),
    });
    const cloneDisk = inPool(`${newId()}.qcow2`);
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', templateDisk, '-F', 'qcow2', cloneDisk]);
    const clone = await lab.world.defineTiny({
      disks: [{ path: cloneDisk }],
      metadata: metadata(`><virtkeep:parent id='${templateId}' version='1'/>`),
    });
    const { file, manifest } = await lab.backup(clone);
    expect(manifest.template).toMatchObject({ domainId: templateId, version: '1' });
    expect(manifest.disks[0]).toMatchObject({
      base: { path: templateDisk },
      layers: [{ member: expect.stringMatching(/\.snapshot$/) }],
    });
    const { result } = await lab.restore(file, { poolId: poolId(1) });
    expect(await fileInside((await restored(result.name).disks()).vda!, 'base')).toBe('template');
    expect(await restored(result.name).xml(true)).toContain(templateId);

    const { file: ofTemplate, manifest: itsManifest } = await lab.backup(template);
    expect(itsManifest.isTemplate).toBe(true);
    await removeGuest(template);
    await expect(lab.restore(file, { poolId: poolId(1) })).rejects.toMatchObject({
      msgKey: 'template_missing',
    });
    const again = await lab.restore(ofTemplate, { poolId: poolId(1) });
    expect(await restored(again.result.name).xml(true)).toMatch(/template=["']yes/);
  });

  test('a LUN is recorded, and left out when it is not there', async () => {
    const lun =
      "<disk type='block' device='lun'><driver name='qemu' type='raw'/><source dev='/dev/sg-none'/><target dev='sdz' bus='scsi'/></disk>";
    const guest = await lab.world.defineTiny({ devices: lun });
    const { file, manifest } = await lab.backup(guest);
    expect(manifest.luns).toMatchObject([{ target: 'sdz', formerPath: '/dev/sg-none' }]);
    const { result } = await lab.restore(file, { poolId: poolId(1) });
    expect(result.warnings.join()).toContain('/dev/sg-none');
    expect(await restored(result.name).xml(true)).not.toContain('sg-none');
  });

  test('a LUN is attached when it is there and nobody on any node uses it, the original among them', async () => {
    const image = inPool('lun.img');
    await run(['truncate', '-s', '1M', image]);
    const device = (await run(['losetup', '--find', '--show', image])).stdout.trim();
    try {
      // by one of its other names, as administrators give them
      const alias = inPool('by-id');
      symlinkSync(device, alias);
      const lun = `<disk type='block' device='lun'><driver name='qemu' type='raw'/><source dev='${alias}'/><target dev='sdz' bus='scsi'/></disk>`;
      const guest = await lab.world.defineTiny({ devices: lun });
      const { file } = await lab.backup(guest);
      const restore = async (options: Parameters<typeof lab.restore>[1] = {}) =>
        (await lab.restore(file, { poolId: poolId(1), ...options })).result;
      const elsewhere = (answer: Answer) => {
        lab.dependencies.otherNodes = { whoUses: async things => things.map(() => answer) };
      };
      const leftOut = async (options: Parameters<typeof lab.restore>[1], reason: string) => {
        const { name, warnings } = await restore(options);
        expect(warnings.join()).toContain(`${alias}) was left out`);
        expect(warnings.join()).toContain(reason);
        expect(await restored(name).xml(true)).not.toContain(alias);
        await removeGuest(restored(name));
      };
      const unavailable = { msgKey: 'lun_unavailable' };
      elsewhere({ kind: 'unused' });
      await expect(restore({ luns: ['sdz'] })).rejects.toMatchObject(unavailable);
      await leftOut({}, 'its name does not tell which device it is');
      await removeGuest(guest);
      const live = await lab.world.defineTiny({});
      await live.start();
      await virsh('attach-disk', live.name, device, 'vdz', '--live');
      await expect(restore({ luns: ['sdz'] })).rejects.toMatchObject(unavailable);
      await virsh('destroy', live.name);
      await removeGuest(live);
      const by = { nodeName: 'n2', domainId: newId(), domainName: 'far', active: true };
      elsewhere({ kind: 'used', by });
      await leftOut({ keepIdentity: true }, 'far on the node n2');
      await expect(restore({ luns: ['sdz'] })).rejects.toMatchObject(unavailable);
      elsewhere({ kind: 'unknown', reason: 'n2 is away' });
      await leftOut({ keepIdentity: true }, 'n2 is away');
      elsewhere({ kind: 'unused' });
      const directory = join(lab.world.dir, 'mounted');
      await run(['mkfs.ext4', '-q', device]);
      mkdirSync(directory);
      await run(['mount', device, directory]);
      await leftOut({ keepIdentity: true }, 'this node uses it itself').finally(() =>
        run(['umount', directory]),
      );
      for (const options of [{ keepIdentity: true }, { luns: ['sdz'] }]) {
        const { name, warnings } = await restore(options);
        expect(warnings.join()).not.toContain(alias);
        expect(await restored(name).xml(true)).toContain(alias);
        await removeGuest(restored(name));
      }
    } finally {
      lab.dependencies.otherNodes = NO_OTHER_NODES;
      await run(['losetup', '--detach', device]);
      rmSync(image);
      rmSync(inPool('by-id'));
    }
  });
});

describe('a hostile or damaged archive', () => {
  /** A copy of a backup with another first disk, and another manifest. */
  async function forged(guest: Guest, disk: string, change: (manifest: Manifest) => void = () => {}) {
    const { path } = await lab.backup(guest);
    const signal = AbortSignal.timeout(180_000);
    const archive = await openArchive(path, signal);
    const filename = `forged-${newId()}.tar`;
    const backupId = newId();
    const target = inPool(`backups/${filename}`, 1);
    const writer = await ArchiveWriter.create({
      path: target,
      backupId,
      compression: null,
      hash: false,
      signal,
    });
    for (const member of archive.members) {
      if (member.kind === 'disk') await writer.addFile(member.name, 'disk', disk);
      else if (member.kind !== 'manifest')
        await writer.addBytes(member.name, member.kind, await archive.readMember(member.name, signal));
    }
    await writer.finish({
      stateNumber: 1,
      manifest: members => {
        const manifest = { ...structuredClone(archive.manifest!), backupId, members };
        change(manifest);
        return manifest;
      },
    });
    await archive.close();
    return { filename };
  }

  test('images that name files of the host are refused, and nothing is left', async () => {
    const guest = await lab.world.defineTiny();
    const secret = join(lab.world.dir, 'secret');
    writeFileSync(secret, 'x'.repeat(65536));
    const withBacking = join(lab.world.dir, 'with-backing.qcow2');
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', secret, '-F', 'raw', withBacking]);
    const withData = join(lab.world.dir, 'with-data.qcow2');
    await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-o', `data_file=${secret}.data`, withData, '1M']);
    const notQcow2 = join(lab.world.dir, 'not-qcow2');
    writeFileSync(notQcow2, 'y'.repeat(4096));
    for (const disk of [withBacking, withData, notQcow2]) {
      const file = await forged(guest, disk);
      const before = { domains: await domains(), files: [lab.files(0), lab.files(1)] };
      await expect(lab.restore(file)).rejects.toMatchObject({
        msgKey: expect.stringMatching(/archive_damaged|qemu_img_failed/),
      });
      expect({ domains: await domains(), files: [lab.files(0), lab.files(1)] }).toEqual(before);
    }
  });

  test('paths of the archive are not followed out of the pools', async () => {
    const guest = await lab.world.defineTiny();
    const disk = await makeDataDisk(join(lab.world.dir, 'fine.qcow2'));
    mkdirSync(join(lab.world.dir, 'victim'));
    for (const path of [
      join(lab.world.dir, 'victim', 'x'),
      inPool('../../../victim/x'),
      '/etc/cron.d/x',
      'relative',
    ]) {
      const file = await forged(guest, disk, manifest => {
        manifest.disks[0]!.formerPath = path;
        manifest.disks[0]!.layers[0]!.formerPath = path;
      });
      const { result } = await lab.restore(file);
      expect(result.pool_changed).toBe(true);
      expect(result.disks[0]!.path.startsWith(inPool('', 1))).toBe(true);
    }
    expect(existsSync(join(lab.world.dir, 'victim', 'x'))).toBe(false);
    await expect(lab.restore({ filename: '../../../../etc/passwd' })).rejects.toMatchObject({
      msgKey: 'path_outside_pool',
    });
    await expect(lab.restore({ filename: 'none.tar' })).rejects.toMatchObject({ msgKey: 'file_not_found' });
  });
});

describe('a failure', () => {
  let file: { filename: string };
  beforeAll(async () => {
    const guest = await lab.world.defineTiny();
    await virsh('snapshot-create-as', guest.name, 's1', '--disk-only');
    file = (await lab.backup(guest)).file;
  });

  test.each(
    few(
      RESTORE_STEPS.flatMap(step => [`${step}.before`, `${step}.after`]),
      'extract.after',
      'join.after',
      'start.before',
    ),
  )('at %s leaves nothing', async where => {
    const before = { domains: await domains(), files: [lab.files(0), lab.files(1)] };
    lab.inject(`restore.${where}=fail`);
    try {
      await expect(lab.restore(file, { poolId: poolId(1), startOn: true })).rejects.toMatchObject({
        msgKey: 'io_failed',
      });
    } finally {
      lab.inject('');
    }
    expect({ domains: await domains(), files: [lab.files(0), lab.files(1)] }).toEqual(before);
  });
});
