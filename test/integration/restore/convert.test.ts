// A backup out of an archive of Proxmox VE and a VM out of that, by an agent that is killed and cancelled at each step, and runs out of room.
import { execFileSync } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, afterEach, beforeAll, describe, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import { vma } from '../../../agent/src/appliance/vma/test-kit.ts';
import { openArchive } from '../../../agent/src/archive/index.ts';
import { CONVERT_STEPS } from '../../../agent/src/workflows/import/convert.ts';
import { AgentAlone, fileOf, INTERRUPTED, lostAnswer, momentsOf } from '../../e2e/agent-alone.ts';
import { few } from '../../lab/few.ts';
import { Guest } from '../../lab/guest.ts';
import { definePool, type Pool } from '../../lab/node.ts';
import { SmallDisk } from '../../lab/small-disk.ts';

const CONFIG = `boot: order=virtio0
cores: 1
memory: 256
name: mail
net0: virtio=BC:24:11:22:33:44,bridge=vmbr0
ostype: l26
scsi1: local-lvm:vm-100-disk-1,size=3M
scsihw: virtio-scsi-pci
virtio0: local-lvm:vm-100-disk-0,size=24M
#qmdump#map:virtio0:drive-virtio0:local-lvm:raw:
#qmdump#map:scsi1:drive-scsi1:local-lvm:raw:
`;
const EFI = `bios: ovmf
cores: 2
efidisk0: local-lvm:vm-1-disk-0,efitype=4m,pre-enrolled-keys=1,size=528K
machine: q35
memory: 512
name: win
ostype: win11
sata0: local-lvm:vm-1-disk-1,size=3M
tpmstate0: local-lvm:vm-1-disk-2,size=4M,version=v2.0
#qmdump#map:efidisk0:drive-efidisk0:local-lvm:raw:
#qmdump#map:sata0:drive-sata0:local-lvm:raw:
#qmdump#map:tpmstate0:drive-tpmstate0-backup:local-lvm:raw:
`;
// data, a hole, and data again up to an end inside of a cluster
const SYSTEM = Buffer.concat([randomBytes(9 * MiB), Buffer.alloc(12 * MiB), randomBytes(3 * MiB + 512 * 5)]);
const DATA = Buffer.concat([Buffer.alloc(MiB), randomBytes(2 * MiB)]);

let small: SmallDisk;
let alone: AgentAlone;
let tight: Pool;

beforeAll(async () => {
  small = await SmallDisk.mount(128);
  alone = await AgentAlone.start();
  tight = { name: 'small', uuid: randomUUID(), path: small.path };
  await definePool(alone.world.node, tight);
  await alone.restart();
  mkdirSync(directory(), { recursive: true });
  const devices = { 'drive-virtio0': SYSTEM, 'drive-scsi1': DATA };
  const archive = vma({ configs: { 'qemu-server.conf': CONFIG }, devices });
  const lzo = execFileSync('lzop', ['-c'], { input: archive, maxBuffer: 64 * MiB });
  const files = { 'a.vma': archive, 'a.vma.zst': zstdCompressSync(archive), 'a.vma.gz': gzipSync(archive) };
  const efi = vma({
    configs: { 'qemu-server.conf': EFI },
    devices: {
      'drive-efidisk0': Buffer.alloc(540_672, 1),
      'drive-tpmstate0-backup': DATA,
      'drive-sata0': DATA,
    },
  });
  writeFileSync(join(directory(), 'a.vma.efi.vma'), efi);
  for (const [name, bytes] of Object.entries({
    ...files,
    'a.vma.lzo': lzo,
    'cut.vma': archive.subarray(0, -9),
  }))
    writeFileSync(join(directory(), name), bytes);
});
afterAll(async () => {
  await alone?.stop();
  await small?.unmount();
});
afterEach(() => {
  for (const name of made()) rmSync(join(directory(), name));
});

const directory = () => join(alone.world.node.pool(1).path, 'backups');
/** All but the foreign files. */
const made = () => readdirSync(directory()).filter(name => !/^(a|cut)\.vma/.test(name));

async function convert(filename: string, request: object = {}): Promise<string> {
  const operationId = newId();
  const file = { poolId: alone.world.node.pool(1).uuid, filename };
  await alone.backups.convert({ operationId, fileId: newId(), file, ...request }).catch(lostAnswer);
  return operationId;
}

/** The bytes of an image as a guest sees them. */
function rawOf(path: string): Buffer {
  const raw = join(alone.world.dir, 'raw');
  execFileSync('qemu-img', ['convert', '-O', 'raw', path, raw]);
  return readFileSync(raw);
}

