/** Brings a domain back to a saved state, and back from there when that fails. */
import {
  type Domain,
  DomainXml,
  ErrorCode,
  type Libvirt,
  SaveRestore,
  SnapshotCreate,
  SnapshotXml,
} from '@virtkeep/node-libvirt';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf, type VirtkeepError } from '@virtkeep/shared/errors';
import { syncDirectoryOf } from '@virtkeep/shared/files';
import { createImage, readImageHeader } from '../disks/index.ts';
import {
  type DomainMetadata,
  parseDomain,
  removeLentDisks,
  setMetadata,
  setNvram,
  stripRuntime,
} from '../domain-xml/index.ts';
import { type ImageDependencies, type LeftImage, removeImages } from '../images/index.ts';
import { START_TIMEOUT_MS } from '../libvirt/call-times.ts';
import { unlessGone } from '../libvirt/domains.ts';
import { isAnswer, isNoDomain, isPassing, patiently } from '../libvirt/errors.ts';
import type { SavedState } from './chain.ts';
import { foreignFiles, lookAt } from './merge/look.ts';
import { isUnused, type RevertPlan } from './revert-plan.ts';
import { diskStates, domainsOfState, withOverlays, withSources } from './state-xml.ts';
import { requireRoomForStates, writeState } from './write-state.ts';

/** Makes the overlays of a plan, when the state can be told of them. @throws VirtkeepError qemu_img_failed, io_failed, disk_full */
export async function makeOverlays({ overlays }: RevertPlan, signal: AbortSignal): Promise<void> {
  await requireRoomForStates();
  for (const { path, backing } of overlays) {
    const header = await readImageHeader(backing.path);
    // a raw file's first bytes are the guest's
    const virtualSize = backing.format === 'raw' ? header.fileSize : header.virtualSize;
    await createImage(path, { format: 'qcow2', backing, virtualSize, signal });
    await syncDirectoryOf(path);
  }
}

export interface Reverted {
  /** The definition of the next start. */
  definition: string;
  /** What the memory is restored with; null for a state of the disks alone. */
  live: string | null;
}

/**
 * The domain as the state holds it, on the plan's overlays, with what the domain's own metadata says now.
 * @param variables file of the domain's UEFI variables now, which may bear another name than it had then
 * @throws VirtkeepError xml_invalid when the state holds no definition
 */
export function revertedDomain(
  state: SavedState,
  plan: RevertPlan,
  metadata: DomainMetadata,
  variables: { nvramPath: string | null; nvramByName?: boolean },
): Reverted {
  const sources = Object.fromEntries(
    plan.overlays.map(({ targetDev, path }) => [targetDev, { path, format: 'qcow2', block: false }]),
  );
  const onOverlays = (xml: string) => {
    const current = new Set(metadata.attachments.map(({ path }) => path));
    const own = removeLentDisks(stripRuntime(xml), path => current.has(path));
    const onDisks = withSources(own, sources);
    const { disks, nvram } = parseDomain(onDisks);
    const { nvramPath, nvramByName } = variables;
    const isNamed = nvram && nvramPath !== null && !(nvram.byName && nvramByName);
    const next = isNamed ? setNvram(onDisks, nvramPath) : onDisks;
    const attached = new Set(disks.map(disk => disk.path));
    const attachments = metadata.attachments.filter(({ path }) => attached.has(path));
    return setMetadata(next, { ...metadata, attachments });
  };
  const { domain, inactive } = domainsOfState(state.xml);
  return {
    definition: onOverlays(inactive ?? domain),
    live: state.memory === 'external' ? onOverlays(domain) : null,
  };
}

/** Takes the domain's power. One that ended by itself meanwhile is as good. @throws LibvirtError */
export async function stopDomain(domain: Domain): Promise<void> {
  try {
    if (await domain.isActive()) await domain.destroy();
  } catch (error) {
    if (!isAnswer(error, ErrorCode.OPERATION_INVALID)) throw error;
  }
}

/** Defines the domain as the state holds it, and tells the state of its new overlays. @throws LibvirtError */
export async function defineReverted(
  libvirt: Libvirt,
  domain: Domain,
  { state, plan }: { state: SavedState; plan: RevertPlan },
  { definition }: Reverted,
): Promise<void> {
  await libvirt.defineDomain(definition);
  if (await domain.hasManagedSave()) await domain.removeManagedSave();
  const overlays = Object.fromEntries(plan.overlays.map(({ targetDev, path }) => [targetDev, path]));
  await redefine(domain, state.name, overlays, true);
}

/**
 * Lets the reverted domain run when it ran before, or when the state holds its memory.
 * @returns whether it runs
 * @throws LibvirtError
 */
export async function startReverted(
  libvirt: Libvirt,
  domain: Domain,
  { memoryPath }: SavedState,
  { live, wasRunning }: Pick<Reverted, 'live'> & { wasRunning: boolean },
): Promise<boolean> {
  // without this XML the memory file's own would write to the frozen files
  if (live !== null) await libvirt.restoreDomain(memoryPath!, live, SaveRestore.RUNNING, { timeoutMs: 0 });
  else if (wasRunning) await domain.create(0, { timeoutMs: START_TIMEOUT_MS });
  return live !== null || wasRunning;
}

/** What a revert changed, and what was before. */
export interface RevertToUndo {
  domainId: string;
  /** Name of the state that was reverted to. */
  state: string;
  /** The overlays made for it, and those that the state named before. */
  overlays: { targetDev: string; path: string }[];
  formerOverlays: Record<string, string>;
  /** The definition before, with its secrets. */
  formerDefinition: string;
  /** Name of the current state before. */
  formerCurrent: string | null;
  /** It ran, and was not yet started again. */
  wasRunning: boolean;
  /**
   * The record of deletions that the reverted definition bears, RFC 3339: nothing else tells it from the former one where the state
   * froze no disk. Absent in a journal of an earlier version.
   */
  statesDeleted?: string;
}

