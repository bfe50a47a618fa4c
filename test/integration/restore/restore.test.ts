import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { ArchiveWriter, type Manifest, openArchive } from '../../../agent/src/archive/index.ts';
import { judgedAs } from '../../../agent/src/archive/test-kit.ts';
import { deviceDifferences } from '../../../agent/src/domain-xml/compare.ts';
import { type Answer, NO_OTHER_NODES } from '../../../agent/src/other-nodes.ts';
import { RESTORE_STEPS } from '../../../agent/src/workflows/restore/restore.ts';
import { makeDataDisk, makePlainDisk } from '../../lab/disks.ts';
import { defineGuest, Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { fileInside, sameContent } from '../archives/archive-tools.ts';
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

describe('as a new VM', () => {
  test('the same devices and content, under another name, uuid and MAC, beside the original', async () => {
    const devices =
      "<interface type='user'><mac address='52:54:00:aa:bb:cc'/><model type='virtio'/></interface>";
    const guest = await lab.world.defineTiny({
      devices,
      dataDisks: [{ files: { hello: 'world' } }, { format: 'raw' }],
    });
    const { file } = await lab.backup(guest, { compress: true, hashSum: true });
    const { result } = await lab.restore(file);
    expect(result).toMatchObject({ name: `${guest.name}_restored`, pool_changed: false });
    const copy = restored(result.name);
    const [before, after] = [await guest.xml(true), await copy.xml(true)];
    expect(deviceDifferences(before, after)).toEqual([]);
    expect(after).not.toContain('52:54:00:aa:bb:cc');
    const [old, made] = [await guest.disks(), await copy.disks()];
    expect(made.vda).not.toBe(old.vda);
    expect(await sameContent(made.vda!, old.vda!)).toBe(true);
    expect(await sameContent(made.vdb!, old.vdb!, 'raw')).toBe(true);
    expect(await fileInside(made.vda!, 'hello')).toBe('world');
    await expect(lab.restore(file, { name: guest.name })).rejects.toMatchObject({ msgKey: 'name_in_use' });
    await expect(lab.restore(file, { name: 'a/b' })).rejects.toMatchObject({ msgKey: 'invalid_name' });
    await expect(lab.restore(file, { state: 'nope' })).rejects.toMatchObject({ msgKey: 'state_not_found' });
    await expect(lab.restore(file, { poolId: newId() })).rejects.toMatchObject({ msgKey: 'pool_not_found' });
  });

  test('with its saved states, which can be deleted, and with memory that can be loaded', async () => {
    const guest = await lab.world.defineTiny({ dataDisks: [{}, { format: 'raw' }] });
    await (await guest.start()).waitForAgent();
    const write = (name: string) =>
      guest.sh(`echo ${name} > /mnt/vda/${name}; echo ${name} > /mnt/vdb/${name}; sync`);
    await write('one');
    await virsh('snapshot-create-as', guest.name, 's1', 'first & only', '--disk-only', '--quiesce');
    await write('two');
    await virsh('snapshot-create-as', guest.name, 's 2', '--memspec', `file=${inPool('s2.mem')}`, '--live');
    await write('three');
    const before = { files: lab.files(0), disks: await guest.disks() };
    const { file, manifest } = await lab.backup(guest);
    expect(manifest.disks.map((disk: Manifest['disks'][number]) => disk.layers.length)).toEqual([3, 3]);
    expect(manifest.snapshots).toMatchObject([
      { name: 's1', parent: null, current: false, memoryMember: null },
      { name: 's 2', parent: 's1', current: true, memoryMember: expect.any(String) },
    ]);
    expect(await guest.snapshots()).toEqual(['s1', 's 2']);
    expect({ files: lab.files(0), disks: await guest.disks() }).toEqual(before);

    const { result } = await lab.restore(file, { poolId: poolId(0) });
    const copy = restored(result.name);
    expect(await virsh('snapshot-list', copy.name, '--tree')).toBe(
      await virsh('snapshot-list', guest.name, '--tree'),
    );
    expect(await virsh('snapshot-current', copy.name, '--name')).toBe('s 2');
    const memory = lab.files(0).find(name => name.includes(result.domain_id) && name.endsWith('.memory'))!;
    const inside = await virsh('save-image-dumpxml', inPool(memory));
    expect(inside).toContain(`<name>${copy.name}</name>`);
    for (const path of Object.values(before.disks)) expect(inside).not.toContain(path);

    // the memory of "s 2" runs on fresh overlays over the layers that the state keeps
    const kept = [...inside.matchAll(/<source file='([^']+)'/g)].map(match => match[1]!);
    let dxml = inside;
    for (const path of kept) {
      const overlay = `${path}.reverted`;
      await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-b', path, '-F', 'qcow2', overlay]);
      dxml = dxml.replace(path, overlay);
    }
    writeFileSync(join(lab.world.dir, 'dxml'), dxml);
    await virsh('restore', inPool(memory), '--xml', join(lab.world.dir, 'dxml'), '--running');
    await copy.waitForAgent();
    expect((await copy.sh('ls /mnt/vda /mnt/vdb')).split(/\s+/).filter(name => name.length === 3)).toEqual([
      'one',
      'two',
      'one',
      'two',
    ]);
    await copy.destroy();
    for (const path of kept) rmSync(`${path}.reverted`);

    await copy.start();
    await copy.waitForAgent();
    expect(await copy.sh('cat /mnt/vda/three /mnt/vdb/one')).toBe('three\none\n');
    await virsh('snapshot-delete', copy.name, 's1');
    await virsh('snapshot-delete', copy.name, 's 2');
    expect(await copy.snapshots()).toEqual([]);
    expect(await copy.sh('cat /mnt/vda/one /mnt/vdb/three')).toBe('one\nthree\n');
    await copy.destroy();
    await guest.destroy();
  });

  test.each([
    ['packed again', 'true', 'tar'],
    ['without its manifest', 'rm ./*_manifest.json', 'tar'],
    ['without its manifest, as one stream of zstd', 'rm ./*_manifest.json', 'tar.zst'],
  ])('out of its backup %s by tar', async (what, change, ending) => {
    const guest = await lab.world.defineTiny({ dataDisks: [{ files: { hello: 'world' } }] });
    await virsh('snapshot-create-as', guest.name, 's1', '--disk-only');
    const { file } = await lab.backup(guest);
    const [home, filename] = [join(lab.world.dir, what), `${guest.name}-again.${ending}`];
    mkdirSync(home);
    const pack = `tar -xf ${file.path}; ${change}; tar -a -cf ${dirname(file.path)}/${filename} .`;
    await run(['bash', '-euc', `cd '${home}'; ${pack}`]);
    const judge = lab.dependencies.judge;
    lab.dependencies.judge = judgedAs('foreign');
    try {
      const again = { filename };
      await expect(lab.restore(again)).rejects.toMatchObject({ msgKey: 'archive_foreign' });
      const { result, operation } = await lab.restore(again, { allowForeign: true });
      expect(operation.warnings).toContainEqual(
        expect.stringMatching(ending === 'tar' && change === 'true' ? /packed again/ : /has no manifest/),
      );
      const copy = restored(result.name);
      expect(await virsh('snapshot-list', copy.name, '--name')).toContain('s1');
      const [before, after] = [(await guest.disks()).vda!, (await copy.disks()).vda!];
      expect(await sameContent(after, before)).toBe(true);
      expect(await fileInside(after, 'hello')).toBe('world');
    } finally {
      lab.dependencies.judge = judge;
    }
  });

  test('with a state inside the image, which can be reverted to', async () => {
    const path = await makePlainDisk(inPool(`${newId()}.qcow2`), { sizeBytes: 1 << 20 });
    const guest = await lab.world.defineTiny({ disks: [{ path }] });
    await run(['qemu-io', '-c', 'write -P 0x01 0 64k', path]);
    await virsh('snapshot-create-as', guest.name, 'inside');
    await run(['qemu-io', '-c', 'write -P 0x02 0 64k', path]);
    const { file } = await lab.backup(guest, { compress: true });
    const { result } = await lab.restore(file, { poolId: poolId(1) });
    const copy = result.disks[0]!.path;
    await run(['qemu-io', '-r', '-c', 'read -P 0x02 0 64k', copy]);
    await virsh('snapshot-revert', result.name, 'inside');
    await run(['qemu-io', '-r', '-c', 'read -P 0x01 0 64k', copy]);
    await virsh('snapshot-delete', result.name, 'inside');
    expect(await restored(result.name).snapshots()).toEqual([]);
  });

  test('from memory: running at once, or at its first start', async () => {
    const guest = await lab.world.defineTiny();
    await (await guest.start()).waitForAgent();
    await guest.sh(
      'echo kept > /tmp/in-memory-only; (sleep 1; killall qemu-ga; read go < /dev/ttyS0; qemu-ga -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -t /run) >/dev/null 2>&1 </dev/null &',
    );
    await guest.waitForNoAgent();
    const { file, manifest } = await lab.backup(guest, { compress: true });
    expect(manifest.states[0].consistency).toBe('memory');
    await guest.destroy();
    for (const startOn of [true, false]) {
      const { result, operation } = await lab.restore(file, { poolId: poolId(1), startOn });
      // its agent is not there for a while: whoever was started at once may have to keep the old time
      expect(operation.warnings.filter(text => !(startOn && text.includes("guest's clock")))).toEqual([]);
      const copy = restored(result.name);
      expect(await copy.state()).toBe(startOn ? 'running' : 'shut off');
      if (!startOn) await copy.start();
      await copy.typing('go\n', () => copy.waitForAgent());
      expect(await copy.sh('cat /tmp/in-memory-only')).toBe('kept\n');
      expect(lab.files(1).filter(name => name.endsWith('.memory'))).toEqual([]);
      await copy.destroy();
    }
  });
});

describe('in place of a lost VM', () => {
  test('name, uuid, MAC and paths as they were; refused while it exists, or while a path is taken', async () => {
    const guest = await lab.world.defineTiny({
      devices: "<interface type='user'><mac address='52:54:00:01:02:03'/></interface>",
    });
    const xml = await guest.xml(true);
    const { vda } = await guest.disks();
    const { file } = await lab.backup(guest);
    const keep = { keepIdentity: true };
    await expect(lab.restore(file, keep)).rejects.toMatchObject({ msgKey: 'identity_in_use' });
    await removeGuest(guest);
    await expect(lab.restore(file, keep)).rejects.toMatchObject({ msgKey: 'disk_path_in_use' });
    rmSync(vda!);
    const { result } = await lab.restore(file, keep);
    expect(result.disks[0]!.path).toBe(vda);
    const again = await restored(guest.name).xml(true);
    expect(deviceDifferences(xml, again)).toEqual([]);
    const identity = /<(name|uuid)>[^<]*<|<mac address='[^']*'|<source file='[^']*'/g;
    expect(again.match(identity)).toEqual(xml.match(identity));
  });

  test('a foreign file at a former path is not touched', async () => {
    const guest = await lab.world.defineTiny();
    const { vda } = await guest.disks();
    const { file } = await lab.backup(guest);
    await removeGuest(guest, vda!);
    writeFileSync(vda!, 'precious');
    await expect(lab.restore(file)).rejects.toMatchObject({ msgKey: 'disk_path_in_use' });
    expect(readFileSync(vda!, 'utf8')).toBe('precious');
    rmSync(vda!);
  });
});

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

  test("a LUN is attached when it is there, nobody on any node uses it, and it is the VM's or was asked for", async () => {
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
      await removeGuest(guest);
      await leftOut({}, 'it belongs to the original');
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
      const instead = await restore({ keepIdentity: true });
      expect(instead.warnings.join()).not.toContain(alias);
      expect(await restored(instead.name).xml(true)).toContain(alias);
      await removeGuest(restored(instead.name));
      const named = await restore({ luns: ['sdz'] });
      expect(await restored(named.name).xml(true)).toContain(alias);
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

  test.each(RESTORE_STEPS.flatMap(step => [`${step}.before`, `${step}.after`]))(
    'at %s leaves nothing',
    async where => {
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
    },
  );
});
