// A backup out of an OVA and of an OVF with its disks, and a VM out of that, by an agent that is killed and cancelled at each step.
import { execFileSync } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { openArchive } from '../../../agent/src/archive/index.ts';
import { CONVERT_STEPS } from '../../../agent/src/workflows/import/convert.ts';
import { AgentAlone, fileOf, INTERRUPTED, momentsOf } from '../../e2e/agent-alone.ts';
import { few } from '../../lab/few.ts';
import { Guest } from '../../lab/guest.ts';
import { definePool, type Pool } from '../../lab/node.ts';
import { SmallDisk } from '../../lab/small-disk.ts';
import { ovfOf } from './appliance-lab.ts';
import { ConvertLab, type DiskOf, manifestOf, ova, ovf } from './convert-lab.ts';

// data, a hole, and data again
const SYSTEM = Buffer.concat([randomBytes(9 * MiB), Buffer.alloc(12 * MiB), randomBytes(3 * MiB)]);
const DATA = Buffer.concat([Buffer.alloc(MiB), randomBytes(2 * MiB)]);
const RAW = 'http://example.com/raw';

let small: SmallDisk;
let alone: AgentAlone;
let tight: Pool;
let lab: ConvertLab;

const made = () => lab.made();
const put = (name: string, bytes: Buffer | string) => lab.put(name, bytes);
const imageOf = (bytes: Buffer, ...format: string[]) => lab.imageOf(bytes, ...format);
const convert = (filename: string, request: object = {}) => lab.convert(filename, request);
const rawOf = (path: string) => lab.rawOf(path);

beforeAll(async () => {
  small = await SmallDisk.mount(128);
  alone = await AgentAlone.start();
  tight = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(alone.world.node, tight);
  await alone.restart();
  lab = new ConvertLab(alone);
  const stream = imageOf(SYSTEM, 'vmdk', '-o', 'subformat=streamOptimized');
  const data = imageOf(DATA, 'vmdk', '-o', 'subformat=streamOptimized');
  const two: DiskOf[] = [
    { href: 'one.vmdk', bytes: SYSTEM.length },
    { href: 'two.vmdk', bytes: DATA.length },
  ];
  const text = ovf('shop', two);
  const whole = { 'shop.ovf': text, 'one.vmdk': stream, 'two.vmdk': data };
  const signed = { ...whole, 'shop.mf': manifestOf(whole) };
  put('shop.ova', ova(signed));
  put('packed.ova', gzipSync(ova(signed)));
  const twins = ovfOf({ name: 'shop', disks: [two[0]!] }, { name: 'mail', disks: [two[1]!] });
  put('twins.ova', ova({ 'twins.ovf': twins, 'one.vmdk': stream, 'two.vmdk': data }));
  put('bent.ova', ova({ ...signed, 'two.vmdk': imageOf(SYSTEM, 'vmdk', '-o', 'subformat=streamOptimized') }));
  put('cut.ova', ova(whole).subarray(0, -data.length));
  // beside each other: one as VHDX, one raw, packed and in pieces
  const vhdx = imageOf(SYSTEM, 'vhdx');
  const chunks = [DATA.subarray(0, MiB), DATA.subarray(MiB, 2 * MiB), DATA.subarray(2 * MiB)];
  put('one.vhdx', vhdx);
  for (const [index, chunk] of chunks.entries()) put(`two.img.00000000${index}`, chunk);
  put('three.vmdk.gz', gzipSync(data));
  put(
    'beside.ovf',
    ovf('beside', [
      { href: 'one.vhdx', bytes: SYSTEM.length, format: 'http://technet.microsoft.com/vhdx' },
      { href: 'two.img', bytes: DATA.length, more: `ovf:chunkSize="${MiB}"`, format: RAW },
      { href: 'three.vmdk.gz', bytes: DATA.length, more: 'ovf:compression="gzip"' },
    ]),
  );
  put('lacking.ovf', ovf('lacking', [{ href: 'nowhere.vmdk', bytes: SYSTEM.length }]));
  // an image that names a file of the host as its content
  const secret = join(alone.world.dir, 'secret');
  writeFileSync(secret, SYSTEM);
  const greedy = join(alone.world.dir, 'greedy.qcow2');
  execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-b', secret, '-F', 'raw', greedy]);
  put('greedy.qcow2', readFileSync(greedy));
  put('greedy.ovf', ovf('greedy', [{ href: 'greedy.qcow2', bytes: SYSTEM.length }]));
});
afterAll(async () => {
  await alone?.stop();
  await small?.unmount();
});
afterEach(() => lab.clear());

