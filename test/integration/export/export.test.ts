// Which restore points are exported, what a package of qcow2 images is, and what is refused.
import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { fileOf } from '../../e2e/agent-alone.ts';
import { defineTemplate, startClone } from '../../e2e/faults-template-lab.ts';
import { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { fileInside } from '../archives/archive-tools.ts';
import { applianceIn, ExportLab, expectSame, expectStrict, unpacked } from './lab.ts';

let lab: ExportLab;
beforeAll(async () => {
  lab = await ExportLab.start();
});
afterAll(() => lab?.alone.stop());
afterEach(() => lab.clear());

const work = () => join(lab.alone.world.dir, 'unpacked');

async function failed(filename: string, request: object) {
  const operation = await lab.alone.ended(await lab.startExport(filename, request));
  expect(operation.state).toBe(OperationState.FAILED);
  return operation.error!;
}

/** A guest with a file on its disk, which each of the backups has another content of. */
async function grown(compress: boolean) {
  const guest = await lab.alone.world.defineTiny({ cmdline: 'quiet' });
  await (await guest.start()).waitForAgent();
  const write = (note: string) => guest.sh(`echo ${note} > /mnt/vda/note; sync`);
  await write('one');
  const { filename, id } = await lab.backedUp(guest, { canBeIncremental: true, compress });
  const extend = { poolId: lab.alone.world.node.pool(1).uuid, filename };
  for (const note of ['two', 'three']) {
    await write(note);
    await lab.backup(guest, { extend, extendFileId: id });
  }
  return { guest, filename };
}

test.each([false, true])(
  'each restore point of an archive that grew, compressed: %s; and a VM of it that starts',
  async compress => {
    const { guest, filename } = await grown(compress);
    for (const [index, note] of ['one', 'two', 'three'].entries()) {
      const exported = await lab.export(filename, {
        format: index === 1 ? 'ovf' : 'ova',
        state: String(index + 1),
      });
      const files = await unpacked(exported, work());
      expectStrict(files);
      const [, vmdk] = [...files].find(([name]) => name.endsWith('.vmdk'))!;
      const flat = join(lab.alone.world.dir, 'flat.qcow2');
      await run(['qemu-img', 'convert', '-f', 'vmdk', '-O', 'qcow2', vmdk, flat]);
      expect(await fileInside(flat, 'note')).toBe(`${note}\n`);
    }
    expect((await failed(filename, { format: 'ova', state: 'nope' })).msgKey).toBe('state_not_found');
    const newest = await lab.export(filename, { format: 'ova', name: 'newest' });
    const { guest: copy, paths } = await lab.back(newest, { virtio: true });
    expect([...paths.keys()]).toEqual(['vda']);
    // its kernel stays behind: that of the original starts it
    const xml = await copy.xml(true);
    const [, start] = /(<kernel>[\s\S]*<\/cmdline>)/.exec(await guest.xml(true))!;
    await lab.define(xml.replace(/<boot dev='hd'\/>/, `${start}`));
    await (await copy.start()).waitForAgent();
    expect((await copy.sh('cat /mnt/vda/note')).trim()).toBe('three');
    await lab.remove(copy, paths.values());
    const disks = await guest.disks();
    const chain = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', disks.vda!]);
    const layers = (JSON.parse(chain.stdout) as { filename: string }[]).map(layer => layer.filename);
    await lab.remove(guest, layers);
  },
);

test('qcow2 images with a definition that can be defined as it is', async () => {
  const guest = await lab.alone.world.defineTiny({
    devices: "<graphics type='vnc' passwd='geheim' port='-1' autoport='yes'/>",
    dataDisks: [{ files: { hello: 'world' } }, { format: 'raw' }],
  });
  const archive = await lab.backup(guest, { compress: true });
  const before = await guest.disks();
  await lab.alone.world.node.virsh('undefine', guest.name);
  const { filename, path, files } = await lab.export(archive, { format: 'qcow2', name: 'plain' });
  expect(filename).toBe('plain/plain.xml');
  expect(files.map(file => file.slice(path.length + 1))).toEqual([
    'plain.xml',
    `${guest.name}-vda.qcow2`,
    `${guest.name}-vdb.qcow2`,
  ]);
  expect(readFileSync(files[0]!, 'utf8')).not.toContain('geheim');
  const copy = await lab.define(readFileSync(files[0]!, 'utf8'));
  expect(await copy.disks()).toEqual({ vda: files[1], vdb: files[2] });
  await expectSame(files[1]!, 'qcow2', before.vda!, 'qcow2');
  await expectSame(files[2]!, 'qcow2', before.vdb!, 'raw');
  const small = await lab.export(archive, { format: 'qcow2', compress: true });
  await expectSame(small.files[1]!, 'qcow2', before.vda!, 'qcow2');
  expect(statSync(small.files[1]!).size).toBeLessThan(statSync(files[1]!).size);
  await lab.remove(copy, Object.values(before));
});

test('a VM with nothing but a name, and one with saved states', async () => {
  const bare =
    await lab.define(`<domain type='qemu'><name>пусто &amp; bare</name><memory unit='MiB'>64</memory>
    <vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os></domain>`);
  const name = 'пусто & bare';
  const guest = new Guest(lab.alone.world.node, name);
  const archive = await lab.backup(guest, {});
  const text = expectStrict(await unpacked(await lab.export(archive, { format: 'ova' }), work()));
  expect(applianceIn(text)).toMatchObject({ name, disks: [], nics: [], memoryMiB: 64 });
  expectStrict(await unpacked(await lab.export(archive, { format: 'ovf' }), work()));
  expect(bare.name).toBe('пусто &amp; bare');
  await lab.remove(guest);
  const stated = await lab.alone.world.defineTiny({ idle: true });
  await lab.alone.world.node.virsh('snapshot-create-as', stated.name, 's1', '--disk-only');
  const second = await lab.backup(stated, {});
  const { operation } = await lab.export(second, { format: 'ova' });
  expect(operation.warnings.join('\n')).toMatch(/Saved states stay behind.*"s1"/);
  const layers = Object.values(await stated.disks());
  await lab.alone.world.node.virsh('snapshot-delete', stated.name, 's1', '--metadata');
  const base = layers[0]!.replace(/\.s1$/, '.qcow2');
  await lab.remove(stated, [...layers, base].filter(existsSync));
});

test('a thin clone is exported with what its template has, and refused without it', async () => {
  const { world } = lab.alone;
  const template = await defineTemplate(lab.alone, { idle: true });
  const operationId = await startClone(lab.alone, template, { name: 'thin', thin: true });
  const { disks } = resultOf(await lab.alone.heard(operationId), 'cloneDomain');
  const clone = new Guest(world.node, 'thin');
  for (const compress of [false, true]) {
    const archive = await lab.backup(clone, { compress });
    const files = await unpacked(await lab.export(archive, { format: 'ova' }), work());
    const [, vmdk] = [...files].find(([name]) => name.endsWith('.vmdk'))!;
    await expectSame(vmdk, 'vmdk', (await template.disks()).vda!, 'qcow2');
  }
  const archive = await lab.backup(clone, {});
  await lab.remove(
    clone,
    disks.map(({ path }) => path),
  );
  await lab.remove(template, Object.values(await template.disks()));
  expect((await failed(archive, { format: 'ova' })).msgKey).toBe('template_missing');
});

test('what cannot be exported is refused, and leaves nothing', async () => {
  const guest = await lab.alone.world.defineTiny({ idle: true });
  const archive = await lab.backup(guest, {});
  const rest = lab.files();
  writeFileSync(join(lab.directory, 'taken.ova'), 'x');
  expect((await failed(archive, { format: 'ova', name: 'taken' })).msgKey).toBe('file_exists');
  expect((await failed(archive, { format: 'ova', name: 'taken.ova' })).msgKey).toBe('file_exists');
  expect(readFileSync(join(lab.directory, 'taken.ova'), 'utf8')).toBe('x');
  rmSync(join(lab.directory, 'taken.ova'));
  for (const [request, said] of [
    [{ format: 'vhd' }, 'must be ova, ovf, qcow2'],
    [{ format: 'ova', name: '../up' }, 'cannot be used'],
    [{ format: 'ova', name: '.hidden' }, 'cannot be used'],
    [{ format: 'ova', poolId: newId() }, 'pool'],
  ] as const)
    await expect(lab.startExport(archive, request)).rejects.toThrow(said);
  const exported = await lab.export(archive, { format: 'ova' });
  await expect(lab.startExport(exported.filename, { format: 'ova' })).rejects.toThrow('is of type OVA');
  // made of what came from elsewhere: nobody vouches for it
  const convert = newId();
  const file = { poolId: lab.alone.world.node.pool(1).uuid, filename: exported.filename };
  await lab.alone.backups.convert({ operationId: convert, fileId: newId(), file });
  const { filename: foreign } = fileOf(await lab.alone.heard(convert));
  expect((await failed(foreign, { format: 'ova' })).msgKey).toBe('archive_foreign');
  const { operation } = await lab.export(foreign, { format: 'ova', allowForeign: true });
  expect(operation.warnings[0]).toMatch(/Nobody vouches/);
  lab.clear([archive]);
  expect(lab.files()).toEqual(rest);
  await lab.remove(guest, Object.values(await guest.disks()));
  const encrypted = join(lab.alone.world.node.pool(0).path, 'luks.img');
  const secret = ['--object', 'secret,id=s,data=x'];
  const create = ['create', '-q', ...secret, '-f', 'luks', '-o', 'key-secret=s,iter-time=10', encrypted];
  // qemu-img measures how fast it hashes, and gives up when the machine has no time for it
  for (let tried = 1; ; tried += 1)
    try {
      await run(['qemu-img', ...create, String(4 * MiB)]);
      break;
    } catch (error) {
      if (tried === 10 || !String(error).includes('accurate CPU usage')) throw error;
    }
  const locked = await lab.define(`<domain type='qemu'><name>locked</name><memory unit='MiB'>64</memory>
    <vcpu>1</vcpu><os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='${encrypted}'>
      <encryption format='luks'><secret type='passphrase' uuid='${newId()}'/></encryption></source>
      <target dev='vda' bus='virtio'/></disk></devices></domain>`);
  const sealed = await lab.backup(locked, {});
  const error = await failed(sealed, { format: 'ova' });
  expect(error).toMatchObject({
    msgKey: 'export_unsupported',
    detail: expect.stringMatching(/vda is encrypted/),
  });
  await lab.remove(locked, [encrypted]);
});
