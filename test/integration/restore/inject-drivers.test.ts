// Drivers that virt-v2v puts into foreign VMs, by a stand-in of it: what it gets, what comes of its ends, and that nothing is left of one that is ended.
import { execFileSync } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { openArchive } from '../../../agent/src/archive/index.ts';
import { AgentAlone, fileOf, INTERRUPTED, lostAnswer } from '../../e2e/agent-alone.ts';
import { Guest } from '../../lab/guest.ts';
import { makeWorldDir } from '../../lab/paths.ts';
import { waitFor } from '../../lab/run.ts';
import { MARK, MARKED_BYTES, StandInV2v } from '../../lab/virt-v2v.ts';
import { imageOf, ovaOf, ovfOf, rawOf, STREAM, signed } from './appliance-lab.ts';

const SYSTEM = Buffer.concat([randomBytes(3 * MiB), Buffer.alloc(4 * MiB), randomBytes(MiB)]);
const DATA = Buffer.concat([Buffer.alloc(MiB), randomBytes(MiB)]);
const DRIVEN = [SYSTEM, DATA].map(bytes =>
  Buffer.concat([Buffer.alloc(MARKED_BYTES, MARK), bytes.subarray(MARKED_BYTES)]),
);
const ASKED = { virtio: true, injectDrivers: true };
const TOLD = 'Drivers: virt-v2v has put those of virtio into the guest.';

const { PATH } = process.env;
const dir = makeWorldDir();
let v2v: StandInV2v;
let alone: AgentAlone;
let before: ReturnType<typeof picture>;

const directory = () => join(alone.world.node.pool(1).path, 'backups');
const digest = (name: string) =>
  createHash('sha256')
    .update(readFileSync(join(directory(), name)))
    .digest('hex');

/** All that there is of files, whatever they are called, with the foreign ones as they are. */
const picture = () => ({
  files: [alone.files(0), alone.files(1)],
  foreign: ['shop.ova', 'twins.ova'].map(digest),
});
const domains = () => alone.world.node.virsh('list', '--all', '--name');

beforeAll(async () => {
  v2v = new StandInV2v(dir);
  process.env.PATH = v2v.path;
  alone = await AgentAlone.start();
  mkdirSync(directory(), { recursive: true });
  const files = {
    'one.vmdk': imageOf(alone.world.dir, SYSTEM, ...STREAM),
    'two.vmdk': imageOf(alone.world.dir, DATA, ...STREAM),
  };
  const disks = [
    { href: 'one.vmdk', bytes: SYSTEM.length },
    { href: 'two.vmdk', bytes: DATA.length },
  ];
  const put = (name: string, descriptor: string) =>
    writeFileSync(
      join(directory(), `${name}.ova`),
      ovaOf(signed(name, { [`${name}.ovf`]: descriptor, ...files })),
    );
  put('shop', ovfOf({ name: 'shop', disks }));
  writeFileSync(join(directory(), 'packed.ova'), gzipSync(readFileSync(join(directory(), 'shop.ova'))));
  put('twins', ovfOf({ name: 'twin', disks: [disks[0]!] }, { name: 'twin', disks: [disks[1]!] }));
  before = picture();
});
afterAll(async () => {
  process.env.PATH = PATH;
  rmSync(dir, { recursive: true });
  await alone?.stop();
});
afterEach(async () => {
  expect(v2v.running()).toEqual([]);
  expect(picture()).toEqual(before);
  expect((await domains()).trim()).toBe('');
});

type Begin = (filename: string, request?: object) => Promise<string>;

const convert: Begin = async (filename, request = {}) => {
  const operationId = newId();
  const file = { poolId: alone.world.node.pool(1).uuid, filename };
  await alone.backups.convert({ operationId, fileId: newId(), file, ...ASKED, ...request }).catch(lostAnswer);
  return operationId;
};
const restore: Begin = async (filename, request = {}) => {
  const operationId = newId();
  const file = { poolId: alone.world.node.pool(1).uuid, filename };
  await alone.restores
    .startAppliance({ operationId, file, domainId: newId(), ...ASKED, ...request })
    .catch(lostAnswer);
  return operationId;
};
const WAYS: [string, Begin][] = [
  ['a backup', convert],
  ['a VM', restore],
];