test.each([
  ['shop.ova', [SYSTEM, DATA], { hashSum: true }],
  ['shop.ova', [SYSTEM, DATA], { compress: true }],
  ['packed.ova', [SYSTEM, DATA], { virtio: true }],
  ['beside.ovf', [SYSTEM, DATA, DATA], {}],
])('%s becomes a backup, and that a VM with the same disks', async (filename, contents, request) => {
  const operation = await alone.heard(await convert(filename, request));
  const file = fileOf(operation);
  expect(made().filter(name => !name.endsWith('.sha256'))).toEqual([file.filename]);
  const archive = await openArchive(file.path, AbortSignal.timeout(60_000));
  expect(await archive.verify({ signal: AbortSignal.timeout(60_000) })).toMatchObject({ problems: [] });
  await archive.close();
  const restore = await alone.startRestore(file.filename, { domainId: newId(), allowForeign: true });
  const { name, disks } = resultOf(await alone.heard(restore), 'restore');
  const bus = 'virtio' in request ? 'vd' : 'sd';
  expect(disks.map(({ targetDev }) => targetDev)).toEqual(
    contents.map((_, index) => `${bus}${'abc'[index]}`),
  );
  for (const [index, { path }] of disks.entries()) expect(rawOf(path).equals(contents[index]!)).toBe(true);
  expect(await new Guest(alone.world.node, name).xml(true)).toContain("<driver name='qemu' type='qcow2'");
  await alone.world.node.virsh('undefine', name);
  for (const { path } of disks) rmSync(path);
});

test('what is restored of it lies where the backup does, as often as that is done, and wherever it was converted', async () => {
  const { filename } = fileOf(await alone.heard(await convert('shop.ova', { compress: true })));
  const restored = async (pool: Pool, name: string) => {
    const request = { file: { poolId: pool.uuid, filename: name }, allowForeign: true };
    const operation = await alone.heard(await alone.startRestore(name, request));
    const { domainId, disks, poolChanged } = resultOf(operation, 'restore');
    expect(poolChanged).toBe(false);
    expect(operation.warnings.join()).not.toContain('in no data pool');
    expect(disks.map(({ path }) => dirname(path))).toEqual([pool.path, pool.path]);
    return { domainId, disks };
  };
  const [other, own] = [0, 1].map(index => alone.world.node.pool(index)) as [Pool, Pool];
  const first = await restored(own, filename);
  const second = await restored(own, filename);
  const operationId = newId();
  const file = { poolId: own.uuid, filename };
  await alone.backups.recompress({ operationId, fileId: newId(), file, compress: false, poolId: other.uuid });
  const { path: moved } = fileOf(await alone.heard(operationId));
  const third = await restored(other, basename(moved));
  for (const { domainId, disks } of [first, second, third]) {
    await alone.world.node.virsh('undefine', domainId);
    for (const { path } of disks) rmSync(path);
  }
  rmSync(moved);
});

test('holes of the disks are holes of the backup', async () => {
  const sparse = Buffer.concat([randomBytes(MiB), Buffer.alloc(63 * MiB)]);
  put('holes.raw', sparse);
  put('holes.ovf', ovf('holes', [{ href: 'holes.raw', bytes: sparse.length, format: RAW }]));
  const file = fileOf(await alone.heard(await convert('holes.ovf')));
  expect(statSync(file.path).size).toBeLessThan(3 * MiB);
});

test.each([
  ['bent.ova', {}, 'hash_mismatch', /two\.vmdk/],
  ['cut.ova', {}, 'appliance_invalid', /cut off/],
  ['lacking.ovf', {}, 'ovf_disk_unusable', /"nowhere\.vmdk" is not there/],
  ['greedy.ovf', {}, 'foreign_disk_invalid', /greedy\.qcow2/],
  ['shop.ova', { system: 'other' }, 'ovf_system_unknown', /other/],
  ['shop.ova', { networks: { LAN: 'nowhere' } }, 'network_not_found', /nowhere/],
])('%s with %j is refused with %s, and nothing is left', async (filename, request, msgKey, detail) => {
  const operation = await alone.ended(await convert(filename, request));
  expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey } });
  expect(operation.error!.detail).toMatch(detail);
  expect(made()).toEqual([]);
});

