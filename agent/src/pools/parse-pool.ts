import { cleanPath } from '@virtkeep/shared/clean-path';
import { attr, child, children, parseXml, text } from '../domain-xml/index.ts';

/** A storage pool's definition as libvirt has it. */
export interface PoolDefinition {
  id: string;
  name: string;
  /** libvirt's type: "dir", "fs", "netfs", "logical", "zfs", … */
  type: string;
  /** Target path: a directory, or where the devices appear. */
  path?: string | undefined;
  /** Volume group or zpool. */
  sourceName?: string | undefined;
  /** Format of the source: "nfs", "lvm2", "ext4", … */
  format?: string | undefined;
}

/** @throws VirtkeepError xml_invalid */
export function parsePool(xml: string, subject = 'a storage pool'): PoolDefinition {
  const { root } = parseXml(xml, 'pool', subject);
  const source = child(root, 'source');
  const path = text(root, 'target/path');
  return {
    id: text(root, 'uuid')?.toLowerCase() ?? '',
    name: text(root, 'name') ?? '',
    type: attr(root, 'type') ?? '',
    path: path && cleanPath(path),
    sourceName: source && text(source, 'name'),
    format: source && children(source, 'format').map(format => attr(format, 'type'))[0],
  };
}

/**
 * The product's word for a pool. libvirt does not tell thin or shared volume groups from others, so their names do:
 * a pool or group named `…thin…` or `…shared…`. All three are refused alike; the word is for people.
 * @param fsKind the network file system under a directory, when there is one (fs-kind.ts)
 */
export function poolKind(definition: PoolDefinition, fsKind?: string): string {
  const { type, format, name, sourceName = '' } = definition;
  if (type === 'dir' || type === 'fs') return fsKind ?? 'local';
  if (type === 'netfs') return format === undefined || format === 'auto' ? 'nfs' : format;
  if (type !== 'logical') return type;
  if (/shared/i.test(`${name} ${sourceName}`)) return 'lvm-shared';
  return /thin/i.test(`${name} ${sourceName}`) ? 'thinlvm' : 'lvm';
}

/** True for types that keep plain files in a directory. */
export function keepsFiles(type: string): boolean {
  return type === 'dir' || type === 'fs' || type === 'netfs';
}
