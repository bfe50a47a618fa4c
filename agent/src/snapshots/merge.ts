/** Deletes a saved state: forgets it and merges what it kept, step by step, so that any step may be the last one. */
import { stat } from 'node:fs/promises';
import {
  Affect,
  BlockCommit,
  BlockJobAbort,
  type Domain,
  DomainStateCode,
  DomainXml,
  type Libvirt,
  MetadataType,
  SnapshotCreate,
  SnapshotDelete,
  SnapshotXml,
} from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { removePath } from '@virtkeep/shared/files';
import type { Logger } from '@virtkeep/shared/log';
import { MiB } from '@virtkeep/shared/units';
import { qemuImg, readLayers, rebaseUnsafe } from '../disks/index.ts';
import {
  type DomainMetadata,
  editSnapshot,
  METADATA_NAMESPACE,
  METADATA_PREFIX,
  metadataElement,
  stripBackingStore,
} from '../domain-xml/index.ts';
import { patiently } from '../libvirt/errors.ts';
import { foreignFiles, type Look, lookAt } from './look.ts';
import { firstShrunk, fitLower } from './merge-fit.ts';
import { type MergeGoal, type MergeStep, nextMergeStep, uppersOf } from './merge-plan.ts';
import { requireRoomToMerge } from './merge-room.ts';
import { heldReason } from './picture.ts';
import { type DiskSource, diskStates, withKeptFile, withSources } from './state-xml.ts';

export interface MergeRequest extends MergeGoal {
  domainId: string;
}

export interface MergeOptions {
  signal: AbortSignal;
  log: Logger;
  /** Bound of the merge, MiB/s, may be a fraction; 0 or absent = none. */
  bandwidthMiB?: number;
  /** Told how much the merge of the present layer moves, bytes. */
  progress?: { total(bytes: number): void; done(bytes: number): void };
}

/** A merge is looked at soon at first, since most are small, then ever more rarely. */
const FIRST_POLL_MS = 10;
const POLL_MS = 160;
/** The same step so many times in a row means that we would turn in circles. */
const MAX_REPEATS = 20;
/**
 * Failures of one step before it is told: the guest may be stopped, or the daemon restarted, in the middle of it. A block
 * job that breaks off is seen only by its being gone, so merges count when they begin anew.
 */
const MAX_FAILURES = 3;
/** `virDomainPausedReason`: QEMU stopped the guest because its disk was full, or broken. */
const PAUSED_BY_IO_ERROR = 5;

/**
 * Deletes an external or internal state of a domain and merges what it kept, at any place of the tree, the domain running
 * or off. Idempotent: a call that was killed in the middle is completed by the next one, also by one without a name. What
 * several branches read stays as it is until it has one reader left. When the signal fires, the state may be gone and a
 * merge stays where it is; the domain is sound in every moment.
 *
 * The caller holds the domain's lock and has asked `removalRefusal`. A merge that has no room is not begun.
 * @throws VirtkeepError snapshot_remove_failed, canceled; pool_no_space: the state is still there, untouched
 */
export async function mergeState(
  libvirt: Libvirt,
  request: MergeRequest,
  options: MergeOptions,
): Promise<void> {
  const { domainId } = request;
  const { signal, log } = options;
  const foreign = await patiently(signal, () => foreignFiles(libvirt, domainId));
  const now = new Date();
  const begun = new Map<string, number>();
  let [last, repeats, failures, pollMs] = ['', 0, 0, 0];
  for (;;) {
    const look = await patiently(signal, () => lookAt(libvirt, domainId, foreign));
    const step: MergeStep = look ? nextMergeStep(look.picture, request, now) : { do: 'done' };
    if (step.do === 'done') return look && begun.size > 0 ? resumeStopped(look.domain, log) : undefined;
    const held = heldReason(look!.picture);
    if (held !== null) throw failed(request, look!.domain, held);
    const seen = JSON.stringify(step);
    repeats = seen === last && step.do !== 'wait' ? repeats + 1 : 0;
    pollMs = seen === last ? Math.min(2 * pollMs, POLL_MS) : FIRST_POLL_MS;
    if (seen !== last) {
      log.debug('merging a saved state', { domain: domainId, state: request.name, step: step.do });
      if (step.do !== 'wait') failures = 0;
    }
    if (last === '') await requireMergeable(look!, request, signal);
    last = seen;
    if (repeats > MAX_REPEATS) throw failed(request, look!.domain, `"${step.do}" has no effect`);
    if (isMerge(step)) {
      begun.set(seen, (begun.get(seen) ?? 0) + 1);
      const reason = `merging ${step.above} breaks off again and again`;
      if (begun.get(seen)! > MAX_FAILURES) throw failed(request, look!.domain, reason);
    }
    try {
      if (isMerge(step)) await requireRoomToMerge([step.above], [], signal);
      await act(libvirt, look!, step, options, pollMs);
    } catch (error) {
      if (signal.aborted) await stopJob(look!.domain, step);
      signal.throwIfAborted();
      failures += 1;
      if (failures > MAX_FAILURES || hasKey(error, 'pool_no_space'))
        throw failed(request, look!.domain, reasonOf(error), error);
      log.warn('a step of a merge failed, looking again', { state: request.name, step: step.do, error });
      await sleep(500, signal);
    }
  }
}