/** What a guest would see of the disks of a plain backup, in their order there. */
function disksIn(path: string): Buffer[] {
  const unpacked = join(dir, 'unpacked');
  mkdirSync(unpacked);
  execFileSync('tar', ['-C', unpacked, '--wildcards', '-xf', path, '*.qcow2', '--transform=s,.*/,,']);
  const disks = readdirSync(unpacked)
    .sort()
    .map(name => rawOf(alone.world.dir, join(unpacked, name)));
  rmSync(unpacked, { recursive: true });
  return disks;
}

const bySize = (buffers: Buffer[]) => buffers.toSorted((one, other) => other.length - one.length);

/** What the tool must get, and nothing else. */
function expectPrivate(images: RegExp[]): void {
  expect(v2v.seen('arguments')).toEqual(['-i libvirtxml --root single /run/virtkeep-v2v/guest.xml']);
  expect(v2v.seen('files')).toEqual([
    [...images.keys()]
      .map(n => `${n}.qcow2`)
      .join(' ')
      .concat(' guest.xml'),
  ]);
  expect(v2v.seen('interfaces')).toEqual(['lo']);
  const [, ...mounted] = v2v.seen('mounted');
  expect(mounted).toHaveLength(images.length);
  for (const [index, image] of images.entries()) {
    expect(mounted[index]).toMatch(image);
    expect(mounted[index]!.endsWith(` /run/virtkeep-v2v/${index}.qcow2`)).toBe(true);
  }
  const [definition] = v2v.seen('definition');
  expect(definition).not.toContain(alone.world.dir);
  expect(definition).not.toContain('shop');
  const variables = v2v.seen('variables')[0]!.split(' ');
  const own = ['HOME', 'LC_ALL', 'LIBGUESTFS_BACKEND', 'PATH', 'PWD'];
  expect(variables.filter(name => !/^(_|SUPERMIN_.*|LIBGUESTFS_BACKEND_SETTINGS)$/.test(name))).toEqual(own);
}

// what is packed stands in files of the operation's until it ends, beside the copies
test.each(['shop.ova', 'packed.ova'])(
  '%s: into copies for a backup, which is all that is there then',
  async source => {
    v2v.install('drive');
    const id = await convert(source);
    const operation = await alone.heard(id);
    expectPrivate([0, 1].map(n => new RegExp(`/backups/\\.virtkeep-${id}\\.0\\.v2v/${n}\\.qcow2 `)));
    expect(operation.warnings).toContain(TOLD);
    expect(operation.warnings).toContain('virt-v2v: the guest tools of a stand-in stay');
    expect(resultOf(operation, 'convertBackup').driversInjected).toBe(true);
    const { path, filename } = fileOf(operation);
    const archive = await openArchive(path, AbortSignal.timeout(60_000));
    expect(await archive.verify({ signal: AbortSignal.timeout(60_000) })).toMatchObject({ problems: [] });
    await archive.close();
    const disks = bySize(disksIn(path));
    for (const [index, bytes] of DRIVEN.entries()) expect(disks[index]!.equals(bytes)).toBe(true);
    expect(alone.files(1).filter(name => !before.files[1]!.includes(name))).toEqual([filename]);
    rmSync(path);
  },
);

test('into the new disks of a VM', async () => {
  v2v.install('drive');
  const operation = await alone.heard(await restore('shop.ova'));
  const [vm] = resultOf(operation, 'applianceRestore').domains;
  expect(vm).toMatchObject({ name: 'shop', driversInjected: true });
  expect(vm!.warnings).toContain(TOLD);
  expectPrivate(
    vm!.disks.map(({ path }) => new RegExp(`/${path.split('/').at(-1)!.replaceAll('.', '\\.')} `)),
  );
  for (const [index, { path }] of vm!.disks.entries())
    expect(rawOf(alone.world.dir, path).equals(DRIVEN[index]!)).toBe(true);
  expect(await new Guest(alone.world.node, 'shop').xml(true)).toContain("bus='virtio'");
  await alone.world.node.virsh('undefine', 'shop');
  for (const { path } of vm!.disks) rmSync(path);
});

