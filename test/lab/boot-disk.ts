/** A disk from which a BIOS starts the tiny guest: a partition with its kernel, and extlinux. */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { unpackedPackage } from './apt-files.ts';
import { run } from './run.ts';
import { tinyGuest } from './tiny-guest.ts';

const SIZE_MIB = 96;
const FIRST_SECTOR = 2048;
const CONFIG = `DEFAULT tiny
LABEL tiny
  LINUX /vmlinuz
  INITRD /initrd
  APPEND console=ttyS0 quiet
`;

/** @param path of the raw image that is made */
export async function makeBootDisk(path: string): Promise<void> {
  const { uefiKernel, initrd } = await tinyGuest();
  const extlinux = join(await unpackedPackage('extlinux'), 'usr/bin/extlinux');
  const mbr = join(await unpackedPackage('syslinux-common'), 'usr/lib/syslinux/mbr/mbr.bin');
  await run(['truncate', '-s', `${SIZE_MIB}M`, path]);
  const partition = `${path}.partition`;
  const mounted = mkdtempSync(`${path}.mounted-`);
  try {
    await run(['truncate', '-s', `${SIZE_MIB - 1}M`, partition]);
    // extlinux reads no 64-bit block numbers
    await run(['mkfs.ext4', '-q', '-O', '^64bit,^metadata_csum', partition]);
    await run(['mount', '-o', 'loop', partition, mounted]);
    try {
      mkdirSync(join(mounted, 'boot'));
      writeFileSync(join(mounted, 'vmlinuz'), readFileSync(uefiKernel));
      writeFileSync(join(mounted, 'initrd'), readFileSync(initrd));
      writeFileSync(join(mounted, 'boot/extlinux.conf'), CONFIG);
      await run([extlinux, '--install', join(mounted, 'boot')]);
    } finally {
      await run(['umount', mounted]);
    }
    await run([
      'dd',
      `if=${partition}`,
      `of=${path}`,
      'bs=1M',
      'seek=1',
      'conv=notrunc,sparse',
      'status=none',
    ]);
    const first = `${path}.mbr`;
    writeFileSync(first, bootRecord(readFileSync(mbr)));
    await run(['dd', `if=${first}`, `of=${path}`, 'conv=notrunc', 'status=none']);
    rmSync(first);
  } finally {
    rmSync(partition, { force: true });
    rmSync(mounted, { recursive: true, force: true });
  }
}

/** The first sector: the program, and one partition that it starts from. */
function bootRecord(program: Buffer): Buffer {
  const sector = Buffer.alloc(512);
  program.copy(sector, 0, 0, 440);
  const entry = sector.subarray(446, 462);
  // bootable, Linux; cylinders that tell nothing
  entry.set([0x80, 0xfe, 0xff, 0xff, 0x83, 0xfe, 0xff, 0xff]);
  entry.writeUInt32LE(FIRST_SECTOR, 8);
  entry.writeUInt32LE((SIZE_MIB - 1) * 2048, 12);
  sector.writeUInt16LE(0xaa55, 510);
  return sector;
}
