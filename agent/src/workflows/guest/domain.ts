/** The domain that an operation works in: a running one with its guest, or one that is off with its disks. */
import { type Domain, DomainXml } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { diskId, isEncrypted, readLayers } from '../../disks/index.ts';
import {
  type DiskConfig,
  type DomainConfig,
  isLent,
  parseDomain,
  refuseWhileLent,
} from '../../domain-xml/index.ts';
import { type ImageDependencies, requireReplaceable } from '../../images/index.ts';
import { fromDomain } from '../../libvirt/domains.ts';
import { type PoolRecord, poolOfPath } from '../../pools/index.ts';
import type { OperationContext } from '../context.ts';
import { resolveVolumes } from '../domain/volumes.ts';
import { refuseWithClonesAnywhere } from '../family/clones-elsewhere.ts';
import { type Guest, type OpenGuest, openGuest } from './guest.ts';

/** What the operations are given. */
export interface GuestOperations extends ImageDependencies {
  log: Logger;
  /** Where what is needed for minutes lies; made if need be. */
  scratchDirectory: string;
  /** Run libguestfs's appliance without KVM; otherwise that is found out. */
  forceTcg: boolean;
  /** Path of the guest tools image; undefined: none is configured. */
  toolsImage: string | undefined;
  /** What the guest tells may be different from before. The domain itself is looked at when the operation ends. */
  changed(domainId: string): void;
  /** Tests put a scripted guest here. */
  openGuest?: OpenGuest;
}

/** Runs the steps of an operation; failures of libvirt become the product's. */
export async function inDomain(
  operations: GuestOperations,
  domainId: string,
  context: OperationContext,
  work: (domain: Domain) => Promise<void>,
): Promise<void> {
  try {
    const domain = await operations.libvirt().domainByUuid(domainId);
    await work(domain).finally(() => operations.changed(domainId));
  } catch (error) {
    throwIfAborted(context.signal);
    throw fromDomain(error, domainId, 'guest_operation');
  }
}

/** The guest of a domain whose agent may be asked until the signal fires. */
export function guestOf(
  operations: Pick<GuestOperations, 'openGuest'>,
  domain: Domain,
  name: string,
  signal: AbortSignal,
): Guest {
  return (operations.openGuest ?? openGuest)(domain, name, signal);
}

/** The guest of a running domain. @throws VirtkeepError guest_off, guest_no_channel, and all the agent may answer */
export async function requireRunning(
  operations: GuestOperations,
  domain: Domain,
  signal: AbortSignal,
): Promise<{ config: DomainConfig; guest: Guest }> {
  const config = parseDomain(await domain.xml(), domain.name);
  if (!(await domain.isActive())) throw new VirtkeepError('guest_off', { domain: config.name, state: 'off' });
  const guest = guestOf(operations, domain, config.name, signal);
  await guest.command('guest-ping');
  return { config, guest };
}

/** A disk of a domain that is off, as libguestfs is given it. */
export interface OwnDisk {
  /** As the inventory tells it. */
  id: string;
  targetDev: string;
  path: string;
  format: string;
  /** A block device. */
  block: boolean;
}

/**
 * A domain that is off, with its own writable disks, for a change of what is on them.
 * @param action completes "it cannot be …"
 * @throws VirtkeepError power_state_conflict, guest_os_unsupported, vdisk_attached_elsewhere, template_has_clones, image_in_use,
 *   image_use_unknown, guestfs_failed when it has no disk that can be changed
 */
export async function requireOff(
  operations: GuestOperations,
  domain: Domain,
  action: string,
  signal: AbortSignal,
): Promise<{ config: DomainConfig; disks: OwnDisk[] }> {
  const libvirt = operations.libvirt();
  const config = parseDomain(await domain.xml(DomainXml.INACTIVE), domain.name);
  const { name: domainName, metadata, os } = config;
  await refuseActive(domain, domainName, action);
  if (os.type === 'Windows')
    throw new VirtkeepError('guest_os_unsupported', { domain: domainName, os: 'Windows', operation: action });
  refuseWhileLent(metadata, domainName, action);
  await refuseWithClonesAnywhere(operations, config, action, signal);
  const pools = await operations.pools(signal);
  const disks: OwnDisk[] = [];
  for (const disk of await resolveVolumes(libvirt, config.disks))
    if (isOwn(disk) && !isLent(disk, metadata)) disks.push(...(await ownDisk(disk, pools)));
  if (disks.length === 0)
    throw new VirtkeepError('guestfs_failed', {
      program: 'libguestfs',
      domain: domainName,
      reason: 'it has no disk in a file or on a block device that can be changed',
    });
  if (metadata.template) await refuseStoodOn(operations, domain.uuid, disks, signal);
  return { config, disks };
}

/** A clone may have its disk and be defined nowhere just now; the other nodes were asked about those that are. */
async function refuseStoodOn(
  operations: GuestOperations,
  templateId: string,
  disks: readonly OwnDisk[],
  signal: AbortSignal,
): Promise<void> {
  const paths = disks.map(({ path }) => path);
  await requireReplaceable(operations, paths, { leaving: [templateId], alone: true, signal });
}

/** @throws VirtkeepError power_state_conflict also for one whose memory is saved: it goes on with what it knew of its disks */
export async function refuseActive(domain: Domain, name: string, action: string): Promise<void> {
  const state = (await domain.isActive())
    ? 'running'
    : (await domain.hasManagedSave())
      ? 'off with its memory saved'
      : null;
  if (state) throw new VirtkeepError('power_state_conflict', { domain: name, state, action });
}

type LocalDisk = DiskConfig & { path: string };

function isOwn(disk: DiskConfig): disk is LocalDisk {
  const { device, type, path, readonly, shareable, encrypted, sliced } = disk;
  const isLocal = path !== undefined && (type === 'file' || type === 'block');
  // of a shareable one another VM may be the user just now, which none of our locks tells
  return device === 'disk' && isLocal && !readonly && !shareable && !encrypted && !sliced;
}

async function ownDisk(
  { path, format = 'raw', targetDev, type }: LocalDisk,
  pools: PoolRecord[],
): Promise<OwnDisk[]> {
  const layers = await readLayers(path, format);
  // its overlay would be in plain text
  if (isEncrypted(layers)) return [];
  const first = layers.at(-1)?.path ?? path;
  return [{ id: diskId(first, poolOfPath(first, pools)), targetDev, path, format, block: type === 'block' }];
}