test('into each VM of a file', async () => {
  v2v.install('drive');
  const { files } = resultOf(await alone.heard(await convert('twins.ova', { all: true })), 'convertAll');
  expect(v2v.seen('files')).toEqual(['0.qcow2 guest.xml', '0.qcow2 guest.xml']);
  expect(files).toHaveLength(2);
  for (const [index, { path }] of files.entries()) {
    expect(disksIn(path)[0]!.equals(DRIVEN[index]!)).toBe(true);
    rmSync(path);
  }
});

test('nobody who does not ask for it gets any', async () => {
  v2v.install('drive');
  const operation = await alone.heard(await convert('shop.ova', { injectDrivers: false }));
  expect(v2v.seen('arguments')).toEqual([]);
  expect(operation.warnings).not.toContain(TOLD);
  expect(operation.resultJson).not.toContain('drivers_injected');
  const { path } = fileOf(operation);
  const disks = bySize(disksIn(path));
  for (const [index, bytes] of [SYSTEM, DATA].entries()) expect(disks[index]!.equals(bytes)).toBe(true);
  rmSync(path);
});

describe.each(WAYS)('%s is not made', (_, begin) => {
  test('without virtio', async () => {
    v2v.install('drive');
    await expect(begin('shop.ova', { virtio: false })).rejects.toThrow(
      /"inject_drivers" and "virtio: false"/,
    );
  });

  test('where the tool is not installed, which is told at once', async () => {
    v2v.remove();
    const { state, error, progress } = await alone.ended(await begin('shop.ova'));
    expect({ state, error }).toMatchObject({
      state: OperationState.FAILED,
      error: { msgKey: 'tool_missing' },
    });
    expect(error!.detail).toMatch(/virt-v2v-in-place is not installed.*package virt-v2v /);
    expect(progress?.phase).toBe('check');
  });

  test.each([
    ['fail', /"shop": .*no root device found in this operating system image/],
    ['drive-none', /"shop": it has no drivers of virtio for this guest/],
  ] as const)('when the tool ends with %s', async (ending, detail) => {
    v2v.install(ending);
    const operation = await alone.ended(await begin('shop.ova'));
    expect(operation).toMatchObject({
      state: OperationState.FAILED,
      error: { msgKey: 'driver_injection_failed' },
    });
    expect(operation.error!.detail).toMatch(detail);
    expect(`${operation.error!.detail} ${operation.warnings.join()}`).not.toContain('hunter2');
    expect(alone.agent.daemon.log()).not.toContain('hunter2');
    if (ending === 'fail') expect(alone.agent.daemon.log()).toContain('no root device found');
  });

  test('when it is cancelled while the tool works', async () => {
    v2v.install('hang');
    const id = await begin('shop.ova');
    await waitFor('the tool', () => v2v.hangs, 120_000, 20);
    expect(v2v.running().length).toBeGreaterThan(1);
    await alone.operations.cancel({ id });
    expect((await alone.ended(id)).state).toBe(OperationState.CANCELED);
  });

  test('when the agent is killed while the tool works, which ends with it', async () => {
    v2v.install('hang');
    const id = await begin('shop.ova');
    await waitFor('the tool', () => v2v.hangs, 120_000, 20);
    await alone.agent.daemon.kill();
    await waitFor('the end of the tool', () => v2v.running().length === 0, 30_000, 20);
    await alone.up();
    expect(await alone.ended(id)).toMatchObject(INTERRUPTED);
  });

  test.each(['drivers.before', 'drivers.after'])('when the agent is killed at %s', async moment => {
    v2v.install('drive');
    const kind = begin === convert ? 'convert_backup' : 'appliance_restore';
    expect(await alone.killedAt(`${kind}.${moment}`, () => begin('shop.ova'))).toMatchObject(INTERRUPTED);
  });
});
