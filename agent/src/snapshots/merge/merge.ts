/** Merges layers: look, decide, act, look again, so that any step may be the last one before a crash. */
import { type Domain, DomainStateCode } from '@virtkeep/node-libvirt';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { isEmptyOverlay } from '../../disks/index.ts';
import { type ImageDependencies, type LeftImage, removeImages, useElsewhere } from '../../images/index.ts';
import { patiently } from '../../libvirt/errors.ts';
import { type ActOptions, act, endBlockJob, noteStopped } from './act.ts';
import { firstShrunk } from './fit.ts';
import { jobReason, standingReason } from './jobs.ts';
import { innerReasons, unnamedWithout } from './layers.ts';
import { lentLayers, lentLayersLeft, lentLayersOn } from './lent.ts';
import { foreignFiles, type Look, lookAt } from './look.ts';
import { type ChainPicture, heldReason, isTop } from './picture.ts';
import { nextMergeStep, uppersOf } from './plan.ts';
import { requireRoomToMerge } from './room.ts';
import type { AutomaticState, MergeGoal, MergeStep } from './step.ts';

export interface MergeRequest extends MergeGoal {
  domainId: string;
}

export interface MergeOptions extends Omit<ActOptions, 'pollMs' | 'lent' | 'removeLayer' | 'removeMemory'> {
  log: Logger;
  /** Told what the user should know although it worked: what stays, and why. */
  warn(text: string): void;
  /**
   * Told of layers whose disks another node may have gone on with, or that it may use after their merge, when not all of them were
   * heard. It throws while an answer is worth waiting for; when it returns they stay as they are, and so does a state that is still
   * listed. Without it nobody waits.
   */
  settle?(left: readonly LeftImage[]): void;
  /** Called before a running disk takes the lower file for its own; what the upper one has is in it by then. */
  beforePivot?(upperPath: string): Promise<void>;
  /** How long a block job that virtkeep did not start is waited for before it is told. */
  foreignJobPatienceMs?: number;
  /** How long a block job of ours may deal with nothing before it is begun anew. */
  stalledJobPatienceMs?: number;
}

/** A merge is looked at soon at first, since most are small, then ever more rarely. */
const FIRST_POLL_MS = 10;
const POLL_MS = 160;
const FOREIGN_JOB_PATIENCE_MS = 15_000;
/**
 * A job that somebody paused, or whose end libvirt missed, would be waited for without end. It is long, since QEMU reads first of a whole disk
 * which blocks it has, without a word: minutes for a large one on slow storage. A bound of some KiB/s is slower than that between two pieces.
 */
const STALLED_JOB_PATIENCE_MS = 1_800_000;
/** The largest piece that QEMU copies at once. */
const CHUNK_MIB = 16;
/** The same step so many times in a row means an endless loop. */
const MAX_REPEATS = 20;
/**
 * Failures of one step before it is told: the guest may be stopped, or the daemon restarted, in the middle of it. A block
 * job that breaks off is seen only by its being gone, so merges count when they begin anew.
 */
const MAX_FAILURES = 3;
const RETRY_MS = 500;
/** Whoever put such a file on the disk again would have an old layer over what was written since. */
const MERGED_TEXT =
  'It was merged: what it held is in the file below it. Let no disk be it again, and remove it when nobody uses it.';
/** `virDomainPausedReason`: QEMU stopped the guest because its disk was full, or broken. */
const PAUSED_BY_IO_ERROR = 5;

/**
 * Deletes an external or internal state of a domain and merges what it kept, at any place of the tree, the domain running
 * or off. Idempotent: a call that was killed in the middle is completed by the next one, also by one without a name. What
 * several branches read stays as it is until it has one reader left. When the signal fires, the state may be gone and a
 * merge stays where it is; the domain is sound in every moment.
 *
 * The caller holds the domain's lock and has asked `removalRefusal`. A merge that has no room is not begun.
 * @throws VirtkeepError snapshot_remove_failed, with a cause when a step failed; canceled; pool_no_space: the state is still there, untouched;
 *   image_use_unknown: so it is, or its merge goes on later
 */
export async function mergeState(
  images: ImageDependencies,
  request: MergeRequest,
  options: MergeOptions,
): Promise<void> {
  await new Merge(images, request, options).run();
}

/**
 * Removes the state of an operation, whatever has become of it: never made, made in part, merged in part, its disks under
 * other targets, the guest running or off. Idempotent. Afterwards libvirt does not know the state, and no file of it is left
 * but those that somebody else uses by now, or that may hold the newest data of a disk: these are told.
 * When the signal fires, the merge stays where it is and is continued by calling again.
 * @throws VirtkeepError merge_failed, canceled
 */
