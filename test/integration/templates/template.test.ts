// Clones of every kind, on real libvirt: what they get, what they do not, and that a failure leaves nothing.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { sameContent } from '../archives/archive-tools.ts';
import { chainOf, checkImages, diskPath, inPool, scribble, scribbled, TemplateLab } from './lab.ts';

let templates: TemplateLab;
let template: Guest;

beforeAll(async () => {
  templates = await TemplateLab.start();
  template = await templates.lab.world.defineTiny({
    name: 'golden',
    dataDisks: [{ files: { hello: 'template' } }, { sizeMiB: 16 }],
  });
  await templates.mark(template, 3);
});
afterAll(() => templates?.stop());

const configOf = async (guest: Guest) => parseDomain(await guest.xml(true));

describe('thin clones', () => {
  test('stand on the template, name it with its version, and run', async () => {
    const { guest, result } = await templates.clone(template, { thin: true, description: 'first' });
    expect(result).toMatchObject({ name: 'golden_clone', warnings: [] });
    const { metadata, description, uuid } = await configOf(guest);
    expect(uuid).toBe(result.domain_id);
    expect(description).toBe('first');
    expect(metadata).toMatchObject({
      template: false,
      templateVersion: 0,
      parent: { id: await template.uuid(), version: 3 },
    });
    const [own, base] = await chainOf(await diskPath(guest));
    expect(base).toBe(await diskPath(template));
    expect(own).toContain(result.disks[0]!.id);
    expect(dirname(own!)).toBe(dirname(base!));
    await (await guest.start()).waitForAgent();
    expect(await guest.sh('cat /mnt/vda/hello')).toBe('template');
    await guest.sh('echo mine > /mnt/vda/own; sync');
    await guest.destroy();
    await checkImages(own!, base!);
  });

  test('have another uuid, name and MAC each', async () => {
    const { guest, result } = await templates.clone(template, { thin: true });
    expect(result.name).toBe('golden_clone_2');
    expect(await guest.uuid()).not.toBe(await template.uuid());
    await expect(templates.clone(template, { thin: true, name: 'golden' })).rejects.toMatchObject({
      msgKey: 'name_in_use',
    });
  });

  test('may lie in another pool', async () => {
    const { id } = { id: templates.lab.world.node.pool(1).uuid };
    const { guest } = await templates.clone(template, { thin: true, poolId: id });
    expect(dirname(await diskPath(guest))).toBe(templates.lab.world.node.pool(1).path);
    expect((await chainOf(await diskPath(guest)))[1]).toBe(await diskPath(template));
  });

  test('are made of templates only', async () => {
    const plain = await templates.lab.world.defineTiny({ name: 'plain' });
    await expect(templates.clone(plain, { thin: true })).rejects.toMatchObject({ msgKey: 'not_template' });
  });

  test('are not made of a template with saved states, or one that is a thin clone itself', async () => {
    const other = await templates.lab.world.defineTiny({ name: 'stated' });
    await templates.lab.world.node.virsh('snapshot-create-as', other.name, 's1', '--disk-only');
    await templates.mark(other);
    await expect(templates.clone(other, { thin: true })).rejects.toMatchObject({ msgKey: 'clone_refused' });
    const { guest: nested } = await templates.clone(template, { thin: true });
    await templates.mark(nested);
    await expect(templates.clone(nested, { thin: true })).rejects.toMatchObject({ msgKey: 'clone_refused' });
  });
});

