// A VM without disks out of a domain XML, an OVF descriptor and an archive of Proxmox VE in a pool's backups, by an agent that is killed and cancelled at each step.
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { tar, tarMember } from '../../../agent/src/appliance/test-kit.ts';
import { someContent, vma } from '../../../agent/src/appliance/vma/test-kit.ts';
import { DESCRIPTORS, descriptor, EFI, system } from '../../../agent/src/ovf/test-kit.ts';
import { CONFIG_RESTORE_STEPS } from '../../../agent/src/workflows/config-restore/config-restore.ts';
import { AgentAlone, INTERRUPTED, lostAnswer, momentsOf, type Picture } from '../../e2e/agent-alone.ts';
import { few } from '../../lab/few.ts';
import { Guest } from '../../lab/guest.ts';

const MAC = '52:54:00:aa:bb:cc';
const PROXMOX = `boot: order=scsi0
cores: 2
memory: 512
name: mail
net0: virtio=BC:24:11:22:33:44,bridge=vmbr0
ostype: l26
scsi0: local-lvm:vm-100-disk-0,size=1M
scsihw: virtio-scsi-pci
#qmdump#map:scsi0:drive-scsi0:local-lvm:raw:
`;

let alone: AgentAlone;
let guest: Guest;
let before: Picture;
let backups: string;

beforeAll(async () => {
  alone = await AgentAlone.start();
  const devices = `<interface type='user'><mac address='${MAC}'/></interface>`;
  guest = await alone.world.defineTiny({ name: 'web', idle: true, devices });
  backups = join(alone.world.node.pool(1).path, 'backups');
  mkdirSync(join(backups, 'appliance'), { recursive: true });
  writeFileSync(join(backups, 'web.xml'), await guest.xml(true));
  writeFileSync(join(backups, 'appliance', 'web.ovf'), DESCRIPTORS['vmware-bios-lsilogic']!);
  writeFileSync(join(backups, 'two.ovf'), DESCRIPTORS['cluster-of-two']!);
  writeFileSync(join(backups, 'broken.ovf'), '<Envelope/>');
  const image = tarMember('web-disk1.vmdk', Buffer.alloc(4096));
  const ova = tar(tarMember('web.ovf', Buffer.from(DESCRIPTORS['vmware-bios-lsilogic']!)), image);
  writeFileSync(join(backups, 'web.ova'), ova);
  writeFileSync(join(backups, 'packed.ova'), gzipSync(ova));
  const disk = { 'drive-scsi0': someContent(1_048_576) };
  const archive = vma({ configs: { 'qemu-server.conf': PROXMOX }, devices: disk });
  writeFileSync(join(backups, 'mail.vma.zst'), zstdCompressSync(archive));
  writeFileSync(join(backups, 'broken.vma'), archive.subarray(0, 5000));
  before = await alone.picture(guest);
});
afterAll(() => alone?.stop());

const fileOf = (filename: string) => ({ poolId: alone.world.node.pool(1).uuid, filename });

async function start(filename: string, request: object = {}): Promise<string> {
  const operationId = newId();
  await alone.restores
    .startConfig({ operationId, file: fileOf(filename), domainId: newId(), ...request })
    .catch(lostAnswer);
  return operationId;
}

async function restored(filename: string, request: object = {}) {
  const operation = await alone.heard(await start(filename, request));
  const { name } = resultOf(operation, 'configRestore');
  return { operation, name, xml: await new Guest(alone.world.node, name).xml(true) };
}

async function listed(thorough = false): Promise<BackupFile[]> {
  const operationId = newId();
  const poolId = alone.world.node.pool(1).uuid;
  await alone.pools.scan({ operationId, poolId, thorough });
  await alone.heard(operationId);
  return (await alone.pools.listFiles({ poolId })).files;
}

/** What a lost VM of that name has left, as libvirt names it inside and outside of the node. */
const variablesOf = (name: string, directory = '/var/lib/libvirt') =>
  join(directory, 'qemu', 'nvram', `${name}_VARS.fd`);