export async function removeAutomaticState(
  images: ImageDependencies,
  state: AutomaticState,
  options: MergeOptions,
): Promise<void> {
  const { domainId, name } = state;
  const request = { domainId, name, countsAsDeletion: false, stateFiles: state };
  try {
    await new Merge(images, request, options).run();
  } catch (error) {
    if (!hasKey(error, 'snapshot_remove_failed', 'pool_no_space')) throw error;
    const { domain = domainId, reason = reasonOf(error) } = error.params;
    const params = { state: name, domain, reason: String(reason).replace(/\.$/, '') };
    throw new VirtkeepError('merge_failed', params, { cause: error });
  }
}

/** What would be merged into the files below, and what is on its way there; what has arrived is not written again. */
function uppersToAsk(picture: ChainPicture, request: MergeRequest): string[] {
  const noted = (picture.metadata.looseLayers ?? []).flatMap(({ path, merging, stage }) =>
    merging !== undefined && stage !== 'merged' && picture.files.get(merging) === path ? [merging] : [],
  );
  const [uppers] = uppersOf(picture, request);
  const asked = new Set([...uppers, ...lentLayersLeft(picture), ...noted]);
  // nothing is merged into what a disk has for its own by now
  for (const path of lentLayers(picture)) {
    const below = picture.files.get(path);
    if (below && isTop(picture, below)) asked.delete(path);
  }
  return [...asked].filter(path => !picture.inner.has(path));
}

type Commit = Extract<
  MergeStep,
  { do: 'commit_active' | 'commit_middle' | 'commit_offline' | 'commit_detached' }
>;

function isCommit(step: MergeStep): step is Commit {
  return step.do.startsWith('commit_');
}

/** Steps that are repeated until somebody else is done. */
const WAITS: readonly MergeStep['do'][] = ['wait', 'wait_for_job', 'wait_for_state', 'abort_save'];

class Merge {
  readonly #images: ImageDependencies;
  readonly #request: MergeRequest;
  readonly #options: MergeOptions;
  /** Files that somebody else uses, and who. */
  #foreign = new Map<string, string>();
  /** Layers that were not to be kept and stay, by their paths. */
  readonly #staying = new Map<string, LeftImage>();
  /** Layers that were told of before their state was forgotten. */
  readonly #toldUnnamed = new Set<string>();
  /** Upper files of merges for which the other nodes have been asked. */
  readonly #checkedElsewhere = new Set<string>();
  readonly #now = new Date();
  /** How often each merge was begun. */
  readonly #begun = new Map<string, number>();
  /** The disk on which a job was started here, as long as it runs. */
  readonly #started = new Set<string>();
  #last = '';
  #repeats = 0;
  #failures = 0;
  #pollMs = 0;
  #foreignSinceMs: number | undefined;
  /** The job that is waited for, with how far it was, and since when it is there. */
  #stalled: { at: string; sinceMs: number } | undefined;
  /** Whether that job has stood still for too long. */
  #standsStill = false;
  /** What was done last. */
  #tried: { look: Look; step: MergeStep } | undefined;

  constructor(images: ImageDependencies, request: MergeRequest, options: MergeOptions) {
    this.#images = images;
    this.#request = request;
    this.#options = options;
  }

