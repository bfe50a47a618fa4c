/** Reads a domain of this node as lending needs it. */
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { diskId, isEncrypted, readLayers } from '../../disks/index.ts';
import {
  type Attachment,
  attachmentsOf,
  type DiskConfig,
  type DomainConfig,
  type DomainMetadata,
  isLent,
  parseDomain,
} from '../../domain-xml/index.ts';
import { savedXml } from '../../images/index.ts';
import { firstOwnLayer } from '../../inventory/disk-facts.ts';
import { unlessGone } from '../../libvirt/domains.ts';
import { type PoolRecord, poolOfPath } from '../../pools/index.ts';
import type { Lender, LenderDisk } from './freezer.ts';

/** A domain with what its running form and its definition say. */
export interface Party {
  domain: Domain;
  name: string;
  active: boolean;
  /** The running domain; undefined when it is off. */
  live: DomainConfig | undefined;
  /** The definition; undefined when the domain is transient. */
  config: DomainConfig | undefined;
  /** What its next start goes on with, while it is off and its memory is saved. */
  saved: DomainConfig | undefined;
  metadata: DomainMetadata;
}

/** @returns undefined when there is no such domain @throws LibvirtError, VirtkeepError xml_invalid */
export function readParty(libvirt: Libvirt, domainId: string): Promise<Party | undefined> {
  return unlessGone(async () => {
    const domain = await libvirt.domainByUuid(domainId);
    const [active, persistent] = [await domain.isActive(), await domain.isPersistent()];
    const live = active ? parseDomain(await domain.xml(), domain.name) : undefined;
    const config = persistent ? parseDomain(await domain.xml(DomainXml.INACTIVE), domain.name) : undefined;
    const [savedText] = active ? [] : await savedXml(domain);
    const saved = savedText === undefined ? undefined : parseDomain(savedText, domain.name);
    const { name, metadata } = (live ?? config)!;
    return { domain, name, active, live, config, saved, metadata };
  }, undefined);
}

/** The disks that the domain has: the running form is the truth; while it is off its definition, and what its saved memory goes on with. */
export function disksOfParty({ live, config, saved }: Party): DiskConfig[] {
  return live?.disks ?? [...config!.disks, ...(saved?.disks ?? [])];
}

/** What the domain has of others. */
export function attachmentsOfParty(party: Party): Attachment[] {
  return attachmentsOf({ disks: disksOfParty(party), metadata: party.metadata });
}

/**
 * The domain as a lender, with the ids of its disks as the inventory tells them.
 * @param resolve gives volumes of libvirt's pools their paths
 */
export async function lenderOf(
  libvirt: Libvirt,
  party: Party,
  pools: readonly PoolRecord[],
  resolve: (disks: DiskConfig[]) => Promise<DiskConfig[]>,
): Promise<Lender> {
  const { domain, name, active, live, config, metadata } = party;
  const own = (live ?? config)!.disks.filter(disk => disk.device === 'disk' && !isLent(disk, metadata));
  const templateFiles = await templateFilesOf(libvirt, metadata, resolve);
  const disks: LenderDisk[] = [];
  for (const disk of await resolve(own)) {
    const { targetDev, path, format = 'raw', type, readonly } = disk;
    if (path === undefined || (type !== 'file' && type !== 'block')) continue;
    const layers = await readLayers(path, format).catch(() => []);
    const paths = layers.length > 0 ? layers.map(layer => layer.path) : [path];
    const first = firstOwnLayer(paths, metadata.parent !== undefined, templateFiles);
    const id = diskId(first, poolOfPath(first, pools));
    const encrypted = disk.encrypted || isEncrypted(layers);
    disks.push({ id, targetDev, path, format, block: type === 'block', readonly, encrypted });
  }
  return { id: domain.uuid, name, template: metadata.template, active, disks };
}

async function templateFilesOf(
  libvirt: Libvirt,
  { parent }: DomainMetadata,
  resolve: (disks: DiskConfig[]) => Promise<DiskConfig[]>,
): Promise<ReadonlySet<string> | undefined> {
  const template = parent && (await readParty(libvirt, parent.id));
  if (!template) return undefined;
  const disks = await resolve((template.live ?? template.config)!.disks);
  return new Set(disks.flatMap(disk => disk.path ?? []));
}