/** @throws VirtkeepError pool_no_space, snapshot_remove_failed for a disk that was made smaller, of a running guest */
async function requireMergeable(
  { domain, picture }: Look,
  request: MergeRequest,
  signal: AbortSignal,
): Promise<void> {
  const [uppers, freed] = uppersOf(picture, request);
  await requireRoomToMerge(uppers, freed, signal);
  const shrunk = picture.power === 'running' ? await firstShrunk(uppers) : undefined;
  if (shrunk !== undefined)
    throw failed(request, domain, `${shrunk} is smaller than what it stands on; switch the VM off for it`);
}

type Merge = Extract<MergeStep, { do: 'commit_active' | 'commit_middle' | 'commit_offline' }>;

function isMerge(step: MergeStep): step is Merge {
  return step.do === 'commit_active' || step.do === 'commit_middle' || step.do === 'commit_offline';
}

/**
 * A guest whose disk ran full waits for room, and the merge has made some. QEMU repeats the write that failed: if it fails
 * again, the guest is where it was.
 */
async function resumeStopped(domain: Domain, log: Logger): Promise<void> {
  try {
    const { state, reason } = await domain.state();
    if (state !== DomainStateCode.PAUSED || reason !== PAUSED_BY_IO_ERROR) return;
    log.warn('the guest was stopped by a write error and is resumed after the merge', {
      domain: domain.uuid,
    });
    await domain.resume();
  } catch (error) {
    log.warn('the guest could not be resumed after the merge', { domain: domain.uuid, error });
  }
}

function failed(request: MergeRequest, domain: Domain, reason: string, cause?: unknown): VirtkeepError {
  const state = request.name === null ? 'deleted before' : `"${request.name}"`;
  const params = { state, domain: domain.name, reason: reason.replace(/\.$/, '') };
  return new VirtkeepError('snapshot_remove_failed', params, { cause });
}

/** A job that was only waited for would go on without us. */
async function stopJob(domain: Domain, step: MergeStep): Promise<void> {
  if (step.do === 'wait' || step.do === 'pivot') await domain.blockJobAbort(step.targetDev).catch(() => {});
}

async function act(
  libvirt: Libvirt,
  { domain }: Look,
  step: MergeStep,
  options: MergeOptions,
  pollMs: number,
): Promise<void> {
  const { signal } = options;
  const bytesPerSecond = Math.round((options.bandwidthMiB ?? 0) * MiB);
  switch (step.do) {
    case 'note':
      return writeMetadata(domain, step.metadata);
    case 'remove_memory':
      return removePath(step.path);
    case 'native_delete':
      return domain.snapshot(step.name).delete(0, { timeoutMs: 0 });
    case 'reparent':
      return reparent(domain, step);
    case 'forget':
      return domain.snapshot(step.name).delete(SnapshotDelete.METADATA_ONLY);
    case 'commit_active': {
      // SHALLOW is vital: without it everything would be merged into the bottom file, be it a template or an archive
      const flags = BlockCommit.ACTIVE | BlockCommit.SHALLOW | BlockCommit.BANDWIDTH_BYTES;
      return domain.blockCommit(step.targetDev, null, null, bytesPerSecond, flags);
    }
    case 'commit_middle':
      return domain.blockCommit(
        step.targetDev,
        step.layer,
        step.above,
        bytesPerSecond,
        BlockCommit.BANDWIDTH_BYTES,
      );
    case 'wait':
      await sleep(pollMs, signal);
      return report(domain, step.targetDev, options);
    case 'pivot':
      return domain.blockJobAbort(step.targetDev, BlockJobAbort.PIVOT);
    case 'commit_offline':
      await commitOffline(step.above, bytesPerSecond, options);
      await moveUsers(libvirt, domain, step, signal);
      return rename(domain, step);
    case 'move_readers':
      return moveUsers(libvirt, domain, step, signal);
    case 'rename':
      return rename(domain, step);
    case 'remove_file':
      // refused by QEMU's locks while any process writes to it: then libvirt does not know what QEMU does
      await qemuImg('info', ['-f', 'qcow2', step.path], { signal });
      return removePath(step.path);
    case 'done':
      return;
  }
}