const undefine = (name: string) => alone.world.node.virsh('undefine', name, '--nvram');

test('a scan lists what lies there with the name of its VM, and what cannot be read with the reason', async () => {
  const files = await listed();
  const poolId = alone.world.node.pool(1).uuid;
  const listedAs = (filename: string, type: string, domainName: string) => {
    const path = join(backups, filename);
    // else its time would be rounded, not cut to whole milliseconds
    const { size, mtime } = statSync(path, { bigint: true });
    return { poolId, filename, path, type, domainName, size, created: mtime, damage: '' };
  };
  expect(files).toMatchObject([
    listedAs('appliance/web.ovf', 'OVF', 'web'),
    {
      filename: 'broken.ovf',
      type: 'OVF',
      domainName: '',
      damage: expect.stringContaining('another version'),
    },
    {
      filename: 'broken.vma',
      type: 'vma',
      damage: expect.stringContaining('its header ends at byte 5000'),
    },
    { ...listedAs('mail.vma.zst', 'vma', 'mail'), compressed: true, states: [] },
    // it is not unpacked for that
    listedAs('packed.ova', 'OVA', ''),
    listedAs('two.ovf', 'OVF', ''),
    listedAs('web.ova', 'OVA', 'web'),
    { ...listedAs('web.xml', 'xml', 'web'), domainId: await guest.uuid() },
  ]);
  const thorough = (await listed(true)).find(({ filename }) => filename === 'packed.ova');
  expect(thorough).toMatchObject({ domainName: 'web', damage: '' });
});

test.each(['web.ova', 'packed.ova'])(
  'the VM of %s is shown with its disks and what it would be',
  async name => {
    const shown = await alone.backups.show({ file: fileOf(name), target: { virtio: true, networks: {} } });
    expect(shown).toMatchObject({
      file: { filename: name, domainName: 'web', type: 'OVA' },
      configuration: {
        name: 'web',
        disks: [
          { targetDev: 'vda', targetBus: 'virtio', path: 'web-disk1.vmdk', size: 4096n, excluded: false },
        ],
      },
      systems: [{ id: 'vm1', name: 'web', cpuCount: 4, diskCount: 1 }],
      networks: ['LAN'],
    });
    expect(shown.configuration!.disks[0]!.virtualSize).toBe(8n * 2n ** 30n);
    expect(shown.xml).toContain("<target dev='vda' bus='virtio'/>".replaceAll("'", '"'));
  },
);

test('disks whose files are not there are named, and shown as left out', async () => {
  const shown = await alone.backups.show({ file: fileOf('appliance/web.ovf') });
  expect(shown.configuration!.disks).toMatchObject([{ path: 'web-disk1.vmdk', excluded: true, size: 0n }]);
  expect(shown.warnings).toContainEqual({
    key: 'missing',
    text: 'File "f1": "web-disk1.vmdk" is not there: what it holds does not come along until it is.',
  });
  const image = join(backups, 'appliance', 'web-disk1.vmdk');
  writeFileSync(image, Buffer.alloc(4096));
  const again = await alone.backups.show({ file: fileOf('appliance/web.ovf') });
  rmSync(image);
  expect(again.configuration!.disks).toMatchObject([
    { path: 'web-disk1.vmdk', excluded: false, size: 4096n },
  ]);
});

test('the VM of a domain XML is shown, with a warning of what it would lack', async () => {
  const shown = await alone.backups.show({ file: fileOf('web.xml') });
  expect(shown).toMatchObject({
    configuration: {
      domainId: await guest.uuid(),
      name: 'web',
      macs: [MAC],
      disks: [{ targetDev: 'vda', excluded: true }],
    },
    signature: { trust: 'foreign' },
  });
  expect(shown.warnings).toContainEqual({
    key: 'not_attached',
    text: expect.stringMatching(/^Disk vda: .*is not attached\.$/),
  });
});