  async run(): Promise<void> {
    try {
      await this.#toItsEnd();
    } catch (error) {
      if (this.#options.signal.aborted) await this.#stopJob();
      throw error;
    }
  }

  async #toItsEnd(): Promise<void> {
    const { domainId, stateFiles } = this.#request;
    const { signal, log } = this.#options;
    const files = stateFiles && { files: stateFiles, signal };
    const libvirt = this.#images.libvirt();
    this.#foreign = await patiently(signal, () => foreignFiles(libvirt, domainId));
    for (;;) {
      const look = await patiently(signal, () => lookAt(libvirt, domainId, this.#foreign, files));
      if (!look) return this.#leaveAll();
      if (!(await this.#mayGoOn(look))) return;
      const goal = { ...this.#request, staying: new Set(this.#staying.keys()) };
      const step = nextMergeStep(look.picture, goal, this.#now);
      if (step.do === 'done') {
        if (this.#begun.size > 0) await resumeStopped(look.domain, log);
        this.#tellStaying();
        this.#tellInner(look.picture);
        return this.#tellLeft(step.left ?? []);
      }
      const held = heldReason(look.picture);
      if (held !== null) throw this.#failed(look.domain, held);
      await this.#require(look, step);
      await this.#try(look, step);
    }
  }

  /**
   * A domain that is off here may run on another node, or have run there, from the files below the layers: then those are
   * newer, and the layers stay. What runs here is where it is.
   * @returns false: the state stays whole, and that is told
   */
  async #mayGoOn({ domain, picture }: Look): Promise<boolean> {
    if (picture.power !== 'off') return true;
    const { domainId, stateFiles } = this.#request;
    const uppers = uppersToAsk(picture, this.#request).filter(path => !this.#checkedElsewhere.has(path));
    if (uppers.length === 0) return true;
    const isWritten = (path: string) => picture.since.get(path) === 'written';
    // those of an operation are told at its end
    const written = stateFiles === undefined ? uppers.find(isWritten) : undefined;
    if (written !== undefined) {
      this.#leaveAllOf(uppers, written, { domain, picture });
      return true;
    }
    // what a deletion merges was made long ago, and no node has a definition from before it: but for what was lent
    const lent = lentLayers(picture);
    const isProven = (path: string) =>
      (stateFiles === undefined && !lent.has(path)) || picture.since.get(path) === 'same';
    const paths = uppers.map(path => picture.files.get(path)!);
    const question = { domainId, paths, proven: uppers.every(isProven) };
    const verdict = await useElsewhere(this.#images, question, this.#options.signal);
    if (verdict.kind === 'used') {
      if (this.#isListed(picture)) throw this.#failed(domain, `its disks are used by ${verdict.by}`);
      for (const path of uppers) this.#foreign.set(path, verdict.by);
    } else if (verdict.kind === 'unknown') {
      this.#settleUnknown(uppers, verdict.reason);
      // nothing was begun: what nobody could merge stays what it is, a state that can be found
      if (stateFiles === undefined && this.#isListed(picture)) return false;
    }
    for (const path of uppers) this.#checkedElsewhere.add(path);
    return true;
  }

  #isListed({ states }: ChainPicture): boolean {
    return states.some(state => state.name === this.#request.name);
  }

  /** All or none: disks of two different moments together are no consistent state. */
  #leaveAllOf(uppers: readonly string[], written: string, { domain, picture }: Look): void {
    const reason =
      `${picture.files.get(written)} was written to since it was lent, as by another node that has run the VM from it; ` +
      `what the VM wrote here is in ${uppers.join(', ')}, which stays`;
    if (this.#isListed(picture)) throw this.#failed(domain, reason);
    for (const path of uppers) {
      this.#foreign.set(path, 'a disk that was written to without it');
      this.#checkedElsewhere.add(path);
    }
    this.#options.warn(`Layers were not merged: ${reason}.`);
  }

  #settleUnknown(uppers: readonly string[], reason: string): void {
    const { settle } = this.#options;
    const text = (path: string) =>
      `${path} was not merged: whether another node has run the VM since is not known (${reason}).`;
    if (!settle) throw new VirtkeepError('image_use_unknown', { path: uppers[0]!, reason });
    settle(uppers.map(path => ({ path, why: 'unknown', reason, text: text(path) })));
    for (const path of uppers) this.#foreign.set(path, 'a node that was not heard');
  }

  /** Refuses a merge without room for it, and a step that is repeated without effect. */
  async #require({ domain, picture }: Look, step: MergeStep): Promise<void> {
    const { signal, log } = this.#options;
    const seen = JSON.stringify(step);
    const isNew = seen !== this.#last;
    const isWait = WAITS.includes(step.do);
    this.#repeats = isNew || isWait ? 0 : this.#repeats + 1;
    this.#pollMs = isNew ? FIRST_POLL_MS : Math.min(2 * this.#pollMs, POLL_MS);
    if (isNew) {
      log[step.do === 'wait' ? 'debug' : 'info']('merging layers', {
        domain: domain.uuid,
        state: this.#request.name,
        step: step.do,
      });
      if (!isWait) this.#failures = 0;
    }
    if (this.#last === '') await this.#requireMergeable({ domain, picture });
    this.#last = seen;
    this.#requireNoForeignJob(domain, step);
    this.#watch(domain, picture, step);
    if (this.#repeats > MAX_REPEATS) throw this.#failed(domain, `"${step.do}" has no effect`);
    if (!isCommit(step)) return;
    const times = (this.#begun.get(seen) ?? 0) + 1;
    this.#begun.set(seen, times);
    if (times > MAX_FAILURES) throw this.#failed(domain, `merging ${step.above} breaks off again and again`);
    signal.throwIfAborted();
  }

  /** @throws VirtkeepError pool_no_space, snapshot_remove_failed for a disk that was made smaller, of a running guest */
  async #requireMergeable({ domain, picture }: Look): Promise<void> {
    const [uppers, freed] = uppersOf(picture, this.#request);
    await requireRoomToMerge(uppers, freed, this.#options.signal);
    const shrunk = picture.power === 'running' ? await firstShrunk(uppers) : undefined;
    if (shrunk === undefined) return;
    const reason = `${shrunk} is smaller than what it stands on; switch the VM off for it`;
    throw this.#failed(domain, reason);
  }

  #requireNoForeignJob(domain: Domain, step: MergeStep): void {
    if (step.do !== 'wait_for_job') {
      this.#foreignSinceMs = undefined;
      return;
    }
    this.#foreignSinceMs ??= performance.now();
    const { foreignJobPatienceMs = FOREIGN_JOB_PATIENCE_MS } = this.#options;
    if (performance.now() - this.#foreignSinceMs < foreignJobPatienceMs) return;
    throw this.#failed(domain, jobReason(step.job, step.targetDev));
  }

  async #try(look: Look, step: MergeStep): Promise<void> {
    const { domain, picture } = look;
    const { signal, log } = this.#options;
    this.#tried = { look, step };
    try {
      if (step.do === 'wait' && this.#standsStill) await this.#endStalled(domain, picture, step.targetDev);
      if (step.do === 'pivot') await this.#options.beforePivot?.(picture.live.get(step.targetDev)!.path);
      if (step.do !== 'wait' && step.do !== 'pivot') this.#started.clear();
      if (isCommit(step)) await requireRoomToMerge([step.above], [], signal);
      if (step.do === 'forget') await this.#tellUnnamed(picture, step.name);
      await act(this.#images.libvirt(), domain, step, {
        ...this.#options,
        pollMs: this.#pollMs,
        lent: lentLayersOn(picture),
        removeLayer: path => this.#removeLayer(path, picture),
        removeMemory: path => this.#removeMemory(path),
      });
      if (step.do === 'commit_active' || step.do === 'commit_middle') this.#started.add(step.targetDev);
    } catch (error) {
      signal.throwIfAborted();
      this.#failures += 1;
      if (this.#failures > MAX_FAILURES || hasKey(error, 'pool_no_space'))
        throw this.#failed(domain, reasonOf(error), error);
      const { name } = this.#request;
      log.warn('a step of a merge failed, looking again', { state: name, step: step.do, error });
      await sleep(RETRY_MS, signal);
    }
  }

  /** Sees whether the job that is waited for stands still, and refuses one that is not to be ended by us: it would be waited for without end. */
  #watch(domain: Domain, picture: ChainPicture, step: MergeStep): void {
    this.#standsStill = false;
    if (step.do !== 'wait') {
      this.#stalled = undefined;
      return;
    }
    const { targetDev } = step;
    const { bandwidthMiB = 0 } = this.#options;
    const chunkMs = bandwidthMiB > 0 ? (1000 * CHUNK_MIB) / bandwidthMiB : 0;
    const { stalledJobPatienceMs = STALLED_JOB_PATIENCE_MS + chunkMs } = this.#options;
    const at = `${targetDev} ${picture.live.get(targetDev)?.jobDone}`;
    if (this.#stalled?.at !== at) this.#stalled = { at, sinceMs: performance.now() };
    if (performance.now() - this.#stalled.sinceMs < stalledJobPatienceMs) return;
    if (!this.#mayEnd(picture, targetDev)) throw this.#failed(domain, standingReason(targetDev));
    this.#standsStill = true;
  }

  /** Ends a job that stands still. What it has merged stays merged; the next look begins it anew, as after any other break. */
  async #endStalled(domain: Domain, picture: ChainPicture, targetDev: string): Promise<void> {
    const { log } = this.#options;
    log.warn('a merge of layers stands still and is begun anew', { domain: domain.uuid, targetDev });
    await endBlockJob(domain, targetDev);
    this.#stalled = undefined;
    await noteStopped(domain, picture.live.get(targetDev)!.path);
  }

  /** Of a commit below the top only who began it knows whose it is. */
  #mayEnd({ live }: ChainPicture, targetDev: string): boolean {
    return this.#started.has(targetDev) || Boolean(live.get(targetDev)?.mirror);
  }

  /**
   * A job would go on without us: it is ended when the user gave up, whatever was asked of libvirt in that moment. That of an operation's
   * own state goes on, since the next run of the agent completes it.
   */
  async #stopJob(): Promise<void> {
    if (this.#request.stateFiles || this.#tried === undefined) return;
    const { look, step } = this.#tried;
    const { domain, picture } = look;
    const isOurs =
      step.do === 'wait' || step.do === 'pivot' || step.do === 'commit_active' || step.do === 'commit_middle';
    if (!isOurs || !this.#mayEnd(picture, step.targetDev)) return;
    const { targetDev } = step;
    const top = picture.live.get(targetDev)?.path;
    if (top === undefined) return;
    // one that does not end may be on its way to its pivot: then it is as it was noted
    await endBlockJob(domain, targetDev)
      .then(() => noteStopped(domain, top))
      .catch(() => {});
  }

  /** The domain is gone: its overlays hold its newest data and stay. */
  async #leaveAll(): Promise<void> {
    const { memoryPath } = this.#request.stateFiles ?? {};
    if (memoryPath !== undefined) await this.#removeMemory(memoryPath);
  }

  /** A file that somebody uses after all stays, with a warning. Nobody else has heard of a file that the operation itself created. */
  async #removeMemory(path: string): Promise<void> {
    const { domainId: ownerId, stateFiles } = this.#request;
    const { signal, warn } = this.#options;
    const unanswered = stateFiles ? 'take' : 'leave';
    const left = await removeImages(this.#images, [path], { ownerId, unanswered, signal });
    for (const { text } of left) warn(text);
    if (left.length > 0) this.#foreign.set(path, 'others');
  }

  /** A file that somebody uses after all stays, and is left alone from now on; QEMU and libvirt get time to let go of it. */
  async #removeLayer(path: string, { metadata }: ChainPicture): Promise<void> {
    const { domainId: ownerId, stateFiles } = this.#request;
    const { signal, log } = this.#options;
    const isMerged = (metadata.looseLayers ?? []).some(({ merging }) => merging === path);
    const isUnheardOf = stateFiles?.unusedIsNothing === true && !isMerged;
    const unanswered = stateFiles ? (isUnheardOf ? 'take' : 'fresh') : 'leave';
    for (let tried = 1; ; tried += 1) {
      const [left] = await removeImages(this.#images, [path], { ownerId, unanswered, signal });
      if (left === undefined) return;
      if (left.why === 'used' && tried < MAX_FAILURES) continue;
      log.warn('a layer stays', { domain: ownerId, reason: left.text });
      this.#foreign.set(path, 'others');
      this.#staying.set(path, isMerged ? { ...left, text: `${left.text} ${MERGED_TEXT}` } : left);
      return;
    }
  }

  /** Last, since an answer may be waited for: by then all is merged that can be. */
  #tellStaying(): void {
    const { settle, warn } = this.#options;
    const staying = [...this.#staying.values()];
    if (settle) settle(staying);
    else for (const { text } of staying) warn(text);
  }

  /** Before the state goes: then nobody finds the layer any more. What an operation made for itself is told at its end. */
  async #tellUnnamed(picture: ChainPicture, name: string): Promise<void> {
    const { signal, warn } = this.#options;
    const state = picture.states.find(candidate => candidate.name === name);
    if (!state || this.#request.stateFiles) return;
    for (const { path, instead, reason } of unnamedWithout(picture, state)) {
      if (this.#toldUnnamed.has(path)) continue;
      this.#toldUnnamed.add(path);
      if (instead !== undefined)
        warn(
          `The VM writes to ${path}, and its definition has ${instead} in that place: its next start is without what was written there. Let the definition have that layer; nothing else names it.`,
        );
      else if (!(await isKnownEmpty(path, signal))) this.#tellLeft([`${path} (${reason})`]);
    }
  }

  #tellInner(picture: ChainPicture): void {
    for (const reason of innerReasons(picture))
      this.#options.warn(`A layer is not merged for now: ${reason}. The VM's next backup merges it then.`);
  }

  #tellLeft(left: readonly string[]): void {
    for (const file of left)
      this.#options.warn(
        `The layer ${file} was not merged and stays: it may hold the newest data of a disk. If the disk is right as it is, remove that file; else let the disk be it again.`,
      );
  }

  #failed(domain: Domain, reason: string, cause?: unknown): VirtkeepError {
    const { name } = this.#request;
    const state = name === null ? 'deleted before' : `"${name}"`;
    const params = { state, domain: domain.name, reason: reason.replace(/\.$/, '') };
    return new VirtkeepError('snapshot_remove_failed', params, { cause });
  }
}

/** Whether nothing was ever written to an overlay; one that cannot be read may hold something. */
async function isKnownEmpty(path: string, signal: AbortSignal): Promise<boolean> {
  try {
    return await isEmptyOverlay(path, { signal });
  } catch {
    throwIfAborted(signal);
    return false;
  }
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
