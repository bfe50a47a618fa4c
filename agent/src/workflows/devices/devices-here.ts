/** Which devices the VMs of this node use, or may use where they cannot be read. */
import { realpath } from 'node:fs/promises';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { type DiskConfig, mentionedIn } from '../../domain-xml/index.ts';
import { definitionsOf } from '../../images/index.ts';
import { type PoolRecord, pathOf, pathOfVolume } from '../../pools/index.ts';
import { deviceKeysOf, isUnknownDevice } from './device-keys.ts';

/** What the text of a VM that cannot be read tells of its devices. */
export interface UnreadText {
  domainName: string;
  text: string;
  /** Names of the devices whose paths stand in it. */
  names: ReadonlySet<string>;
  /** A device stands in it that is away, so it may be any. */
  isAnyDevice: boolean;
}

export interface DevicesHere {
  /** By whom what is used, in the live and inactive definitions of all domains of the node and in their saved states. */
  used: ReadonlyMap<string, string>;
  unread: readonly UnreadText[];
}

/** @throws LibvirtError */
export async function devicesHere(libvirt: Libvirt, pools: readonly PoolRecord[]): Promise<DevicesHere> {
  const used = new Map<string, string>();
  const unread: UnreadText[] = [];
  for (const domain of await libvirt.domains())
    for (const found of await definitionsOf(domain)) {
      if (found.unread) unread.push(await unreadText(domain, found.unread.xml, pools));
      for (const disk of found.config?.disks ?? [])
        for (const name of await deviceNamesOf(disk, pools)) used.set(name, domain.name);
    }
  return { used, unread };
}

async function unreadText({ name }: Domain, xml: string, pools: readonly PoolRecord[]): Promise<UnreadText> {
  const { paths, volumes } = mentionedIn(xml);
  const ofVolumes = volumes.flatMap(({ pool, volume }) => pathOfVolume(pool, volume, pools) ?? []);
  const names = new Set<string>();
  let isAnyDevice = ofVolumes.length < volumes.length;
  for (const path of [...paths, ...ofVolumes]) {
    if (path.startsWith('/dev/pts/')) continue;
    const disk = { type: 'file', device: 'disk', path } as const;
    isAnyDevice ||= await isUnknownDevice(disk);
    for (const key of [await realName(path), ...(await deviceKeysOf(disk))]) names.add(key);
  }
  return { domainName: name, text: xml.toLowerCase(), names, isAnyDevice };
}

/** Whether a device of one of these names may stand in that text. Pure. */
export function mayName({ text, names, isAnyDevice }: UnreadText, devices: readonly string[]): boolean {
  if (isAnyDevice) return true;
  return devices.some(device => {
    const own = ownName(device).toLowerCase();
    // as references some are written in other ways than here
    return names.has(device) || /[&<>"']/.test(own) || text.includes(own);
  });
}

/** What any text that names the device has in it: neither its kind nor where it is reached, and of an iSCSI target no LUN. */
function ownName(device: string): string {
  const [kind = ''] = device.split(':', 1);
  const rest = device.slice(kind.length + 1);
  if (kind === 'iscsi') return rest.split('/')[0]!;
  if (kind === 'rbd' || kind === 'path') return rest;
  if (kind === 'wwn') return rest.replace(/-part[0-9]+$/, '');
  return rest === '' ? device : rest.slice(rest.lastIndexOf('/') + 1);
}

/** What a disk stands on: names that are the same on all nodes, or the path. */
export async function deviceNamesOf(disk: DiskConfig, pools: readonly PoolRecord[]): Promise<string[]> {
  const path = pathOf(disk, pools);
  const keys = await deviceKeysOf({ ...disk, ...(path === undefined ? {} : { path }) });
  if (keys.length > 0 || path === undefined) return keys;
  return [await realName(path)];
}

const realName = async (path: string): Promise<string> => `path:${await realpath(path).catch(() => path)}`;