test.each([
  ['a.vma', { hashSum: true }],
  ['a.vma.zst', { compress: true }],
  ['a.vma.gz', { virtio: true }],
  ['a.vma.lzo', {}],
])('%s becomes a backup, and that a VM with the same disks', async (filename, request) => {
  const operation = await alone.heard(await convert(filename, request));
  const file = fileOf(operation);
  expect(file.filename).toBe(`mail_20231114T221320Z.tar${'compress' in request ? '.zst' : ''}`);
  expect(made().filter(name => !name.endsWith('.sha256'))).toEqual([file.filename]);
  expect(operation.warnings).toContainEqual(expect.stringContaining('Network "vmbr0"'));
  const archive = await openArchive(file.path, AbortSignal.timeout(60_000));
  expect(await archive.verify({ signal: AbortSignal.timeout(60_000) })).toMatchObject({ problems: [] });
  expect(archive.manifest).toMatchObject({
    vm: { name: 'mail' },
    incremental: false,
    states: [{ consistency: 'crash' }],
  });
  await archive.close();
  const shown = await alone.backups.show({
    file: { poolId: alone.world.node.pool(1).uuid, filename: file.filename },
  });
  expect(shown).toMatchObject({
    signature: { trust: 'foreign' },
    configuration: { name: 'mail', memoryCount: 256n },
  });

  await expect(alone.startRestore(file.filename)).rejects.toThrow(/Nobody vouches for the archive/);
  const restore = await alone.startRestore(file.filename, { domainId: newId(), allowForeign: true });
  const { name, disks } = resultOf(await alone.heard(restore), 'restore');
  const byBus = 'virtio' in request ? ['vda', 'vdb'] : ['vda', 'sda'];
  expect(disks.map(({ targetDev }) => targetDev)).toEqual(byBus);
  expect(disks.map(({ path }) => path)).toEqual(disks.map(({ id }) => expect.stringContaining(id)));
  expect(rawOf(disks[0]!.path).equals(SYSTEM)).toBe(true);
  expect(rawOf(disks[1]!.path).equals(DATA)).toBe(true);
  const guest = new Guest(alone.world.node, name);
  expect(await guest.xml(true)).toContain("<driver name='qemu' type='qcow2'");
  await alone.world.node.virsh('undefine', name);
  for (const { path } of disks) rmSync(path);
});

test('UEFI with secure boot and a TPM come back, both new', async () => {
  const file = fileOf(await alone.heard(await convert('a.vma.efi.vma')));
  const restore = await alone.startRestore(file.filename, { allowForeign: true });
  const operation = await alone.heard(restore);
  const { name, disks } = resultOf(operation, 'restore');
  const xml = await new Guest(alone.world.node, name).xml(true);
  expect(xml).toMatch(/<os firmware='efi'>[\s\S]*secure='yes'/);
  expect(xml).toContain("<tpm model='tpm-crb'>");
  expect(disks.map(({ targetDev }) => targetDev)).toEqual(['sda']);
  expect(rawOf(disks[0]!.path).equals(DATA)).toBe(true);
  await alone.world.node.virsh('undefine', name, '--nvram', '--tpm');
  rmSync(disks[0]!.path);
});

test('one that is cut off is refused, and nothing is left', async () => {
  const operation = await alone.ended(await convert('cut.vma'));
  expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'appliance_invalid' } });
  expect(operation.error!.detail).toMatch(/it ends inside extent \d+, at byte/);
  expect(made()).toEqual([]);
});

describe('what stops it leaves nothing', () => {
  test.each(few(momentsOf(CONVERT_STEPS, 'copy.mid'), 'read.after', 'copy.mid'))(
    'kill -9 of the agent at %s',
    async moment => {
      const operation = await alone.killedAt(`convert_backup.${moment}`, () => convert('a.vma.zst'));
      expect(operation).toMatchObject(INTERRUPTED);
      expect(made()).toEqual([]);
    },
  );

  test.each(
    few(
      ['check.after', 'read.before', 'read.after', 'copy.before', 'copy.after', 'publish.before'],
      'copy.after',
    ),
  )('cancel at %s', async moment => {
    const operation = await alone.canceledAt(`convert_backup.${moment}`, () => convert('a.vma'));
    expect(operation.state).toBe(OperationState.CANCELED);
    expect(made()).toEqual([]);
  });

  test.each(few(['check.after', 'read.after'], 'read.after'))('a disk that runs full at %s', async moment => {
    const point = `convert_backup.${moment}`;
    const pause = alone.pauseFile(point);
    await alone.arm(`${point}=pause:${pause}`);
    const id = await convert('a.vma', { poolId: tight.uuid });
    await alone.whilePaused(pause, async () => small.fill(4));
    const operation = await alone.ended(id);
    expect(operation).toMatchObject({ state: OperationState.FAILED, error: { msgKey: 'disk_full' } });
    await alone.arm('');
    const left = join(small.path, 'backups');
    expect(existsSync(left) ? readdirSync(left) : []).toEqual([]);
    const again = await alone.ended(await convert('a.vma', { poolId: tight.uuid }));
    expect(again.error).toMatchObject({ msgKey: 'pool_no_space' });
    small.free();
    await alone.heard(await convert('a.vma', { poolId: tight.uuid }));
    for (const name of readdirSync(left)) rmSync(join(left, name));
  });
});
