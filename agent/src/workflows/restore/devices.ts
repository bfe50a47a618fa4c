/**
 * LUNs and network disks that a backup only records: which of them the restored VM gets. One that somebody else writes to
 * would be destroyed, so each must be there and unused, on this node and on every other one; and a VM with a new identity is
 * beside the original, to which they belong, so it gets only those that were asked for by name.
 */
import { constants } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ArchiveTrust } from '../../archive/index.ts';
import type { Claimant } from '../../claims.ts';
import type { DiskConfig, DomainConfig } from '../../domain-xml/index.ts';
import type { Answer, Thing } from '../../other-nodes.ts';
import type { PoolRecord } from '../../pools/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { type DevicesHere, deviceNamesOf, devicesHere, mayName } from '../devices/devices-here.ts';

/** For how long something is claimed and looked at. */
export interface ClaimScope {
  /** Takes what ends a claim, for when the VM is defined, or is not to be. */
  claim(end: () => void): void;
  signal: AbortSignal;
}

export interface DeviceQuestion {
  config: DomainConfig;
  keepIdentity: boolean;
  /** Who vouches for the archive that names the devices. */
  trust: ArchiveTrust;
  /** Targets that were asked for by name. */
  named: readonly string[];
  /** The restored VM. */
  claimant: Claimant;
}

export interface AttachableDevices {
  targets: ReadonlySet<string>;
  /** Why one is left out, by target. */
  reasons: Map<string, string>;
  /** What to know of those that are attached. */
  warnings: string[];
}

/** What is known of one device. */
export interface DeviceFacts {
  isPresent: boolean;
  /** By whom it is used. */
  usedBy?: string;
  /** Why it is not known who else uses it: not all nodes were heard, or a VM of this one cannot be read. */
  unheard?: string;
}

/** Attached, perhaps with a warning; left out with a reason; or refused, when it was asked for and must not be attached. */
export type DeviceVerdict =
  | { attach: true; warning?: string }
  | { attach: false; reason: string; refuse: boolean };

/** Decides about one device by the facts; pure. @param isNamed the request names its target */
export function judgeDevice(facts: DeviceFacts, isNamed: boolean, keepIdentity: boolean): DeviceVerdict {
  const no = (reason: string): DeviceVerdict => ({ attach: false, reason, refuse: isNamed });
  if (!isNamed && !keepIdentity)
    return no('it belongs to the original VM, which this one stands beside; name its target to attach it');
  if (!facts.isPresent) return no('it is not there or in use');
  if (facts.usedBy !== undefined) return no(`it is used by ${facts.usedBy}`);
  if (facts.unheard === undefined) return { attach: true };
  if (!isNamed) return no(`others may use it (${facts.unheard}); name its target to attach it all the same`);
  return { attach: true, warning: `others may use it (${facts.unheard})` };
}

/**
 * Claims the devices before this node is looked at and the others are asked, so that of two restores at once one sees the other; the
 * claims are ended by the caller, once the VM is defined.
 * @throws VirtkeepError lun_unavailable, invalid_field for a name that is no LUN of the VM; LibvirtError
 */
