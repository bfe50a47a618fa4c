// VMs with their disks out of an OVA, an OVF and an archive of Proxmox VE, by an agent that is killed and cancelled at each step.
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { someContent, vma } from '../../../agent/src/appliance/vma/test-kit.ts';
import { APPLIANCE_RESTORE_STEPS } from '../../../agent/src/workflows/import/appliance-restore.ts';
import { AgentAlone, INTERRUPTED, lostAnswer, momentsOf } from '../../e2e/agent-alone.ts';
import { few } from '../../lab/few.ts';
import { Guest } from '../../lab/guest.ts';
import { definePool, type Pool } from '../../lab/node.ts';
import { SmallDisk } from '../../lab/small-disk.ts';
import { imageOf, ovaOf, ovfOf, rawOf, STREAM, signed } from './appliance-lab.ts';

// data, a hole, and data again
const SYSTEM = Buffer.concat([randomBytes(9 * MiB), Buffer.alloc(12 * MiB), randomBytes(3 * MiB)]);
const DATA = Buffer.concat([Buffer.alloc(MiB), randomBytes(2 * MiB)]);
/** What is in a drive is for the guest alone, whatever it looks like. */
const IMAGE = Buffer.concat([Buffer.from('QFI\xfb', 'latin1'), randomBytes(200_001)]);
const PROXMOX = 'name: mail\nmemory: 512\nostype: l26\nscsihw: virtio-scsi-pci\nscsi0: a:b\nide1: c:d\n';
const DEVICES = { 'drive-scsi0': someContent(1_048_576), 'drive-ide1': someContent(70_144, 3) };

let small: SmallDisk;
let alone: AgentAlone;
let tight: Pool;
let before: [string, string[], string[]];

const directory = () => join(alone.world.node.pool(1).path, 'backups');
const put = (name: string, bytes: Buffer | string) => writeFileSync(join(directory(), name), bytes);

beforeAll(async () => {
  small = await SmallDisk.mount(128);
  alone = await AgentAlone.start();
  tight = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(alone.world.node, tight);
  await alone.restart();
  mkdirSync(directory(), { recursive: true });
  const one = imageOf(alone.world.dir, SYSTEM, ...STREAM);
  const two = imageOf(alone.world.dir, DATA, ...STREAM);
  const disks = [
    { href: 'one.vmdk', bytes: SYSTEM.length },
    { href: 'two.vmdk', bytes: DATA.length },
  ];
  const shop = signed('shop', {
    'shop.ovf': ovfOf({ name: 'shop', disks }),
    'one.vmdk': one,
    'two.vmdk': two,
  });
  put('shop.ova', ovaOf(shop));
  put('packed.ova', gzipSync(ovaOf(shop)));
  put('bent.ova', ovaOf({ ...shop, 'two.vmdk': one }));
  const twins = ovfOf(
    { name: 'twin', disks: [disks[0]!], image: 'tools.iso' },
    { name: 'twin', disks: [disks[1]!], image: 'gone.iso' },
  );
  const content = { 'one.vmdk': one, 'two.vmdk': two, 'tools.iso': IMAGE };
  put('twins.ova', gzipSync(ovaOf(signed('twins', { 'twins.ovf': twins, ...content }))));
  // beside each other
  put('beside.vhdx', imageOf(alone.world.dir, SYSTEM, 'vhdx'));
  const beside = { href: 'beside.vhdx', bytes: SYSTEM.length, format: 'http://technet.microsoft.com/vhdx' };
  put('beside.ovf', ovfOf({ name: 'beside', disks: [beside] }));
  put('lacking.ovf', ovfOf({ name: 'lacking', disks: [{ href: 'nowhere.vmdk', bytes: SYSTEM.length }] }));
  put('mail.vma', vma({ configs: { 'qemu-server.conf': PROXMOX }, devices: DEVICES }));
  before = await picture();
});
afterAll(async () => {
  await alone?.stop();
  await small?.unmount();
});

const picture = async (): Promise<[string, string[], string[]]> => [
  await alone.world.node.virsh('list', '--all', '--name'),
  alone.files(1),
  readdirSync(small.path, { recursive: true }).map(String),
];

async function start(filename: string, request: object = {}): Promise<string> {
  const operationId = newId();
  const file = { poolId: alone.world.node.pool(1).uuid, filename };
  await alone.restores.startAppliance({ operationId, file, domainId: newId(), ...request }).catch(lostAnswer);
  return operationId;
}

const restored = async (filename: string, request: object = {}) =>
  resultOf(await alone.heard(await start(filename, request)), 'applianceRestore').domains;

