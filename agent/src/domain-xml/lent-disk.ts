/**
 * A disk of another domain in this one's definition: how it is written, and how it is recognised. It bears an alias of
 * its own, so that it is told from the domain's disks although the metadata is lost.
 */
import { DOMParser } from '@xmldom/xmldom';
import type { DiskConfig } from './config.ts';
import { childrenAt, remove } from './dom.ts';
import { editDomain } from './edit.ts';
import { type DomainMetadata, readMetadata } from './metadata.ts';
import { parseDisk } from './parse-disk.ts';
import { serializeXml } from './safe-xml.ts';

const ALIAS_PREFIX = 'ua-virtkeep-';
/** The longest serial that a virtio disk shows to its guest. */
const SERIAL_LENGTH = 20;

export interface LentDisk {
  /** Id of the original disk. */
  diskId: string;
  /** Absolute path of a frozen file or device, or of a clone. */
  path: string;
  /** "qcow2", "raw". */
  format: string;
  /** A block device. */
  block: boolean;
  targetDev: string;
}

/** The alias of the disk with that id. */
export function lentAlias(diskId: string): string {
  return `${ALIAS_PREFIX}${diskId.replaceAll('-', '')}`;
}

/** The original's id in an alias of ours; undefined for any other alias. */
export function lentDiskIdOf(alias: string | undefined): string | undefined {
  if (!alias?.startsWith(ALIAS_PREFIX)) return undefined;
  const hex = alias.slice(ALIAS_PREFIX.length);
  if (!/^[0-9a-f]{32}$/.test(hex)) return undefined;
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join('-');
}

/** Whether a disk is another domain's: by its alias, or by what the metadata says is attached. */
export function isLent(
  disk: Pick<DiskConfig, 'alias' | 'path' | 'readonly'>,
  { attachments }: Pick<DomainMetadata, 'attachments'>,
): boolean {
  if (lentDiskIdOf(disk.alias) !== undefined) return true;
  return disk.readonly && attachments.some(({ path }) => path === disk.path);
}

/**
 * The `<disk>`, for libvirt's attachDevice and detachDevice: read-only, bus virtio, cache none, whatever was asked
 * (specification 4.1). The chain below the file is left to libvirt, which reads it from the headers.
 */
export function lentDiskXml({ diskId, path, format, block, targetDev }: LentDisk): string {
  const document = new DOMParser().parseFromString('<disk/>', 'text/xml');
  const disk = document.documentElement!;
  const add = (name: string, attributes: Record<string, string>, content?: string) => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (content !== undefined) element.appendChild(document.createTextNode(content));
    disk.appendChild(element);
  };
  disk.setAttribute('type', block ? 'block' : 'file');
  disk.setAttribute('device', 'disk');
  add('driver', { name: 'qemu', type: format, cache: 'none', io: 'native' });
  add('source', { [block ? 'dev' : 'file']: path });
  add('target', { dev: targetDev, bus: 'virtio' });
  add('readonly', {});
  add('serial', {}, diskId.replaceAll('-', '').slice(0, SERIAL_LENGTH));
  add('alias', { name: lentAlias(diskId) });
  return serializeXml(disk);
}

/**
 * A definition without the disks of other domains, known by their aliases or by its own metadata: what a state, a clone
 * or an archive of the domain must not bring back.
 * @param isKept of one with this path: it is still attached
 * @throws VirtkeepError xml_invalid
 */
export function removeLentDisks(xml: string, isKept: (path: string) => boolean = () => false): string {
  return editDomain(xml, domain => {
    const metadata = readMetadata(domain);
    for (const element of childrenAt(domain, 'devices/disk')) {
      const disk = parseDisk(element);
      if (disk && isLent(disk, metadata) && !isKept(disk.path ?? '')) remove(element);
    }
  });
}