export interface UndoRevertOptions {
  signal: AbortSignal;
  /** What else of the domain is to be put back while it is off, until its definition is the former one. */
  beforeDefinition: () => Promise<void>;
  /** Why the domain, which is off, must not be started here: another node has it by now. It rejects only when the signal fires. */
  startRefusal: () => Promise<VirtkeepError | undefined>;
  /** Told once the domain runs again, or is another node's: from then on its power is its user's. */
  started: () => void;
  /** Something that the user should know. */
  warn: (text: string) => void;
}

/**
 * Undoes a revert at any point of it: the domain has its former definition, disks and states again; one that ran, and was
 * stopped, is started unless another node has it by now. Idempotent.
 * @returns overlays that were left, since somebody uses them
 */
export async function undoRevert(
  images: ImageDependencies,
  revert: RevertToUndo,
  options: UndoRevertOptions,
): Promise<LeftImage[]> {
  const { signal } = options;
  const step = (work: (domain: Domain) => Promise<void>) =>
    patiently(signal, () => unlessGone(() => work(images.libvirt().domain(revert.domainId)), undefined));
  await step(domain => putBack(images.libvirt(), domain, revert, options));
  // a guest does not wait for what only libvirt's own deletion of states reads
  if (revert.wasRunning) await step(domain => startAgain(domain, options));
  await step(async domain => {
    await redefine(domain, revert.state, revert.formerOverlays, false);
    if (revert.formerCurrent !== null) await redefine(domain, revert.formerCurrent, {}, true);
  });
  const paths = revert.overlays.map(({ path }) => path);
  // nobody else was told of them
  const question = { ownerId: revert.domainId, unanswered: 'take', signal } as const;
  return patiently(signal, () => removeImages(images, paths, question));
}

async function putBack(
  libvirt: Libvirt,
  domain: Domain,
  revert: RevertToUndo,
  options: UndoRevertOptions,
): Promise<void> {
  if ((await domain.isActive()) && isReverted(await domain.xml(), revert)) await stopDomain(domain);
  if (!isReverted(await domain.xml(DomainXml.INACTIVE), revert)) return;
  await options.beforeDefinition();
  await libvirt.defineDomain(revert.formerDefinition);
}

/**
 * Whether this is what the revert made of the domain, and not how it was before, or is again: it writes to the revert's layers. Where there are
 * none, its record tells.
 */
function isReverted(domainXml: string, { domainId, overlays, statesDeleted }: RevertToUndo): boolean {
  if (overlays.length > 0) return writesTo(domainXml, new Set(overlays.map(({ path }) => path)));
  const { metadata } = parseDomain(domainXml, domainId);
  return statesDeleted !== undefined && metadata.statesDeleted?.toISOString() === statesDeleted;
}

const START_TRIES = 5;
const START_RETRY_MS = 2_000;

/**
 * Bounded: its disks are what they were, and a node without room for it must not hold the domain for ever. While this node was away a
 * cluster manager may have started the VM on another one. Each try asks: nothing but that would keep it from running twice where its
 * disks have no locks.
 */
async function startAgain(domain: Domain, options: UndoRevertOptions): Promise<void> {
  const { signal, startRefusal, started, warn } = options;
  for (let tries = 1; ; tries += 1) {
    try {
      if (await domain.isActive()) return started();
      const refusal = await startRefusal();
      if (refusal) warn(`The domain was not started again: ${refusal.message}`);
      else await domain.create();
      return started();
    } catch (error) {
      throwIfAborted(signal);
      if (isNoDomain(error) || isPassing(error)) throw error;
      if (tries === START_TRIES) return warn(`The domain could not be started again: ${reasonOf(error)}`);
    }
    await sleep(START_RETRY_MS, signal);
  }
}

function writesTo(domainXml: string, paths: ReadonlySet<string>): boolean {
  return [...diskStates(domainXml).values()].some(
    disk => disk.sourcePath !== null && paths.has(disk.sourcePath),
  );
}

/**
 * Tells a state of the overlays that stand on what it keeps; libvirt's own deletion asks for them later. One that knows them
 * already is not written: libvirt may refuse a state that it once took, and an undo would try for ever.
 */
async function redefine(
  domain: Domain,
  name: string,
  overlays: Record<string, string>,
  current: boolean,
): Promise<void> {
  const snapshot = await domain.findSnapshot(name);
  if (!snapshot) return;
  const former = await snapshot.xml(SnapshotXml.SECURE);
  const xml = withOverlays(former, overlays);
  if (xml === withOverlays(former, {}) && (!current || (await snapshot.isCurrent()))) return;
  await writeState(domain, xml, SnapshotCreate.REDEFINE | (current ? SnapshotCreate.CURRENT : 0));
}

/**
 * Removes overlays that a revert left behind, as far as nobody uses them. Idempotent.
 * @returns those that were left
 * @throws LibvirtError; VirtkeepError io_failed
 */
export async function removeUnusedLayers(
  images: ImageDependencies,
  { domainId: ownerId, paths }: { domainId: string; paths: readonly string[] },
  signal: AbortSignal,
): Promise<LeftImage[]> {
  return patiently(signal, async () => {
    const libvirt = images.libvirt();
    const look = await lookAt(libvirt, ownerId, await foreignFiles(libvirt, ownerId));
    // without the domain nobody knows any more what stands on them
    const unused = look ? paths.filter(path => isUnused(look.picture, path)) : [];
    return removeImages(images, unused, { ownerId, signal });
  });
}