/** Files that the VM's disks and drives show. */
const filesOf = async (name: string) =>
  Array.from(
    (await new Guest(alone.world.node, name).xml(true)).matchAll(/<source file='([^']+)'/g),
    ([, path]) => path!,
  );

async function drop({ name }: { name: string }): Promise<void> {
  const files = await filesOf(name);
  await alone.world.node.virsh('undefine', name, '--nvram');
  for (const path of files) rmSync(path);
}

test.each([
  ['shop.ova', 'shop', [SYSTEM, DATA], {}],
  ['packed.ova', 'web', [SYSTEM, DATA], { virtio: true, name: 'web' }],
  ['beside.ovf', 'beside', [SYSTEM], {}],
  ['mail.vma', 'mail', [DEVICES['drive-scsi0'], DEVICES['drive-ide1']], {}],
])(
  '%s becomes the VM %s with the same disks, in the pool of the file',
  async (filename, name, contents, request) => {
    const [vm, ...others] = await restored(filename, request);
    expect(others).toEqual([]);
    expect(vm).toMatchObject({ name, poolChanged: false });
    expect(vm!.disks).toHaveLength(contents.length);
    for (const [index, { path }] of vm!.disks.entries()) {
      expect(path.startsWith(`${alone.world.node.pool(1).path}/`)).toBe(true);
      const raw = rawOf(alone.world.dir, path);
      expect(raw.subarray(0, contents[index]!.length).equals(contents[index]!)).toBe(true);
    }
    const xml = await new Guest(alone.world.node, name).xml(true);
    for (const { path, targetDev } of vm!.disks) {
      expect(xml).toContain(`<source file='${path}'/>`);
      expect(xml).toContain(
        `<target dev='${targetDev}' bus='${'virtio' in request ? 'virtio' : targetDev.startsWith('hd') ? 'ide' : 'scsi'}'/>`,
      );
    }
    await drop(vm!);
    expect(await picture()).toEqual(before);
  },
);

test('into another pool, beside a VM of the same name; zeros take no room', async () => {
  const pool = alone.world.node.pool(0);
  const [first] = await restored('shop.ova');
  const [second] = await restored('shop.ova', { poolId: pool.uuid });
  expect([first!.name, second!.name]).toEqual(['shop', 'shop_restored']);
  expect(second!.disks.every(({ path, poolId }) => poolId === pool.uuid && path.startsWith(pool.path))).toBe(
    true,
  );
  expect(statSync(second!.disks[0]!.path).blocks * 512).toBeLessThan(14 * MiB);
  await drop(first!);
  await drop(second!);
});

test('each VM of a file, also when they have one name', async () => {
  const domains = await restored('twins.ova', { all: true });
  expect(domains.map(({ name }) => name)).toEqual(['twin', 'twin_restored']);
  for (const [index, content] of [SYSTEM, DATA].entries())
    expect(rawOf(alone.world.dir, domains[index]!.disks[0]!.path).equals(content)).toBe(true);
  const files = await Promise.all(domains.map(({ name }) => filesOf(name)));
  const images = files.map(paths => paths.filter(path => path.endsWith('.iso')));
  expect(images).toEqual([[expect.stringMatching(/\/tools_[^/]*\.iso$/)], []]);
  expect(readFileSync(images[0]![0]!).equals(IMAGE)).toBe(true);
  expect(domains.map(vm => vm.images)).toEqual(images.map(paths => ({ paths })));
  expect(domains[1]!.warnings).toContainEqual(
    expect.stringContaining('"gone.iso", the image of a drive, is not there'),
  );
  for (const vm of domains) await drop(vm);
  const [one] = await restored('twins.ova', { system: 'vm1' });
  expect(rawOf(alone.world.dir, one!.disks[0]!.path).equals(DATA)).toBe(true);
  await drop(one!);
  const [without] = await restored('twins.ova', { system: 'vm0', excludeIso: true });
  expect(without!.images).toEqual({ paths: [] });
  expect((await filesOf(without!.name)).filter(path => path.endsWith('.iso'))).toEqual([]);
  await drop(without!);
  expect(await picture()).toEqual(before);
});