describe('full clones', () => {
  test('of a thin clone stand on nothing', async () => {
    const { guest: thin } = await templates.clone(template, { thin: true });
    await scribble(await diskPath(thin, 'vdb'), 'thin');
    const { guest } = await templates.clone(thin, { name: 'independent' });
    const path = await diskPath(guest, 'vdb');
    expect(await chainOf(path)).toEqual([path]);
    expect(await scribbled(path, 4)).toBe('thin');
    expect(await sameContent(path, await diskPath(thin, 'vdb'))).toBe(true);
    expect((await templates.metadata(guest)).parent).toBeUndefined();
    await (await guest.start()).waitForAgent();
    await guest.destroy();
  });

  test('keep the image in the drive, firmware and TPM, and leave foreign disks and LUNs', async () => {
    const { world, dependencies } = templates.lab;
    const iso = inPool(templates.lab, 0, 'cd.iso');
    writeFileSync(iso, 'image');
    const lent = await makePlainDisk(inPool(templates.lab, 1, 'lent.qcow2'), { sizeBytes: 1024 * 1024 });
    const raw = await makePlainDisk(inPool(templates.lab, 0, 'data.raw'), {
      sizeBytes: 1024 * 1024,
      dataBytes: 5000,
      format: 'raw',
    });
    const rich = await world.defineTiny({
      name: 'rich',
      uefi: true,
      tpm: true,
      disks: [
        { path: raw, format: 'raw' },
        { path: iso, device: 'cdrom', target: 'sda' },
        { path: lent, readonly: true, target: 'vdc' },
        { path: '/dev/loop250', type: 'block', device: 'lun', bus: 'scsi', format: 'raw', target: 'sdb' },
      ],
      devices: `<interface type='user'><mac address='52:54:00:11:22:33'/></interface>
        <hostdev mode='subsystem' type='mdev' model='vfio-pci'>
          <source><address uuid='11111111-2222-4333-8444-555555555555'/></source></hostdev>`,
      metadata: `<virtkeep:domain xmlns:virtkeep='urn:virtkeep:domain:1' template='yes' version='2'>
        <virtkeep:attachment disk='11111111-2222-4333-8444-555555555555' attached='11111111-2222-4333-8444-555555555556'
          owner='11111111-2222-4333-8444-555555555557' target='vdc' path='${lent}'/></virtkeep:domain>`,
    });
    const original = await configOf(rich);
    mkdirSync(dirname(original.nvram!.path!), { recursive: true });
    writeFileSync(original.nvram!.path!, 'variables');
    mkdirSync(join(dependencies.swtpmDirectory, original.uuid, 'tpm2'), { recursive: true });
    writeFileSync(join(dependencies.swtpmDirectory, original.uuid, 'tpm2', 'state'), 'secrets');
    const { guest, result, operation } = await templates.clone(rich, { name: 'poor' });
    const { uuid, disks, interfaces, hostdevs, metadata, nvram } = await configOf(guest);
    expect(disks.map(disk => [disk.targetDev, disk.device])).toEqual([
      ['vda', 'disk'],
      ['sda', 'cdrom'],
    ]);
    expect(disks.find(disk => disk.device === 'cdrom')!.path).toBe(iso);
    expect(hostdevs).toEqual([]);
    expect(nvram!.path).not.toBe(original.nvram!.path);
    expect(readFileSync(nvram!.path!, 'utf8')).toBe('variables');
    expect(readFileSync(join(dependencies.swtpmDirectory, uuid, 'tpm2', 'state'), 'utf8')).toBe('secrets');
    expect(interfaces[0]!.mac).not.toBe('52:54:00:11:22:33');
    expect(metadata).toMatchObject({ template: false, attachments: [] });
    expect(result.warnings).toHaveLength(3);
    expect(operation.warnings).toEqual(result.warnings);
    const own = disks[0]!;
    expect(own.format).toBe('raw');
    expect((await run(['cmp', raw, own.path!])).stdout).toBe('');
  });

  test('are refused while the original runs', async () => {
    const runs = await (await templates.lab.world.defineTiny({ name: 'runs' })).start();
    await expect(templates.clone(runs)).rejects.toMatchObject({ msgKey: 'power_state_conflict' });
    await runs.destroy();
  });
});

test.each(['copy.before', 'copy.after', 'define.before', 'define.after'])(
  'a failure at %s leaves nothing',
  async moment => {
    const files = [0, 1].map(pool => templates.lab.files(pool));
    const domains = await templates.lab.world.node.virsh('list', '--all', '--name');
    templates.lab.inject(`clone_domain.${moment}=fail`);
    for (const thin of [true, false])
      await expect(templates.clone(template, { thin })).rejects.toMatchObject({ msgKey: 'io_failed' });
    templates.lab.inject('');
    expect([0, 1].map(pool => templates.lab.files(pool))).toEqual(files);
    expect(await templates.lab.world.node.virsh('list', '--all', '--name')).toBe(domains);
    expect(existsSync(await diskPath(template))).toBe(true);
  },
);
