/**
 * LUNs and network disks that a backup only records: which of them the restored VM gets (specification 2.1 rule 4). One that somebody
 * else writes to would be destroyed, so each must be there and unused, on this node and by the VMs of every other one, the original among
 * them. What leaves a doubt is attached only when it was asked for by name.
 */
import { constants } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Judgement } from '../../archive/index.ts';
import type { Claimant } from '../../claims.ts';
import type { DiskConfig, DomainConfig } from '../../domain-xml/index.ts';
import type { Answer, Thing } from '../../other-nodes.ts';
import type { PoolRecord } from '../../pools/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { namesDevice } from '../devices/device-keys.ts';
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
  /** Of the archive that names the devices. */
  judgement: Pick<Judgement, 'trust' | 'byOneNode'>;
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
  /** Why no VM of this node can have it. */
  fault?: string | undefined;
  /** By whom it is used. */
  usedBy?: string;
  /** Why it is not known who else uses it: not all nodes were heard, or a VM of this one cannot be read. */
  unheard?: string;
}

/** A device by its names, and by whose restore it is claimed. */
interface ClaimedDevice {
  things: Thing[];
  usedBy: string | undefined;
}

/** Attached, perhaps with a warning; left out with a reason; or refused, when it was asked for and must not be attached. */
export type DeviceVerdict =
  | { attach: true; warning?: string }
  | { attach: false; reason: string; refuse: boolean };

/** Why a device is not even looked at unless it is asked for by name; undefined: it is. Pure. */
export function doubtAbout(
  { type, path = '' }: Pick<DiskConfig, 'type' | 'path'>,
  { judgement: { trust, byOneNode }, keepIdentity }: Pick<DeviceQuestion, 'judgement' | 'keepIdentity'>,
): string | undefined {
  const isNetwork = type === 'network';
  if (trust === 'own' && keepIdentity) return undefined;
  if (isNetwork) return 'no node can see what else uses storage on the network';
  if (trust !== 'own' && !byOneNode) return 'not one node alone made the backup';
  return namesDevice(path)
    ? undefined
    : 'its name does not tell which device it is, and another one may have it by now';
}

/** Decides about one device by the facts; pure. @param isNamed the request names its target */
export function judgeDevice(facts: DeviceFacts, isNamed: boolean): DeviceVerdict {
  const no = (reason: string): DeviceVerdict => ({ attach: false, reason, refuse: isNamed });
  if (facts.fault !== undefined) return no(facts.fault);
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
  const { config, named, claimant, judgement } = question;
  const candidates = config.disks.filter(isForeign);
  const unknown = named.find(target => !candidates.some(disk => disk.targetDev === target));
  if (unknown !== undefined) {
    const reason = `${unknown} is no LUN or network disk of the backup`;
    throw new VirtkeepError('invalid_field', { field: 'luns', reason });
  }
  const targets = new Set<string>();
  const found: AttachableDevices = { targets, reasons: new Map(), warnings: [] };
  if (judgement.trust === 'foreign') return withoutDevices(candidates, named, found);
  const claimed = new Map<DiskConfig, ClaimedDevice>();
  for (const disk of candidates) {
    const doubt = named.includes(disk.targetDev) ? undefined : doubtAbout(disk, question);
    if (doubt !== undefined) {
      found.reasons.set(disk.targetDev, `${doubt}; name its target to attach it`);
      continue;
    }
    const things = (await deviceNamesOf(disk, pools)).map((key): Thing => ({ kind: 'device', key }));
    claim(dependencies.claims.make(things, claimant));
    // before the definitions are read: who has ended a claim by then is seen in them
    claimed.set(disk, { things, usedBy: things.map(claimedHere).find(Boolean) });
  }
  const here: DevicesHere =
    claimed.size > 0 ? await devicesHere(dependencies.libvirt(), pools) : { used: new Map(), unread: [] };
  for (const [disk, claimedAs] of claimed) {
    const { targetDev: target, source } = disk;
    const verdict = judgeDevice(await factsOf(disk, claimedAs), named.includes(target));
    if (verdict.attach) {
      targets.add(target);
      if (verdict.warning) found.warnings.push(`${target} (${source}) is attached: ${verdict.warning}.`);
    } else if (verdict.refuse) {
      throw new VirtkeepError('lun_unavailable', { target, source, reason: verdict.reason });
    } else found.reasons.set(target, verdict.reason);
  }
  return found;

  async function factsOf(disk: DiskConfig, { things, usedBy: byClaim }: ClaimedDevice): Promise<DeviceFacts> {
    const usedBy = byClaim ?? things.map(thing => here.used.get(keyOf(thing))).find(Boolean);
    const answers = await dependencies.otherNodes.whoUses(things, signal);
    const unsure = { ...unreadHere(here, things), ...heard(answers) };
    return { fault: await faultOf(disk), ...(usedBy ? { usedBy } : unsure) };
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

/** Network storage is asked by QEMU at the start; a device must be free for exclusive use. */
async function faultOf({ type, path }: DiskConfig): Promise<string | undefined> {
  if (type === 'network') return undefined;
  if (type !== 'block' || path === undefined) return 'it is not named by the path of a device';
  try {
    if (!(await stat(path)).isBlockDevice()) return 'it is no block device';
    const device = await open(path, constants.O_RDONLY | constants.O_EXCL);
    await device.close();
    return undefined;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT') return 'it is not there';
    if (code === 'EBUSY') return 'this node uses it itself, as by a mount, a volume group or multipath';
    return `it cannot be opened (${code})`;
  }
}
