/** Disks from which firmware starts the tiny guest by itself, each with a file among its data. */
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { unpackedPackage } from './apt-files.ts';
import { makeDataDisk } from './disks.ts';
import { KERNEL_WORDS } from './domain-xml.ts';
import { run } from './run.ts';
import { tinyGuest } from './tiny-guest.ts';

export type Firmware = 'bios' | 'efi';

interface Partition {
  image: string;
  sizeMiB: number;
  type: number;
}

const LINUX = 0x83;
const EFI_SYSTEM = 0xef;
const BIOS_MIB = 47;
const EFI_MIB = 40;
const DATA_MIB = 16;
const SECTORS_OF_MIB = 2048;

/** On the kernel's command line: which disk it was started from. */
export const startedBy = (firmware: Firmware): string => `started_by=${firmware}`;

/**
 * A BIOS finds extlinux on the only partition. UEFI firmware finds systemd-boot at the place for a system that no variable names, on the
 * first partition; what Linux has is on the second one.
 * @param path of the raw image that is made
 * @param file what an ext4 file system of the disk has as `file`
 */
export async function makeBootDisk(path: string, firmware: Firmware, file: Buffer): Promise<void> {
  const work = mkdtempSync(`${path}.parts-`);
  try {
    if (firmware === 'efi') await joinParts(path, await efiPartitions(work, file));
    else await joinParts(path, [await biosPartition(work, file)], await biosProgram());
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

async function biosPartition(work: string, file: Buffer): Promise<Partition> {
  const { uefiKernel, initrd } = await tinyGuest();
  const extlinux = join(await unpackedPackage('extlinux'), 'usr/bin/extlinux');
  const image = join(work, 'system');
  const mounted = join(work, 'mounted');
  mkdirSync(mounted);
  await run(['truncate', '-s', `${BIOS_MIB}M`, image]);
  // extlinux reads no 64-bit block numbers
  await run(['mkfs.ext4', '-q', '-O', '^64bit,^metadata_csum', image]);
  await run(['mount', '-o', 'loop', image, mounted]);
  try {
    put(mounted, {
      vmlinuz: readFileSync(uefiKernel),
      initrd: readFileSync(initrd),
      file,
      'boot/extlinux.conf': `DEFAULT tiny
LABEL tiny
  LINUX /vmlinuz
  INITRD /initrd
  APPEND ${KERNEL_WORDS} ${startedBy('bios')}
`,
    });
    await run([extlinux, '--install', join(mounted, 'boot')]);
  } finally {
    await run(['umount', mounted]);
  }
  return { image, sizeMiB: BIOS_MIB, type: LINUX };
}

const biosProgram = async (): Promise<Buffer> =>
  readFileSync(join(await unpackedPackage('syslinux-common'), 'usr/lib/syslinux/mbr/mbr.bin'));

async function efiPartitions(work: string, file: Buffer): Promise<Partition[]> {
  const { uefiKernel, initrd } = await tinyGuest();
  const loader = join(
    await unpackedPackage('systemd-boot-efi'),
    'usr/lib/systemd/boot/efi/systemd-bootx64.efi',
  );
  const root = join(work, 'root');
  put(root, {
    'EFI/BOOT/BOOTX64.EFI': readFileSync(loader),
    'loader/loader.conf': 'timeout 0\n',
    'loader/entries/tiny.conf': `title tiny
linux /vmlinuz
initrd /initrd
options ${KERNEL_WORDS} ${startedBy('efi')}
`,
  });
  cpSync(uefiKernel, join(root, 'vmlinuz'));
  cpSync(initrd, join(root, 'initrd'));
  const system = { image: join(work, 'system'), sizeMiB: EFI_MIB, type: EFI_SYSTEM };
  await run(['truncate', '-s', `${EFI_MIB}M`, system.image]);
  await run(['mkfs.fat', system.image]);
  await run(['mcopy', '-s', '-i', system.image, 'EFI', 'loader', 'vmlinuz', 'initrd', '::'], { cwd: root });
  const data = { image: join(work, 'data'), sizeMiB: DATA_MIB, type: LINUX };
  await makeDataDisk(data.image, { format: 'raw', sizeMiB: DATA_MIB, files: { file } });
  return [system, data];
}

function put(root: string, files: Record<string, Buffer | string>): void {
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(root, name)), { recursive: true });
    writeFileSync(join(root, name), content);
  }
}

/** A disk with those partitions one after another. @param program that a BIOS starts */
async function joinParts(
  path: string,
  partitions: Partition[],
  program: Buffer = Buffer.alloc(0),
): Promise<void> {
  const record = Buffer.alloc(512);
  program.copy(record, 0, 0, 440);
  record.writeUInt16LE(0xaa55, 510);
  let atMiB = 1;
  const places = partitions.map(({ image, sizeMiB, type }, index) => {
    const entry = record.subarray(446 + 16 * index, 462 + 16 * index);
    // whether a BIOS starts from it; cylinders that tell nothing
    entry.set([index === 0 ? 0x80 : 0, 0xfe, 0xff, 0xff, type, 0xfe, 0xff, 0xff]);
    entry.writeUInt32LE(atMiB * SECTORS_OF_MIB, 8);
    entry.writeUInt32LE(sizeMiB * SECTORS_OF_MIB, 12);
    atMiB += sizeMiB;
    return { image, seek: atMiB - sizeMiB };
  });
  writeFileSync(path, record);
  await run(['truncate', '-s', `${atMiB}M`, path]);
  for (const { image, seek } of places) {
    const how = ['bs=1M', `seek=${seek}`, 'conv=notrunc,sparse', 'status=none'];
    await run(['dd', `if=${image}`, `of=${path}`, ...how]);
  }
}