describe('what is restored', () => {
  test('of a domain XML: a new VM beside the original, without its disks', async () => {
    const { name, xml, operation } = await restored('web.xml');
    expect(name).toBe('web_restored');
    expect(xml).not.toContain("device='disk'");
    expect(xml).not.toContain(MAC);
    expect(xml).not.toContain(await guest.uuid());
    expect(operation.warnings).toContainEqual(expect.stringMatching(/^Disk vda: .*is not attached\.$/));
    await undefine(name);
  });

  test('with addresses that stay, unless a VM has them', async () => {
    const taken = await restored('web.xml', { keepMacs: true, name: 'first' });
    expect(taken.xml).not.toContain(MAC);
    expect(taken.operation.warnings).toContainEqual(
      expect.stringContaining(`MAC address ${MAC}: A VM has it`),
    );
    const free = await restored('appliance/web.ovf', { keepMacs: true, name: 'second' });
    expect(free.xml).toContain('00:50:56:aa:bb:cc');
    for (const name of ['first', 'second']) await undefine(name);
  });

  test.each(['appliance/web.ovf', 'web.ova', 'packed.ova'])(
    'of %s: as show tells, but for disks',
    async file => {
      const shown = await alone.backups.show({ file: fileOf(file) });
      expect(shown).toMatchObject({
        configuration: { name: 'web', cpuCount: 4, memoryCount: 4096n },
        signature: { trust: 'foreign' },
      });
      const { name, xml, operation } = await restored(file);
      expect(name).toBe('web_restored');
      expect(xml).not.toContain("device='disk'");
      const told = shown.warnings.filter(({ key }) => key !== 'missing').map(({ text }) => text);
      expect(operation.warnings).toEqual(expect.arrayContaining(told));
      expect(operation.warnings).toContain('Disk "d1": The disk is not attached.');
      await undefine(name);
    },
  );

  test('of an archive of Proxmox VE: as show tells', async () => {
    const shown = await alone.backups.show({ file: fileOf('mail.vma.zst') });
    expect(shown).toMatchObject({
      configuration: {
        name: 'mail',
        cpuCount: 2,
        memoryCount: 512n,
        macs: ['bc:24:11:22:33:44'],
        disks: [{ id: 'drive-scsi0', targetBus: 'scsi', virtualSize: 1_048_576n, excluded: false }],
      },
      signature: { trust: 'foreign' },
    });
    const { name, xml, operation } = await restored('mail.vma.zst', { keepMacs: true });
    expect(name).toBe('mail');
    expect(xml).not.toContain("device='disk'");
    expect(xml).toContain('bc:24:11:22:33:44');
    expect(operation.warnings).toEqual(expect.arrayContaining(shown.warnings.map(({ text }) => text)));
    await undefine(name);
  });

  test('a network that the node has', async () => {
    const file = join(alone.world.dir, 'net.xml');
    writeFileSync(file, "<network><name>lan</name><forward mode='none'/></network>");
    await alone.world.node.virsh('net-define', file);
    const { name, xml } = await restored('appliance/web.ovf', { networks: { LAN: 'lan' } });
    expect(xml).toContain("<source network='lan'/>");
    await undefine(name);
    await alone.world.node.virsh('net-undefine', 'lan');
  });

  test('no network but those that the file names', async () => {
    const networks = { Lan: 'lan' };
    const { error } = await alone.ended(await start('appliance/web.ovf', { networks: { LAN: 'nope' } }));
    expect(error?.msgKey).toBe('network_not_found');
    const file = join(alone.world.dir, 'net.xml');
    writeFileSync(file, "<network><name>lan</name><forward mode='none'/></network>");
    await alone.world.node.virsh('net-define', file);
    for (const [name, has] of [
      ['appliance/web.ovf', '"LAN"'],
      ['web.xml', 'none'],
    ] as const) {
      const refused = await alone.ended(await start(name, { networks }));
      expect(refused.error).toMatchObject({ msgKey: 'network_not_in_file' });
      expect(refused.error?.detail).toContain(`Networks of its adapters: ${has}.`);
    }
    await alone.world.node.virsh('net-undefine', 'lan');
  });

  test('an adapter that was filtered, on a node without its bridge', async () => {
    const xml = readFileSync(join(backups, 'web.xml'), 'utf8');
    const bridged = "<interface type='bridge'><source bridge='br9'/><filterref filter='clean-traffic'/>";
    writeFileSync(join(backups, 'bridged.xml'), xml.replace("<interface type='user'>", bridged));
    const { name, xml: made } = await restored('bridged.xml');
    expect(made).not.toContain('br9');
    await undefine(name);
    rmSync(join(backups, 'bridged.xml'));
  });

  test('UEFI variables of its own, never those that another VM has left under its name', async () => {
    writeFileSync(join(backups, 'efi.ovf'), descriptor({ content: system({ name: 'efi', settings: EFI }) }));
    const left = variablesOf('efi', join(alone.world.node.dir, 'lib'));
    mkdirSync(dirname(left), { recursive: true });
    writeFileSync(left, 'of another');
    const canceled = await alone.canceledAt('config_restore.define.after', () => start('efi.ovf'));
    expect(canceled.state).toBe(OperationState.CANCELED);
    expect(readFileSync(left, 'utf8')).toBe('of another');
    const { name, xml } = await restored('efi.ovf');
    expect(name).toBe('efi');
    expect(xml).toContain(variablesOf(/<uuid>(.*)<\/uuid>/.exec(xml)![1]!));
    await undefine(name);
    expect(readFileSync(left, 'utf8')).toBe('of another');
    rmSync(left);
    // libvirt 9 finds them by the name, 11 writes their path into the definition
    const version = /daemon: (\d+)\./.exec(await alone.world.node.virsh('version', '--daemon'))![1];
    const present = /<nvram.*>(.*)<\/nvram>/.exec((await restored('efi.ovf')).xml)?.[1];
    expect(present).toBe(Number(version) < 11 ? undefined : variablesOf('efi'));
    await undefine('efi');
    rmSync(join(backups, 'efi.ovf'));
  });

  test('one VM of several, when it is named', async () => {
    const shown = await alone.backups.show({ file: fileOf('two.ovf') });
    expect(shown).toMatchObject({
      configuration: undefined,
      xml: '',
      warnings: [{ key: 'several_systems' }],
    });
    expect(shown.systems).toHaveLength(2);
    const { id: system } = shown.systems[0]!;
    expect(await alone.backups.show({ file: fileOf('two.ovf'), system })).toMatchObject({
      configuration: { disks: expect.anything() },
    });
    const operation = await alone.ended(await start('two.ovf'));
    expect(operation.error?.msgKey).toBe('ovf_system_ambiguous');
  });
});

test('what cannot be read is refused', async () => {
  await expect(alone.backups.show({ file: fileOf('broken.vma') })).rejects.toThrow(/header ends at byte/);
  await expect(alone.backups.show({ file: fileOf('broken.ovf') })).rejects.toThrow(/another version/);
});

describe.each(few(['web.xml', 'appliance/web.ovf', 'web.ova', 'mail.vma.zst'], 'web.xml', 'web.ova'))(
  '%s',
  filename => {
    test.each(momentsOf(CONFIG_RESTORE_STEPS))('kill -9 of the agent at %s', async moment => {
      const operation = await alone.killedAt(`config_restore.${moment}`, () => start(filename));
      expect(operation).toMatchObject(INTERRUPTED);
      expect(await alone.picture(guest)).toEqual(before);
    });

    test.each(['check.after', 'define.before', 'define.after'])('cancel at %s', async moment => {
      const operation = await alone.canceledAt(`config_restore.${moment}`, () => start(filename));
      expect(operation.state).toBe(OperationState.CANCELED);
      expect(await alone.picture(guest)).toEqual(before);
    });
  },
);
