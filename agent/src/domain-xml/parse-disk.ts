import type { Element } from '@xmldom/xmldom';
import type { BackingLayer, DiskConfig, DiskDevice, NetworkSource } from './config.ts';
import { attr, child, children, pathAttr, text } from './dom.ts';

/** More layers than any sane chain has; libvirt itself refuses beyond 200. */
const MAX_CHAIN = 200;

/** One `<disk>`. @returns undefined for a disk without a target, which libvirt would refuse too */
export function parseDisk(disk: Element): DiskConfig | undefined {
  const targetDev = attr(child(disk, 'target'), 'dev');
  if (!targetDev) return undefined;
  const type = attr(disk, 'type') ?? 'file';
  const source = child(disk, 'source');
  const driver = child(disk, 'driver');
  const path = sourcePath(type, source);
  const volume = volumeOf(type, source);
  const network = networkOf(type, source);
  return {
    device: deviceOf(disk),
    type,
    ...(path ? { path } : {}),
    ...(volume ? { volume } : {}),
    ...(network ? { network } : {}),
    source: path ?? (volume ? `${volume.pool}/${volume.name}` : describeSource(type, source)),
    format: attr(driver, 'type'),
    targetDev,
    bus: attr(child(disk, 'target'), 'bus') ?? '',
    readonly: child(disk, 'readonly') !== undefined,
    shareable: child(disk, 'shareable') !== undefined,
    transient: child(disk, 'transient') !== undefined,
    cache: attr(driver, 'cache'),
    serial: text(disk, 'serial'),
    ...userAlias(disk),
    backingChain: backingChain(disk),
    sliced: source !== undefined && child(source, 'slices') !== undefined,
    encrypted:
      child(disk, 'encryption') !== undefined ||
      (source !== undefined && child(source, 'encryption') !== undefined),
  };
}

/** The file or device of a `<source>`, when its type has one. */
export function sourcePath(type: string, source: Element | undefined): string | undefined {
  if (type === 'file') return pathAttr(source, 'file');
  if (type === 'block') return pathAttr(source, 'dev');
  if (type === 'dir') return pathAttr(source, 'dir');
  return undefined;
}

/** libvirt's own aliases ("virtio-disk0") are made anew at each start and mean nothing. */
function userAlias(disk: Element): Pick<DiskConfig, 'alias'> {
  const alias = attr(child(disk, 'alias'), 'name');
  return alias?.startsWith('ua-') ? { alias } : {};
}

function deviceOf(disk: Element): DiskDevice {
  const device = attr(disk, 'device');
  return device === 'cdrom' || device === 'lun' || device === 'floppy' ? device : 'disk';
}

function volumeOf(type: string, source: Element | undefined): DiskConfig['volume'] {
  const [pool, name] = [attr(source, 'pool'), attr(source, 'volume')];
  return type === 'volume' && pool && name ? { pool, name } : undefined;
}

function networkOf(type: string, source: Element | undefined): NetworkSource | undefined {
  if (type !== 'network' || !source) return undefined;
  const host = child(source, 'host');
  const [name, port, socket] = ['name', 'port', 'socket'].map(key => attr(host, key));
  return {
    protocol: attr(source, 'protocol') ?? '',
    name: attr(source, 'name') ?? '',
    ...(host ? { host: { name, port, socket } } : {}),
  };
}

function describeSource(type: string, source: Element | undefined): string {
  if (!source || type !== 'network') return '';
  return `${attr(source, 'protocol') ?? 'network'}:${attr(source, 'name') ?? ''}`;
}

/** undefined: the XML does not say; []: it says that there is none (an empty `<backingStore/>`). */
function backingChain(disk: Element): BackingLayer[] | undefined {
  let store = child(disk, 'backingStore');
  if (!store) return undefined;
  const chain: BackingLayer[] = [];
  for (; store && chain.length < MAX_CHAIN; store = child(store, 'backingStore')) {
    if (children(store).length === 0) break;
    const type = attr(store, 'type') ?? 'file';
    const path = sourcePath(type, child(store, 'source'));
    chain.push({ type, ...(path ? { path } : {}) });
  }
  return chain;
}
