import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import { gzipSync, zstdCompressSync } from 'node:zlib';
import { afterAll, describe, expect, test } from '@jest/globals';
import { MiB } from '@virtkeep/shared/units';
import { openVma } from '../index.ts';
import { invalid, scratch, signal } from '../test-kit.ts';
import { someContent, type VmaMaking, vma } from './test-kit.ts';

const dir = scratch();
afterAll(dir.remove);

const SYSTEM = someContent(5 * MiB + 512 * 3);
const OTHER = someContent(MiB, 9);
const CONFIGS = { 'qemu-server.conf': 'name: web\n', 'qemu-server.fw': '' };
const DEVICES = { 'drive-scsi0': SYSTEM, 'drive-virtio1': OTHER };

/** All of its disks as they come out, and the header. */
async function read(bytes: Buffer, own: AbortSignal = signal) {
  const path = dir.at('x.vma');
  await writeFile(path, bytes);
  const archive = await openVma(path, own);
  try {
    const { header, packing } = archive;
    const disks = new Map(
      header.devices.map(({ name, sizeBytes, isMemory }) => [name, Buffer.alloc(isMemory ? 0 : sizeBytes)]),
    );
    for await (const { device, offset, bytes: part } of archive.data()) {
      expect(offset + part.length).toBeLessThanOrEqual(device.sizeBytes);
      part.copy(disks.get(device.name)!, offset);
    }
    return { header, packing, disks };
  } finally {
    await archive.close();
  }
}

const refused = async (making: Partial<VmaMaking>, reason: RegExp, change = (bytes: Buffer) => bytes) =>
  await expect(read(change(vma({ configs: CONFIGS, devices: DEVICES, ...making })))).rejects.toEqual(
    invalid(reason),
  );

describe('what a writer writes', () => {
  const bytes = vma({ configs: CONFIGS, devices: DEVICES });
  const lzop = (input: Buffer) => execFileSync('lzop', ['-c'], { input, maxBuffer: 64 * MiB });
  const half = Math.floor(bytes.length / 2);

  test.each([
    ['plain', 'none', () => bytes],
    ['gzip', 'gzip', () => gzipSync(bytes)],
    ['zstd', 'zstd', () => zstdCompressSync(bytes)],
    [
      'zstd of several frames',
      'zstd',
      () =>
        Buffer.concat([zstdCompressSync(bytes.subarray(0, half)), zstdCompressSync(bytes.subarray(half))]),
    ],
    ['lzop', 'lzo', () => lzop(bytes)],
  ])('%s', async (_, packing, packed) => {
    const { header, disks, ...rest } = await read(packed());
    expect(rest.packing).toBe(packing);
    expect(header.created).toEqual(new Date(1_700_000_000_000));
    expect(header.configs.map(({ name, bytes: text }) => [name, text.toString()])).toEqual(
      Object.entries(CONFIGS),
    );
    expect(header.devices).toEqual([
      { id: 1, name: 'drive-scsi0', sizeBytes: SYSTEM.length, isMemory: false },
      { id: 2, name: 'drive-virtio1', sizeBytes: OTHER.length, isMemory: false },
    ]);
    expect(disks.get('drive-scsi0')!.equals(SYSTEM)).toBe(true);
    expect(disks.get('drive-virtio1')!.equals(OTHER)).toBe(true);
  });

  test.each([
    ['gzip', gzipSync],
    ['zstd', zstdCompressSync],
    ['lzop', lzop],
  ])('%s that was cut off is refused', async (_, pack) => {
    const packed = pack(bytes);
    await expect(read(packed.subarray(0, packed.length - 20))).rejects.toEqual(invalid(/./));
  });

  test('lzop on a node without that program is refused, which says so', async () => {
    const former = process.env.PATH;
    const packed = lzop(bytes);
    mkdirSync(dir.at('bin'));
    symlinkSync(execFileSync('which', ['prlimit'], { encoding: 'utf8' }).trim(), dir.at('bin/prlimit'));
    process.env.PATH = dir.at('bin');
    try {
      await expect(read(packed)).rejects.toEqual(invalid(/the program lzop is not installed on the node/));
    } finally {
      process.env.PATH = former;
    }
  });

  test('clusters in any order, and memory, which needs not fill its room', async () => {
    const made = vma({
      devices: { ...DEVICES, vmstate: someContent(MiB, 3) },
      order: slots => {
        const memory = slots.filter(({ device }) => device === 3).slice(0, 4);
        return [...slots.filter(({ device }) => device !== 3).reverse(), ...memory];
      },
    });
    await writeFile(dir.at('m.vma'), made);
    const archive = await openVma(dir.at('m.vma'), signal);
    let memory = 0;
    const disk = Buffer.alloc(SYSTEM.length);
    for await (const { device, offset, bytes: part } of archive.data()) {
      if (device.isMemory) memory += part.length;
      else if (device.id === 1) part.copy(disk, offset);
    }
    await archive.close();
    expect(disk.equals(SYSTEM)).toBe(true);
    expect(memory).toBeGreaterThan(0);
  });

  test('a cancel ends it', async () => {
    const aborter = new AbortController();
    await writeFile(dir.at('c.vma'), zstdCompressSync(bytes));
    const archive = await openVma(dir.at('c.vma'), aborter.signal);
    aborter.abort();
    await expect(archive.data().next()).rejects.toMatchObject({ msgKey: 'canceled' });
    await archive.close();
  });
});

