/** Removes an automatic state: merges its overlays back, layer by layer, and takes away what it left. */
import { stat } from 'node:fs/promises';
import {
  BlockCommit,
  BlockJobAbort,
  type Domain,
  DomainXml,
  ErrorCode,
  type JobStats,
  JobType,
  type Libvirt,
  SnapshotDelete,
} from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { fromIoError, hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { exists, removePath } from '@virtkeep/shared/files';
import type { Logger } from '@virtkeep/shared/log';
import { qemuImg, readLayers } from '../disks/index.ts';
import { findDomain } from '../libvirt/domains.ts';
import { isAnswer, patiently } from '../libvirt/errors.ts';
import { requireRoomToMerge } from './merge-room.ts';
import { AUTOMATIC_PREFIX, nextRemovalStep, type RemovalStep, type RemovalView } from './plan.ts';
import { diskStates, savedStateOf, withSources } from './state-xml.ts';

/** What removing needs to know; the same as the journal's `automatic_state` effect. */
export interface AutomaticState {
  domainId: string;
  name: string;
  overlays: { targetDev: string; path: string }[];
  memoryPath?: string;
}

export interface RemoveOptions {
  signal: AbortSignal;
  log: Logger;
  /** Bound of the merge, MiB/s; 0 = none. */
  bandwidthMiB?: number;
  /** Called before a running disk takes the lower file for its own; what the upper one has is in it by then. */
  beforePivot?(targetDev: string): Promise<void>;
}

const POLL_MS = 150;
/** `virDomainJobOperation`: a state is being made. */
const SNAPSHOT_OPERATION = 6;
const NO_JOB: JobStats = { type: JobType.NONE, params: {} };
/** A view that does not change through so many steps means that we would turn in circles. */
const MAX_STEPS_WITHOUT_CHANGE = 20;
/** Merges of one disk that break off, before it is told. */
const MAX_MERGES = 3;
/** Steps that are repeated until somebody else is done. */
const WAITS = new Set<RemovalStep['do']>(['wait', 'wait_for_state', 'abort_save']);

/**
 * Removes the state, whatever has become of it: never made, made in part, merged in part, the guest running or off.
 * Idempotent. Afterwards libvirt does not know the state, no disk stands on an overlay and the files are gone.
 * When the signal fires, the merge stays where it is and may be continued by calling again.
 * @throws VirtkeepError merge_failed, canceled
 */
export async function removeAutomaticState(
  libvirt: Libvirt,
  state: AutomaticState,
  options: RemoveOptions,
): Promise<void> {
  let last = '';
  let repeated = 0;
  const begun = new Map<string, number>();
  for (;;) {
    const { step, domain } = await patiently(options.signal, () => look(libvirt, state));
    if (step.do === 'done') return;
    const seen = JSON.stringify(step);
    const isNew = seen !== last;
    repeated = !isNew && !WAITS.has(step.do) ? repeated + 1 : 0;
    last = seen;
    if (repeated > MAX_STEPS_WITHOUT_CHANGE) throw failed(state, `"${step.do}" has no effect`);
    const uppers = uppersOf(state, step);
    // a block job that breaks off is seen only by its being gone: merges count when they begin anew
    if (uppers.length > 0) begun.set(seen, (begun.get(seen) ?? 0) + 1);
    if (begun.get(seen)! > MAX_MERGES) throw failed(state, `merging ${uppers[0]} breaks off again and again`);
    if (isNew && step.do !== 'wait')
      options.log.info('removing the automatic state', { state: state.name, step });
    try {
      await requireRoomToMerge(uppers, [], options.signal);
      await act(libvirt, domain, state, step, options);
    } catch (error) {
      options.signal.throwIfAborted();
      // the guest may have been stopped, or the daemon restarted, between looking and acting: look again, a few times
      if (repeated >= 3 || hasKey(error, 'pool_no_space')) throw failed(state, reasonOf(error), error);
      options.log.warn('a step of the removal failed, looking again', { state: state.name, step, error });
      last = seen;
      repeated += 1;
      await sleep(500, options.signal);
    }
  }
}

/** The files that the step merges into the ones below them. */
function uppersOf(state: AutomaticState, step: RemovalStep): string[] {
  const targets =
    step.do === 'commit' || step.do === 'commit_middle'
      ? [step.targetDev]
      : step.do === 'commit_offline'
        ? step.targetDevs
        : [];
  return overlaysOf(state, targets).map(({ path }) => path);
}

function failed(state: AutomaticState, reason: string, cause?: unknown): VirtkeepError {
  return new VirtkeepError(
    'merge_failed',
    { state: state.name, domain: state.domainId, reason: reason.replace(/\.$/, '') },
    { cause },
  );
}

async function look(
  libvirt: Libvirt,
  state: AutomaticState,
): Promise<{ step: RemovalStep; domain: Domain | null }> {
  const domain = await findDomain(libvirt, state.domainId);
  const view = await viewOf(domain, state);
  return { step: nextRemovalStep(view), domain };
}

async function viewOf(domain: Domain | null, state: AutomaticState): Promise<RemovalView> {
  const memoryFile =
    state.memoryPath !== undefined && (await exists(state.memoryPath)) ? state.memoryPath : null;
  if (!domain)
    return {
      domain: 'gone',
      memorySaved: false,
      state: null,
      overlays: [],
      memoryFile,
      isSnapshotting: false,
    };
  const running = await domain.isActive();
  const live = running ? diskStates(await domain.xml(0)) : new Map();
  const config = (await domain.isPersistent()) ? diskStates(await domain.xml(DomainXml.INACTIVE)) : new Map();
  const below = await filesBelow([...live.values(), ...config.values()].map(disk => disk.sourcePath));
  const overlays = await Promise.all(
    state.overlays.map(async ({ targetDev, path }) => ({
      targetDev,
      path,
      exists: await exists(path),
      isLiveTop: live.get(targetDev)?.sourcePath === path,
      mirror: live.get(targetDev)?.mirror ?? null,
      isConfigTop: config.get(targetDev)?.sourcePath === path,
      isBelow: below.has(path),
      isJobRunning: running && below.has(path) && (await domain.blockJobInfo(targetDev)) !== null,
    })),
  );
  return {
    domain: running ? 'running' : 'off',
    memorySaved: !running && (await domain.hasManagedSave()),
    state: await stateView(domain, state),
    overlays,
    memoryFile,
    isSnapshotting: running && (await isSnapshotting(domain)),
  };
}

async function isSnapshotting(domain: Domain): Promise<boolean> {
  const { type, params } = await domain.jobStats().catch(error => {
    if (isAnswer(error, ErrorCode.OPERATION_INVALID)) return NO_JOB; // switched off meanwhile
    throw error;
  });
  const runs = type === JobType.BOUNDED || type === JobType.UNBOUNDED;
  return runs && params.operation === SNAPSHOT_OPERATION;
}

/** A state of the same name that somebody else made is not the one that was declared. */
async function stateView(domain: Domain, state: AutomaticState): Promise<RemovalView['state']> {
  const snapshot = await domain.findSnapshot(state.name);
  if (!snapshot) return null;
  const [children, xml] = [await snapshot.children(), await snapshot.xml()];
  const { overlays, memoryPath } = savedStateOf(xml, false);
  const files = [...Object.values(overlays), memoryPath];
  const own = [...state.overlays.map(({ path }) => path), state.memoryPath];
  if (
    !state.name.startsWith(AUTOMATIC_PREFIX) &&
    !own.some(path => path !== undefined && files.includes(path))
  )
    return null;
  return { hasChildren: children.length > 0, deleting: xml.includes('<snapshotDeleteInProgress') };
}

/** Every file below the given tops; tops that cannot be read have none. */
async function filesBelow(tops: (string | null)[]): Promise<Set<string>> {
  const found = new Set<string>();
  for (const top of new Set(tops)) {
    if (top === null || !(await exists(top))) continue;
    for (const layer of (await readLayers(top)).slice(1)) found.add(layer.path);
  }
  return found;
}

async function act(
  libvirt: Libvirt,
  domain: Domain | null,
  state: AutomaticState,
  step: RemovalStep,
  options: RemoveOptions,
): Promise<void> {
  if (step.do === 'remove_files') return removeFiles(step.paths, options.signal);
  if (step.do === 'blocked') throw failed(state, step.reason);
  if (!domain) return;
  switch (step.do) {
    case 'native_delete':
      return domain.snapshot(state.name).delete(0, { timeoutMs: 0 });
    case 'commit':
      return startCommit(domain, step.targetDev, options);
    case 'commit_middle':
      return startMiddleCommit(domain, step.targetDev, state, options);
    case 'abort_save':
      await domain.abortJob();
      return sleep(POLL_MS, options.signal);
    case 'wait':
    case 'wait_for_state':
      return sleep(POLL_MS, options.signal);
    case 'pivot':
      await options.beforePivot?.(step.targetDev);
      return domain.blockJobAbort(step.targetDev, BlockJobAbort.PIVOT);
    case 'commit_offline':
      return commitOffline(libvirt, domain, overlaysOf(state, step.targetDevs), options.signal);
    case 'fix_definition':
      return nameFilesBelow(libvirt, domain, overlaysOf(state, step.targetDevs));
    case 'forget':
      return domain.snapshot(state.name).delete(SnapshotDelete.METADATA_ONLY);
    case 'done':
      return;
  }
}

/** SHALLOW is vital: without it everything would be merged into the bottom file, be it a template or an archive. */
async function startCommit(domain: Domain, targetDev: string, options: RemoveOptions): Promise<void> {
  const flags = BlockCommit.SHALLOW | BlockCommit.ACTIVE;
  await domain.blockCommit(targetDev, null, null, options.bandwidthMiB ?? 0, flags);
}

/** Merges our overlay, and only it, into the file right below; the job ends by itself. */
async function startMiddleCommit(
  domain: Domain,
  targetDev: string,
  state: AutomaticState,
  options: RemoveOptions,
): Promise<void> {
  const [{ path }] = overlaysOf(state, [targetDev]) as [AutomaticState['overlays'][number]];
  const below = (await readLayers(path, 'qcow2'))[1];
  if (!below) throw new Error(`${path} has no backing file`);
  await domain.blockCommit(targetDev, below.path, path, options.bandwidthMiB ?? 0, 0);
}

function overlaysOf(state: AutomaticState, targetDevs: string[]): AutomaticState['overlays'] {
  return state.overlays.filter(overlay => targetDevs.includes(overlay.targetDev));
}

/** QEMU's image locks keep the guest from starting while qemu-img writes; `-d` keeps the overlay whole until it is unused. */
async function commitOffline(
  libvirt: Libvirt,
  domain: Domain,
  overlays: AutomaticState['overlays'],
  signal: AbortSignal,
): Promise<void> {
  for (const { path } of overlays) await qemuImg('commit', ['-q', '-d', '-f', 'qcow2', path], { signal });
  if (await domain.isActive()) return; // started in between: it writes to the overlay again, merge it while it runs
  await nameFilesBelow(libvirt, domain, overlays);
}

/** Lets the definition name the file below each overlay, as it did before the state was made. */
async function nameFilesBelow(
  libvirt: Libvirt,
  domain: Domain,
  overlays: AutomaticState['overlays'],
): Promise<void> {
  const sources: Parameters<typeof withSources>[1] = {};
  for (const { targetDev, path } of overlays) {
    const below = (await readLayers(path, 'qcow2'))[1];
    if (!below) throw new Error(`${path} has no backing file`);
    const block = (await stat(below.path)).isBlockDevice();
    sources[targetDev] = { path: below.path, format: below.format, block };
  }
  const xml = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
  await libvirt.defineDomain(withSources(xml, sources));
}

async function removeFiles(paths: string[], signal: AbortSignal): Promise<void> {
  for (const path of paths) {
    try {
      // refused by QEMU's locks while any process writes to it: then libvirt does not know what QEMU does
      if (!path.endsWith('.memory')) await qemuImg('info', ['-f', 'qcow2', path], { signal });
      await removePath(path);
    } catch (error) {
      throw fromIoError(error, 'removing', path);
    }
  }
}
