/** Packages as other hypervisors export them, made of bytes of the tests. */
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { tar, tarMember } from '../../../agent/src/appliance/test-kit.ts';
import {
  cpus,
  descriptor,
  disk,
  ide,
  item,
  memory,
  nic,
  scsi,
  system,
  VMDK,
} from '../../../agent/src/ovf/test-kit.ts';

export type Files = Record<string, Buffer | string>;

/** An image of those bytes. @param format of qemu-img, with its options */
export function imageOf(dir: string, bytes: Buffer, ...format: string[]): Buffer {
  const raw = join(dir, 'content');
  const made = `${raw}.image`;
  writeFileSync(raw, bytes);
  try {
    execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', ...format, raw, made]);
    return readFileSync(made);
  } finally {
    for (const path of [raw, made]) rmSync(path, { force: true });
  }
}

export const STREAM = ['vmdk', '-o', 'subformat=streamOptimized'];

/** The bytes of an image as a guest sees them. */
export function rawOf(dir: string, path: string): Buffer {
  const raw = join(dir, 'raw');
  execFileSync('qemu-img', ['convert', '-U', '-O', 'raw', path, raw]);
  try {
    return readFileSync(raw);
  } finally {
    rmSync(raw);
  }
}

/** A disk of a VM: where its image lies, and what the guest sees of it. */
export interface DiskOf {
  href: string;
  bytes: number;
  format?: string;
}

export interface VmOf {
  name: string;
  disks: DiskOf[];
  memoryMiB?: number;
  settings?: string;
  controller?: string;
  /** Name of the image in its drive. */
  image?: string;
}

/** A descriptor of one VM or several, each on a SCSI controller of VMware's and with one network adapter. */
export function ovfOf(...vms: VmOf[]): string {
  const disks = vms.flatMap((vm, at) => vm.disks.map((one, index) => ({ ...one, id: `${at}-${index}` })));
  const systems = vms.map((vm, at) => {
    const { name, memoryMiB = 256, settings = '', controller = 'VirtualSCSI' } = vm;
    const hung = vm.disks.map((_, index) => disk(4 + index, 3, index, `ovf:/disk/d${at}-${index}`)).join('');
    const drive =
      vm.image === undefined
        ? ''
        : ide(90) +
          item(15, { InstanceID: 91, Parent: 90, AddressOnParent: 0, HostResource: `ovf:/file/i${at}` });
    const items = cpus(1) + memory(memoryMiB) + scsi(3, controller) + hung + drive + nic(99, 'E1000');
    return system({ id: `vm${at}`, name, settings, items });
  });
  return descriptor({
    files: [
      ...disks.map(({ id, href }) => `<File ovf:id="f${id}" ovf:href="${href}"/>`),
      ...vms.map(({ image }, at) =>
        image === undefined ? '' : `<File ovf:id="i${at}" ovf:href="${image}"/>`,
      ),
    ].join(''),
    disks: disks
      .map(
        ({ id, bytes, format = VMDK }) =>
          `<Disk ovf:diskId="d${id}" ovf:fileRef="f${id}" ovf:capacity="${bytes}" ovf:format="${format}"/>`,
      )
      .join(''),
    content:
      systems.length === 1
        ? systems[0]!
        : `<VirtualSystemCollection ovf:id="all"><Info>all</Info>${systems.join('')}</VirtualSystemCollection>`,
  });
}

const sha256 = (bytes: Buffer | string) => createHash('sha256').update(bytes).digest('hex');

/** The files with a manifest of all of them. */
export const signed = (name: string, files: Files): Files => ({
  ...files,
  [`${name}.mf`]: Object.entries(files)
    .map(([file, bytes]) => `SHA256(${file})= ${sha256(bytes)}\n`)
    .join(''),
});

export const ovaOf = (files: Files): Buffer =>
  tar(...Object.entries(files).map(([name, bytes]) => tarMember(name, bytes as Buffer)));
