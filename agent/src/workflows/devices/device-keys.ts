/**
 * Names of block devices and network disks that are the same on all nodes, so that nodes can ask each other who uses one.
 * A device has several; two are the same device when they share one.
 */
import { readdir, realpath } from 'node:fs/promises';
import { join, relative } from 'node:path';
import type { DiskConfig, NetworkSource } from '../../domain-xml/index.ts';

const DEVICES = '/dev';
/** Where they are, by what they are named after. */
const LINKS = ['by-id', 'by-path'];
const NBD_PORT = '10809';
/** Of devices that have no name of their own. */
const BY_PATH = 'path:';
/** Names of udev that tell what a device is, not where it is plugged in or how it is called. */
const IDENTITY = /^(wwn|scsi|nvme|ata|virtio|dm-uuid|md-uuid|usb)-/;

/** The path is that of a volume, too, as far as its pool is known. */
type DiskPlace = Pick<DiskConfig, 'type' | 'network'> & { path?: string | undefined };

/**
 * Empty for what is neither a block device nor a network disk. A device without a name of its own is known by its path:
 * two nodes that mean different devices by one path are then careful for nothing.
 * @param devices where udev keeps its links
 */
export async function deviceKeysOf(disk: DiskPlace, devices = DEVICES): Promise<string[]> {
  if (disk.network) return [networkKey(disk.network)];
  if (disk.path === undefined || !isDevice(disk)) return [];
  const real = await realpath(disk.path).catch(() => disk.path!);
  const links = await Promise.all(LINKS.map(kind => linksTo(real, join(devices, 'disk', kind))));
  // a link whose device is away still tells what it is
  const own = disk.path.startsWith(join(devices, 'disk/')) ? [disk.path.split('/').at(-1)!] : [];
  return blockKeys([...new Set([...own, ...links.flat()])], real);
}

const isDevice = ({ type, path }: DiskPlace): boolean =>
  type === 'block' || path?.startsWith('/dev/') === true;

/**
 * Whether a disk's device is away and its path tells only where it was: it may be any device that is asked for. Drives of
 * CDs and floppies are not meant.
 */
export async function isUnknownDevice(
  disk: DiskPlace & Pick<DiskConfig, 'device'>,
  devices = DEVICES,
): Promise<boolean> {
  if (disk.network || disk.path === undefined || !isDevice(disk)) return false;
  if (disk.device !== 'disk' && disk.device !== 'lun') return false;
  const isAway = await realpath(disk.path).then(
    () => false,
    () => true,
  );
  return isAway && (await deviceKeysOf(disk, devices)).every(key => key.startsWith(BY_PATH));
}

/** Names that no two devices have. The others are told by the maker of a device, and those of virtual machines are the same everywhere. */
const UNIQUE = /^(?:wwn:|iscsi:|nvme-(?:eui|uuid)\.|dm-uuid-LVM-|md-uuid-)/;

/** Whether a path says of itself which device it means, so that it means the same one on every node that has it. */
export function namesDevice(path: string, devices = DEVICES): boolean {
  const [kind, name, ...more] = relative(join(devices, 'disk'), path).split('/');
  if (kind === undefined || !LINKS.includes(kind) || name === undefined || more.length > 0) return false;
  return blockKeys([name], path).every(key => UNIQUE.test(key));
}

/** Whether what has this key may be a block device: of an iSCSI target the kernel may have made one. */
export const mayBeBlockDevice = (key: string): boolean =>
  key.startsWith(BY_PATH) || /^(wwn|iscsi):/.test(key) || IDENTITY.test(key);

/** Portals and monitors are left out: one target has several, and each node may name another. */
export function networkKey({ protocol, name, host }: NetworkSource): string {
  if (protocol === 'iscsi') return iscsiKey(name.split('/')[0]!, name.split('/')[1] ?? '0');
  if (protocol === 'rbd') return `rbd:${name}`;
  if (host?.socket !== undefined) return `${protocol}:${host.socket}/${name}`;
  const port = host?.port ?? (protocol === 'nbd' ? NBD_PORT : '');
  return `${protocol}:${(host?.name ?? '').toLowerCase()}:${port}/${name}`;
}

/**
 * @param names of the device's links below /dev/disk/by-id and by-path
 * @param real its path without links
 */
export function blockKeys(names: readonly string[], real: string): string[] {
  const keys = new Set<string>();
  for (const name of names) {
    const iscsi = /-iscsi-(.+)-lun-([0-9a-fx]+(?:-part[0-9]+)?)$/.exec(name);
    if (iscsi) keys.add(iscsiKey(iscsi[1]!, iscsi[2]!));
    else if (IDENTITY.test(name)) keys.add(worldWide(name));
  }
  return keys.size > 0 ? [...keys].sort() : [`${BY_PATH}${real}`];
}

/** The world wide name of a LUN is one, whether the node sees it by one path or by multipath. */
function worldWide(name: string): string {
  const found =
    /^(?:wwn-0x|scsi-3|dm-uuid-mpath-3|dm-uuid-(?:part[0-9]+-)?mpath-3)([0-9a-f]{16,32})(-part[0-9]+)?$/i.exec(
      name,
    );
  const part = found?.[2] ?? name.match(/^dm-uuid-(part[0-9]+)-mpath/)?.[1]?.replace(/^/, '-') ?? '';
  return found ? `wwn:${found[1]!.toLowerCase()}${part}` : name;
}

const iscsiKey = (target: string, lun: string): string => `iscsi:${target.toLowerCase()}/${lun}`;

async function linksTo(real: string, directory: string): Promise<string[]> {
  const names = await readdir(directory).catch(() => []);
  const found = await Promise.all(
    names.map(async name => ((await realpath(join(directory, name)).catch(() => '')) === real ? [name] : [])),
  );
  return found.flat();
}