describe('a header is refused', () => {
  const header = (change: (bytes: Buffer) => void, reason: RegExp) => refused({ header: change }, reason);

  test('that is none', () => refused({}, /no VMA/, () => Buffer.alloc(20_000)));
  test('that is empty', () => refused({}, /ends at byte 0/, () => Buffer.alloc(0)));
  test('that is cut off', () => refused({}, /ends at byte 12500/, bytes => bytes.subarray(0, 12_500)));
  test('of another version', () => header(bytes => bytes.writeUInt32BE(2, 4), /version 2/));
  test('that is damaged', () =>
    refused({}, /checksum of its header/, bytes => {
      bytes[12_300]! ^= 1;
      return bytes;
    }));
  test('of a size that no writer makes', () =>
    header(bytes => bytes.writeUInt32BE(0xffff_fe00, 56), /size of 4294966784/));
  test('whose blobs lie outside', () =>
    header(bytes => bytes.writeUInt32BE(9_999_999, 52), /bytes of blobs/));
  test('whose configuration points outside', () =>
    header(bytes => bytes.writeUInt32BE(7_777_777, 3068), /configuration 0 points to byte 7777777/));
  test('whose name has no end', () =>
    header(bytes => bytes.writeUInt32BE(bytes.readUInt32BE(3068), 2044), /configuration 0 has no name/));
  test('whose configurations are two of one name', () =>
    header(
      bytes => bytes.writeUInt32BE(bytes.readUInt32BE(2044), 2048),
      /two configurations "qemu-server.conf"/,
    ));
  test('whose devices are two of one name', () =>
    header(bytes => bytes.copy(bytes, 4096 + 64, 4096 + 32, 4096 + 36), /two devices "drive-scsi0"/));
  test('whose device is larger than any disk', () =>
    header(
      bytes => bytes.writeBigUInt64BE(2n ** 63n, 4096 + 40),
      /device "drive-scsi0" has 9223372036854775808/,
    ));
  test('whose device is no whole number of sectors', () =>
    header(bytes => bytes.writeBigUInt64BE(1000n, 4096 + 40), /has 1000 bytes/));
  test('without devices', () => header(bytes => bytes.fill(0, 4096 + 32, 4096 + 96), /no devices/));
});

describe('data is refused, by its extent', () => {
  const FIRST = '12800';
  test('that are a damaged header’s', () =>
    refused({}, new RegExp(`extent 1, at byte ${FIRST}: the checksum`), bytes => {
      bytes[12_800 + 100]! ^= 1;
      return bytes;
    }));
  test('of another archive', () =>
    refused({ extent: bytes => bytes.fill(7, 8, 24) }, /extent 1, .*another archive/));
  test('that is none', () =>
    refused(
      { extent: (bytes, index) => index === 1 && bytes.write('XXXX') },
      /extent 2, .*no extent begins/,
    ));
  test('that is cut off', () => refused({}, /it ends inside extent 2/, bytes => bytes.subarray(0, -10)));
  test('whose head is cut off', () =>
    refused({}, /it ends inside extent 1/, bytes => bytes.subarray(0, 12_900)));
  test('that comes twice', () =>
    refused({ order: slots => [...slots, slots[3]!] }, /extent 2, .*cluster 3 of "drive-scsi0" again/));
  test('that is missing', () =>
    refused(
      { order: slots => slots.filter(({ cluster }) => cluster !== 5) },
      /1 clusters of "drive-scsi0" missing, first 5/,
    ));
  test('that is missing altogether', () =>
    refused({ order: () => [] }, /81 clusters of "drive-scsi0" missing, first 0/));
  test('of a device that there is not', () =>
    refused({ order: ([slot]) => [{ ...slot!, device: 9 }] }, /device 9, which the header does not have/));
  test('beyond the device', () =>
    refused({ order: ([slot]) => [{ ...slot!, cluster: 81 }] }, /cluster 81 of "drive-scsi0", which has 81/));
  test('beyond the device in its last cluster', () =>
    refused(
      { order: slots => slots.map(slot => ({ ...slot, content: Buffer.alloc(65_536, 1) })) },
      /data beyond the end of "drive-scsi0"/,
    ));
  test('whose blocks are not those that are told', () =>
    refused({ extent: bytes => bytes.writeUInt16BE(1, 6) }, /tells 1 blocks and lists/));
  test('of memory out of order', () =>
    refused(
      { devices: { vmstate: OTHER, 'drive-ide0': OTHER }, order: slots => slots.slice(1) },
      /cluster 1 of "vmstate" out of order/,
    ));
});
