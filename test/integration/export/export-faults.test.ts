// An export that is killed or cancelled at each step, or finds its disk full, leaves nothing.
import { randomUUID } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { KiB, MiB } from '@virtkeep/shared/units';
import { EXPORT_STEPS } from '../../../agent/src/workflows/export/export.ts';
import { INTERRUPTED, momentsOf } from '../../e2e/agent-alone.ts';
import { few } from '../../lab/few.ts';
import type { Guest } from '../../lab/guest.ts';
import { definePool, type Pool } from '../../lab/node.ts';
import { SmallDisk } from '../../lab/small-disk.ts';
import { ExportLab } from './lab.ts';

let small: SmallDisk;
let lab: ExportLab;
let tight: Pool;
let guest: Guest;
let archive: string;
let packed: string;
let images: string[];
let before: string[];
let bytes: Buffer;

beforeAll(async () => {
  small = await SmallDisk.mount(64);
  lab = await ExportLab.start();
  const { world } = lab.alone;
  tight = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(world.node, tight);
  await lab.alone.restart();
  const iso = join(world.node.pool(0).path, 'tools.iso');
  writeFileSync(iso, Buffer.alloc(300 * KiB, 7));
  const disks = [
    await lab.image({ format: 'qcow2', sizeBytes: 12 * MiB }),
    await lab.image({ format: 'raw', sizeBytes: 3 * MiB }),
  ];
  images = [...disks, iso];
  guest = await lab.define(`<domain type='qemu'><name>shop</name><memory unit='MiB'>64</memory><vcpu>1</vcpu>
    <os><type arch='x86_64' machine='pc'>hvm</type></os><devices>
    <disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${disks[0]}'/>
      <target dev='vda' bus='virtio'/></disk>
    <disk type='file' device='disk'><driver name='qemu' type='raw'/><source file='${disks[1]}'/>
      <target dev='vdb' bus='virtio'/></disk>
    <disk type='file' device='cdrom'><driver name='qemu' type='raw'/><source file='${iso}'/>
      <target dev='hdc' bus='ide'/><readonly/></disk></devices></domain>`);
  archive = await lab.backup(guest, {});
  packed = await lab.backup(guest, { compress: true });
  before = lab.files();
  bytes = readFileSync(join(lab.directory, archive));
});
afterAll(async () => {
  if (guest) await lab.remove(guest, images);
  await lab?.alone.stop();
  await small?.unmount();
});

const start = (format: string, filename = packed) => lab.startExport(filename, { format });

function expectNothing(): void {
  expect(lab.files()).toEqual(before);
  expect(readFileSync(join(lab.directory, archive)).equals(bytes)).toBe(true);
}

test.each([
  ...momentsOf(EXPORT_STEPS, 'read.mid', 'copy.mid').map(moment => ['ova', moment]),
  ...few(['copy.mid', 'publish.after'], 'publish.after').flatMap(moment => [
    ['ovf', moment],
    ['qcow2', moment],
  ]),
])('%s: kill -9 of the agent at %s', async (format, moment) => {
  const operation = await lab.alone.killedAt(`export_backup.${moment}`, () => start(format!));
  expect(operation).toMatchObject(INTERRUPTED);
  expectNothing();
});

// its disks are read where they stand
test.each(few(['read.after', 'copy.mid', 'publish.after'], 'copy.mid'))(
  'of a plain archive: kill -9 of the agent, and cancel, at %s',
  async moment => {
    const point = `export_backup.${moment}`;
    const killed = await lab.alone.killedAt(point, () => start('ova', archive));
    expect(killed).toMatchObject(INTERRUPTED);
    expectNothing();
    const canceled = await lab.alone.canceledAt(point, () => start('ova', archive));
    expect(canceled.state).toBe(OperationState.CANCELED);
    expectNothing();
  },
);

test.each([
  ...few(
    ['check.after', 'read.mid', 'read.after', 'copy.mid', 'publish.before', 'publish.after'],
    'copy.mid',
  ).map(moment => ['ova', moment]),
  ...few(
    [
      ['ovf', 'copy.after'],
      ['qcow2', 'copy.mid'],
    ],
    ['ovf', 'copy.after'],
  ),
])('%s: cancel at %s', async (format, moment) => {
  const operation = await lab.alone.canceledAt(`export_backup.${moment}`, () => start(format!));
  expect(operation.state).toBe(OperationState.CANCELED);
  expectNothing();
});

test.each([
  ...few(['check.after', 'read.after'], 'read.after').map(moment => ['ova', moment, 'packed']),
  ['ovf', 'read.after', 'packed'],
  // its disks are read where they stand
  ['ova', 'read.after', 'plain'],
])('%s: a disk that runs full at %s, of what is %s', async (format, moment, kind) => {
  const point = `export_backup.${moment}`;
  const pause = lab.alone.pauseFile(`${kind}-${point}`);
  await lab.alone.arm(`${point}=pause:${pause}`);
  try {
    const filename = kind === 'plain' ? archive : packed;
    const id = await lab.startExport(filename, { format, poolId: tight.uuid });
    await lab.alone.whilePaused(pause, async () => small.fill(1));
    const operation = await lab.alone.ended(id);
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'disk_full' } });
  } finally {
    await lab.alone.arm('');
    small.free();
  }
  const left = join(small.path, 'backups');
  expect(existsSync(left) ? readdirSync(left) : []).toEqual([]);
});

test('a pool without room is refused before anything is read; with room it works there', async () => {
  small.fill(1);
  const operation = await lab.alone.ended(
    await lab.startExport(packed, { format: 'ova', poolId: tight.uuid }),
  );
  expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'pool_no_space' } });
  small.free();
  await lab.alone.heard(await lab.startExport(packed, { format: 'ova', poolId: tight.uuid }));
  const left = join(small.path, 'backups');
  expect(readdirSync(left)).toEqual([expect.stringMatching(/^shop_.*\.ova$/)]);
  for (const name of readdirSync(left)) rmSync(join(left, name));
});