/** Replaces virtkeep's own element, in the definition and in the running domain. @throws LibvirtError */
export async function writeMetadata(domain: Domain, metadata: DomainMetadata): Promise<void> {
  const live = (await domain.isActive()) ? Affect.LIVE : 0;
  const flags = live | ((await domain.isPersistent()) ? Affect.CONFIG : 0);
  const element = metadataElement(metadata);
  await domain.setMetadata(MetadataType.ELEMENT, element, METADATA_PREFIX, METADATA_NAMESPACE, flags);
}

async function report(domain: Domain, targetDev: string, { progress }: MergeOptions): Promise<void> {
  const info = progress && (await domain.blockJobInfo(targetDev));
  if (!info) return;
  progress.total(info.end);
  progress.done(info.cur);
}

/** QEMU's image locks keep the guest from starting while qemu-img writes; `-d` leaves the upper file whole until it is unused. */
async function commitOffline(
  above: string,
  bytesPerSecond: number,
  { signal, progress }: MergeOptions,
): Promise<void> {
  const total = (await stat(above)).blocks * 512;
  progress?.total(total);
  const rate = bytesPerSecond > 0 ? ['-r', String(bytesPerSecond)] : [];
  await qemuImg('commit', ['-d', ...rate, '-f', 'qcow2', above], {
    signal,
    onProgress: percent => progress?.done(Math.round((total * percent) / 100)),
  });
  await fitLower(above, signal);
}

/** Lets the files that stand on the upper one, and the definition when it writes to it, use the lower one. */
async function moveUsers(
  libvirt: Libvirt,
  domain: Domain,
  step: Extract<MergeStep, { do: 'commit_offline' | 'move_readers' }>,
  signal: AbortSignal,
): Promise<void> {
  const layer = await layerBelow(step);
  for (const reader of step.readers) await rebaseUnsafe(reader, layer, { signal });
  // started in between: it writes to the upper file again, merge it while it runs
  if (!(await domain.isPersistent())) return;
  const xml = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
  const targets = [...diskStates(xml)].filter(([, disk]) => disk.sourcePath === step.above);
  if (await writesTo(domain, step.above)) return;
  const sources = Object.fromEntries(targets.map(([target]) => [target, layer]));
  await libvirt.defineDomain(withSources(stripBackingStore(xml), sources));
}

async function writesTo(domain: Domain, path: string): Promise<boolean> {
  if (!(await domain.isActive())) return false;
  return [...diskStates(await domain.xml()).values()].some(disk => disk.sourcePath === path);
}

/** The upper file still names the lower one and its format. */
async function rename(
  domain: Domain,
  step: { states: string[]; layer: string; above: string },
): Promise<void> {
  const layer = await layerBelow(step);
  for (const name of step.states) {
    const xml = await domain.snapshot(name).xml(SnapshotXml.SECURE);
    await domain.createSnapshot(withKeptFile(xml, step.above, layer), SnapshotCreate.REDEFINE);
  }
}

async function reparent(domain: Domain, step: Extract<MergeStep, { do: 'reparent' }>): Promise<void> {
  for (const name of step.states) {
    const xml = await domain.snapshot(name).xml(SnapshotXml.SECURE);
    await domain.createSnapshot(editSnapshot(xml, { parent: step.parent }), SnapshotCreate.REDEFINE);
  }
}

async function layerBelow(step: { layer: string; above: string }): Promise<DiskSource> {
  const below = (await readLayers(step.above, 'qcow2'))[1];
  if (below?.path !== step.layer) throw new Error(`${step.above} does not stand on ${step.layer}`);
  const { path, format } = below;
  return { path, format, block: (await stat(path)).isBlockDevice() };
}