test.each([
  ['bent.ova', {}, 'hash_mismatch', /two\.vmdk/],
  ['lacking.ovf', {}, 'ovf_disk_unusable', /"nowhere\.vmdk" is not there/],
  ['twins.ova', {}, 'ovf_system_ambiguous', /vm0/],
  ['twins.ova', { all: true, system: 'vm0' }, 'conflicting_fields', /all/],
  ['shop.ova', { networks: { LAN: 'nowhere' } }, 'network_not_found', /nowhere/],
  ['shop.ova', { name: 'a/b' }, 'invalid_name', /slash/],
])('%s with %j is refused with %s, and nothing is left', async (filename, request, msgKey, detail) => {
  const operation = await alone.ended(await start(filename, request));
  expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey } });
  expect(operation.error!.detail).toMatch(detail);
  expect(await picture()).toEqual(before);
});

test('a name that another VM gets meanwhile', async () => {
  const point = 'appliance_restore.disks.after';
  const pause = alone.pauseFile(point);
  await alone.arm(`${point}=pause:${pause}`);
  const id = await start('shop.ova', { name: 'taken' });
  const other = await alone.whilePaused(pause, () =>
    alone.world.defineTiny({ name: 'taken', idle: true }).then(() => {}),
  );
  expect(other).toBeUndefined();
  expect(await alone.ended(id)).toMatchObject({ error: { msgKey: 'name_in_use' } });
  await alone.arm('');
  expect(alone.files(1)).toEqual(before[1]);
  await alone.world.node.virsh('undefine', 'taken');
});

describe('what stops it leaves nothing', () => {
  test.each(momentsOf(APPLIANCE_RESTORE_STEPS, 'disks.mid'))('kill -9 of the agent at %s', async moment => {
    const operation = await alone.killedAt(`appliance_restore.${moment}`, () =>
      start('twins.ova', { all: true, startOn: true }),
    );
    expect(operation).toMatchObject(INTERRUPTED);
    expect(await picture()).toEqual(before);
  });

  // their images are read where they stand, or out of one stream
  test.each(
    few(
      ['shop.ova', 'beside.ovf', 'mail.vma'].flatMap(file =>
        ['read.after', 'disks.mid', 'define.after'].map(at => [file, at]),
      ),
      ['beside.ovf', 'disks.mid'],
      ['mail.vma', 'disks.mid'],
    ),
  )('%s: kill -9 of the agent at %s', async (filename, moment) => {
    const operation = await alone.killedAt(`appliance_restore.${moment}`, () => start(filename!));
    expect(operation).toMatchObject(INTERRUPTED);
    expect(await picture()).toEqual(before);
  });

  test.each(
    few(
      [
        'check.after',
        'read.after',
        'disks.before',
        'disks.mid',
        'disks.after',
        'define.after',
        'start.before',
        'start.after',
      ],
      'read.after',
      'define.after',
    ),
  )('cancel at %s', async moment => {
    const operation = await alone.canceledAt(`appliance_restore.${moment}`, () => start('packed.ova'));
    expect(operation.state).toBe(OperationState.CANCELED);
    expect(await picture()).toEqual(before);
  });

  test('libvirtd that is away when the VM is to be defined', async () => {
    const point = 'appliance_restore.disks.after';
    const pause = alone.pauseFile(`libvirtd-${point}`);
    await alone.arm(`${point}=pause:${pause}`);
    const id = await start('shop.ova');
    await alone.whilePaused(pause, () => alone.world.node.killLibvirtd());
    // its undo waits for libvirtd, since a domain might use the disks
    await alone.world.node.startLibvirtd();
    const operation = await alone.ended(id);
    await alone.arm('');
    if (operation.state === OperationState.SUCCEEDED)
      for (const vm of resultOf(operation, 'applianceRestore').domains) await drop(vm);
    expect(await picture()).toEqual(before);
  });

  test.each([
    ['packed.ova', 'check.after'],
    ['packed.ova', 'read.after'],
    // nothing of it is unpacked before
    ['shop.ova', 'read.after'],
  ] as const)('%s: a disk that runs full at %s', async (filename, moment) => {
    const point = `appliance_restore.${moment}`;
    const pause = alone.pauseFile(`${filename}-${point}`);
    await alone.arm(`${point}=pause:${pause}`);
    const id = await start(filename, { poolId: tight.uuid });
    await alone.whilePaused(pause, async () => small.fill(filename === 'packed.ova' ? 4 : 1));
    const operation = await alone.ended(id);
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'disk_full' } });
    await alone.arm('');
    small.free();
    const left = readdirSync(small.path).filter(name => /qcow2|backups/.test(name));
    expect(left.filter(name => name !== 'backups')).toEqual([]);
    expect(existsSync(join(small.path, 'backups')) ? readdirSync(join(small.path, 'backups')) : []).toEqual(
      [],
    );
  });
});