describe('what stops it leaves nothing', () => {
  test.each(momentsOf(CONVERT_STEPS, 'copy.mid'))('kill -9 of the agent at %s', async moment => {
    const operation = await alone.killedAt(`convert_backup.${moment}`, () => convert('packed.ova'));
    expect(operation).toMatchObject(INTERRUPTED);
    expect(made()).toEqual([]);
  });

  // their images are read where they stand
  test.each(
    few(
      ['shop.ova', 'beside.ovf'].flatMap(file =>
        ['read.after', 'copy.mid', 'publish.after'].flatMap(at => [
          [file, false, at] as const,
          [file, true, at] as const,
        ]),
      ),
      ['shop.ova', false, 'copy.mid'],
      ['beside.ovf', true, 'copy.mid'],
    ),
  )('%s, compressed: %s: kill -9 of the agent at %s', async (filename, compress, moment) => {
    const operation = await alone.killedAt(`convert_backup.${moment}`, () => convert(filename, { compress }));
    expect(operation).toMatchObject(INTERRUPTED);
    expect(made()).toEqual([]);
  });

  /** The first archive has its name by then. */
  async function atSecondVm(then: string): Promise<string> {
    const first = 'convert_all.publish.after';
    const pause = alone.pauseFile(first);
    await alone.arm(`${first}=pause:${pause}`);
    const id = await convert('twins.ova', { all: true });
    await alone.whilePaused(pause, async () => {
      expect(made().filter(name => name.endsWith('.tar'))).toHaveLength(1);
      await alone.arm(then);
    });
    return id;
  }

  test.each(few(momentsOf(CONVERT_STEPS, 'copy.mid').slice(1), 'copy.mid', 'publish.after'))(
    'kill -9 of the agent at %s of the second VM of a file',
    async moment => {
      const id = await atSecondVm(`convert_all.${moment}=kill`);
      await alone.died();
      await alone.up();
      expect(await alone.ended(id)).toMatchObject(INTERRUPTED);
      expect(made()).toEqual([]);
    },
  );

  test.each(few(['read.after', 'copy.mid', 'publish.after'], 'copy.mid'))(
    'cancel at %s of the second VM of a file',
    async moment => {
      const point = `convert_all.${moment}`;
      const pause = alone.pauseFile(`second-${point}`);
      const id = await atSecondVm(`${point}=pause:${pause}`);
      await alone.whilePaused(pause, async () => {
        await alone.operations.cancel({ id });
      });
      expect((await alone.ended(id)).state).toBe(OperationState.CANCELED);
      await alone.arm('');
      expect(made()).toEqual([]);
    },
  );

  test.each(
    few(
      [
        'check.after',
        'read.before',
        'read.after',
        'copy.before',
        'copy.mid',
        'copy.after',
        'publish.before',
        'publish.after',
      ],
      'read.after',
      'copy.after',
    ),
  )('cancel at %s', async moment => {
    const operation = await alone.canceledAt(`convert_backup.${moment}`, () => convert('packed.ova'));
    expect(operation.state).toBe(OperationState.CANCELED);
    expect(made()).toEqual([]);
  });

  test('a disk that runs full at the second VM of a file', async () => {
    const point = 'convert_all.publish.after';
    const pause = alone.pauseFile(`full-${point}`);
    await alone.arm(`${point}=pause:${pause}`);
    const id = await convert('twins.ova', { all: true, poolId: tight.uuid });
    const left = join(small.path, 'backups');
    await alone.whilePaused(pause, async () => {
      expect(readdirSync(left).filter(name => name.endsWith('.tar'))).toHaveLength(1);
      await alone.arm('');
      small.fill(1);
    });
    const operation = await alone.ended(id);
    small.free();
    expect(operation.state).toBe(OperationState.FAILED);
    expect(operation.error!.msgKey).toMatch(/^(disk_full|pool_no_space)$/);
    expect(readdirSync(left)).toEqual([]);
  });

  test.each([
    ['packed.ova', 'check.after'],
    ['packed.ova', 'read.after'],
    // nothing of it is unpacked before
    ['shop.ova', 'read.after'],
  ] as const)('%s: a disk that runs full at %s', async (filename, moment) => {
    const point = `convert_backup.${moment}`;
    const pause = alone.pauseFile(`${filename}-${point}`);
    await alone.arm(`${point}=pause:${pause}`);
    const id = await convert(filename, { poolId: tight.uuid });
    await alone.whilePaused(pause, async () => small.fill(filename === 'packed.ova' ? 4 : 1));
    const operation = await alone.ended(id);
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'disk_full' } });
    await alone.arm('');
    const left = join(small.path, 'backups');
    expect(existsSync(left) ? readdirSync(left) : []).toEqual([]);
    small.free();
    await alone.heard(await convert(filename, { poolId: tight.uuid }));
    for (const name of readdirSync(left)) rmSync(join(left, name));
  });
});