export async function attachableDevices(
  dependencies: Pick<WorkflowDependencies, 'libvirt' | 'otherNodes' | 'claims' | 'nodeName'>,
  pools: readonly PoolRecord[],
  question: DeviceQuestion,
  { claim, signal }: ClaimScope,
): Promise<AttachableDevices> {
  const { config, named, keepIdentity, claimant, trust } = question;
  const candidates = config.disks.filter(isForeign);
  const unknown = named.find(target => !candidates.some(disk => disk.targetDev === target));
  if (unknown !== undefined) {
    const reason = `${unknown} is no LUN or network disk of the backup`;
    throw new VirtkeepError('invalid_field', { field: 'luns', reason });
  }
  const targets = new Set<string>();
  const found: AttachableDevices = { targets, reasons: new Map(), warnings: [] };
  if (trust === 'foreign') return withoutDevices(candidates, named, found);
  // the device of another node's VM may be anything on this one
  const isRightful = keepIdentity && trust === 'own';
  const isLookedAt = ({ targetDev }: DiskConfig) => isRightful || named.includes(targetDev);
  const claimed = new Map<DiskConfig, { things: Thing[]; usedBy: string | undefined }>();
  for (const disk of candidates.filter(isLookedAt)) {
    const things = (await deviceNamesOf(disk, pools)).map((key): Thing => ({ kind: 'device', key }));
    claim(dependencies.claims.make(things, claimant));
    // before the definitions are read: who has ended a claim by then is seen in them
    claimed.set(disk, { things, usedBy: things.map(claimedHere).find(Boolean) });
  }
  const here: DevicesHere =
    claimed.size > 0 ? await devicesHere(dependencies.libvirt(), pools) : { used: new Map(), unread: [] };
  for (const disk of candidates) {
    const { targetDev: target, source } = disk;
    const isNamed = named.includes(target);
    const facts = isLookedAt(disk) ? await factsOf(disk) : { isPresent: true };
    const verdict = judgeDevice(facts, isNamed, isRightful);
    if (verdict.attach) {
      targets.add(target);
      if (verdict.warning) found.warnings.push(`${target} (${source}) is attached: ${verdict.warning}.`);
    } else if (verdict.refuse) {
      throw new VirtkeepError('lun_unavailable', { target, source, reason: verdict.reason });
    } else found.reasons.set(target, verdict.reason);
  }
  return found;

  async function factsOf(disk: DiskConfig): Promise<DeviceFacts> {
    const { things, usedBy: byClaim } = claimed.get(disk)!;
    const usedBy = byClaim ?? things.map(thing => here.used.get(keyOf(thing))).find(Boolean);
    const answers = await dependencies.otherNodes.whoUses(things, signal);
    const unsure = { ...unreadHere(here, things), ...heard(answers) };
    return { isPresent: await isPresent(disk), ...(usedBy ? { usedBy } : unsure) };
  }
  function claimedHere(thing: Thing): string | undefined {
    const by = dependencies.claims.by(thing, claimant);
    return by && `${by.domainName}, which is being restored`;
  }
}

/** Nobody whom the node knows has said that the VM had these devices. @throws VirtkeepError lun_unavailable */
function withoutDevices(
  candidates: readonly DiskConfig[],
  named: readonly string[],
  found: AttachableDevices,
): AttachableDevices {
  const reason = 'the backup is not signed by a node of this controller';
  const device = candidates.find(({ targetDev }) => named.includes(targetDev));
  if (device)
    throw new VirtkeepError('lun_unavailable', { target: device.targetDev, source: device.source, reason });
  return { ...found, reasons: new Map(candidates.map(({ targetDev }) => [targetDev, reason])) };
}

function isForeign(disk: DiskConfig): boolean {
  if (disk.device === 'lun') return true;
  return disk.device === 'disk' && disk.type === 'network';
}

function unreadHere({ unread }: DevicesHere, things: readonly Thing[]): Pick<DeviceFacts, 'unheard'> {
  const found = unread.find(text => mayName(text, things.map(keyOf)));
  return found ? { unheard: `the VM ${found.domainName} of this node cannot be read` } : {};
}

function heard(answers: readonly Answer[]): Pick<DeviceFacts, 'usedBy' | 'unheard'> {
  const used = answers.find(answer => answer.kind === 'used');
  if (used) return { usedBy: `${used.by.domainName} on the node ${used.by.nodeName}` };
  const unknown = answers.find(answer => answer.kind === 'unknown');
  return unknown ? { unheard: unknown.reason } : {};
}

const keyOf = (thing: Thing): string => (thing.kind === 'device' ? thing.key : '');

/** Network storage is asked by QEMU at the start; a device must be free for exclusive use (EBUSY: mounted, in a group). */
async function isPresent(disk: DiskConfig): Promise<boolean> {
  if (disk.type === 'network') return true;
  if (disk.type !== 'block' || disk.path === undefined) return false;
  try {
    if (!(await stat(disk.path)).isBlockDevice()) return false;
    const device = await open(disk.path, constants.O_RDONLY | constants.O_EXCL);
    await device.close();
    return true;
  } catch {
    return false;
  }
}
