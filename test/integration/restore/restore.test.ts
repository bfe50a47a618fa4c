// A backup becomes a VM again: beside the original, or in place of one that is lost.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import type { Manifest } from '../../../agent/src/archive/index.ts';
import { judgedAs } from '../../../agent/src/archive/test-kit.ts';
import { deviceDifferences } from '../../../agent/src/domain-xml/compare.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
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

    await guest.destroy();
    await copy.start();
    await copy.waitForAgent();
    expect(await copy.sh('cat /mnt/vda/three /mnt/vdb/one')).toBe('three\none\n');
    await virsh('snapshot-delete', copy.name, 's1');
    await virsh('snapshot-delete', copy.name, 's 2');
    expect(await copy.snapshots()).toEqual([]);
    expect(await copy.sh('cat /mnt/vda/one /mnt/vdb/three')).toBe('one\nthree\n');
    await copy.destroy();
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
      'echo kept > /tmp/in-memory-only; (read die < /dev/ttyS0; killall qemu-ga; read go < /dev/ttyS0; qemu-ga -m virtio-serial -p /dev/virtio-ports/org.qemu.guest_agent.0 -t /run) >/dev/null 2>&1 </dev/null &',
    );
    await guest.typing('die\n', () => guest.waitForNoAgent());
    const { file, manifest } = await lab.backup(guest, { compress: true });
    expect(manifest.states[0].consistency).toBe('memory');
    await guest.destroy();
    for (const startOn of [true, false]) {
      const copy = restored(`resumed-${startOn}`);
      const restoring = lab.restore(file, { poolId: poolId(1), name: copy.name, startOn });
      if (!startOn) {
        await restoring;
        expect(await copy.state()).toBe('shut off');
        await copy.start();
      }
      const runs = () =>
        copy.state().then(
          state => state === 'running',
          () => false,
        );
      await waitFor('the guest to go on', runs, 180_000);
      const { operation } = await copy.typing('go\n', async () => {
        await copy.waitForAgent();
        return restoring;
      });
      expect(await copy.state()).toBe('running');
      // its agent is not there for a while: whoever was started at once may have to keep the old time
      expect(operation.warnings.filter(text => !(startOn && text.includes("guest's clock")))).toEqual([]);
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
