/** A machine of the scripted libvirt: what it is, and changes of its definition. */
import { ErrorCode, LibvirtError } from '@virtkeep/node-libvirt';
import { readLayers } from '../../agent/src/disks/index.ts';
import {
  attr,
  child,
  childrenAt,
  parseDomain,
  parseXml,
  serializeXml,
} from '../../agent/src/domain-xml/index.ts';

export interface Machine {
  uuid: string;
  name: string;
  /** The definition of the next start; null: it has none. */
  config: string | null;
  /** What runs; null: it is off. */
  live: string | null;
  /** What its saved memory goes on with; null: it has none. */
  saved: string | null;
  /** XML by name. */
  states: Map<string, string>;
  current: string | null;
  suspended: boolean;
  frozen: boolean;
  /** Its guest lets no disk go. */
  keepsDisks: boolean;
  /** Targets with an active commit that waits for its pivot. */
  mirrors: Set<string>;
}

/** Its definition. @throws libvirt's answer */
export function definitionOf({ config }: Machine): string {
  if (config === null) throw refuse(ErrorCode.OPERATION_INVALID, 'it has no definition');
  return config;
}

/** @throws libvirt's answer for one that is off */
export function requireActive({ live }: Machine): void {
  if (live === null) throw refuse(ErrorCode.OPERATION_INVALID, 'domain is not running');
}

/** libvirt's own answer. */
export function refuse(code: number, message: string): LibvirtError {
  return new LibvirtError({ code, domain: 10, message, level: 2, kind: 'libvirt' }, 'scripted');
}

/** A disk put into, or taken out of, what runs (flag 1) and the definition (flag 2). */
export function plugDisk(machine: Machine, isAttached: boolean, [xml, flags]: [string, number]): void {
  const target = /<target dev=["'](\w+)/.exec(xml)![1]!;
  const sides = (['live', 'config'] as const).filter((_, index) => flags & (index + 1));
  if (sides.some(side => machine[side] === null))
    throw refuse(ErrorCode.OPERATION_INVALID, 'it is not running');
  if (sides.some(side => hasDisk(machine[side]!, target) === isAttached))
    throw refuse(ErrorCode.OPERATION_FAILED, `there is a target ${target}, or there is none`);
  for (const side of sides) {
    if (isAttached) machine[side] = withDisk(machine[side]!, xml);
    else if (side === 'config' || !machine.keepsDisks) machine[side] = withoutDisk(machine[side]!, target);
  }
}

const hasDisk = (xml: string, target: string): boolean =>
  parseDomain(xml).disks.some(({ targetDev }) => targetDev === target);

const withDisk = (xml: string, disk: string): string => xml.replace('</devices>', `${disk}</devices>`);

const withoutDisk = (xml: string, target: string): string =>
  editDisk(xml, target, disk => disk.parentNode!.removeChild(disk));

/** The definition when its disk stands on nothing any more. */
export const withoutChain = (xml: string, target: string): string =>
  editDisk(xml, target, disk => {
    for (const below of childrenAt(disk, 'backingStore')) disk.removeChild(below);
  });

/** The definition with what its disks stand on, as libvirt writes it down for a domain that is off. */
export async function withChains(xml: string): Promise<string> {
  let next = xml;
  for (const { path } of parseDomain(xml).disks) {
    const below = (await readLayers(path!, 'qcow2')).slice(1);
    const chain = below.reduceRight(
      (inner, layer) =>
        `<backingStore type='file'><format type='${layer.format}'/><source file='${layer.path}'/>${inner}</backingStore>`,
      '<backingStore/>',
    );
    next = next.replace(new RegExp(`<source file=["']${path}["']\\s*/>`), `$&${chain}`);
  }
  return next;
}

type DiskElement = ReturnType<typeof childrenAt>[number];

function editDisk(xml: string, target: string, edit: (disk: DiskElement) => void): string {
  const { root } = parseXml(xml, 'domain', 'a domain');
  for (const disk of childrenAt(root, 'devices/disk'))
    if (attr(child(disk, 'target'), 'dev') === target) edit(disk);
  return serializeXml(root);
}

/** The definition with our own metadata; null: without. */
export function withElement(domainXml: string, element: string | null): string {
  const bare = domainXml.replace(/<metadata>[\s\S]*?<\/metadata>|<metadata\/>/, '');
  if (element === null) return bare;
  const own = element.replace(/^<domain/, '<domain xmlns="urn:virtkeep:domain:1"');
  return bare.replace('</name>', `</name><metadata>${own}</metadata>`);
}
