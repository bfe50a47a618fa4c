/**
 * Pulling the data of a VM that was started from an archive into its own disks, until nothing refers to the archive.
 *
 * A loop of look, decide, act, as in the removal of an automatic state: nothing is remembered between two rounds, so it
 * goes on after a kill of the agent or of libvirtd, and when the VM is switched off or on in between. While the VM runs,
 * QEMU pulls; while it is off or not on this node, qemu-img does, and QEMU's image locks keep the one out while the other
 * works.
 *
 * What is not seen is not done: an image that is not where it was made may be on a pool that is away, or have been moved by
 * somebody, and a VM that is not here may be on another node. While a definition, a header or another node still tells of
 * either, the pull waits, and with it the archive stays held. For a node that gives no answer it does not wait for ever when nothing
 * of the VM is left here.
 */
import { dirname } from 'node:path';
import { BlockJobType, BlockPull, type Domain, DomainXml } from '@virtkeep/node-libvirt';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import type { Logger } from '@virtkeep/shared/log';
import { lockFile } from '../../../archive/index.ts';
import { readImageHeader } from '../../../disks/index.ts';
import { type DiskConfig, parseDomain, stripBackingStore } from '../../../domain-xml/index.ts';
import { type ImageDependencies, type LeftImage, useElsewhere } from '../../../images/index.ts';
import { isNoDomain, patiently } from '../../../libvirt/errors.ts';
import { poolOfPath } from '../../../pools/index.ts';
import type { InstantDisk } from '../../effect.ts';
import { pullOffline, removeUpperLayers } from './offline.ts';

export interface InstantPull {
  domainId: string;
  archivePath: string;
  /** Bytes per second and disk; 0: no limit. */
  bandwidth: number;
  disks: InstantDisk[];
}

export interface PullOptions {
  signal: AbortSignal;
  log: Logger;
  /** Bytes of the disks that are independent, and of all. */
  onProgress?: (doneBytes: number, totalBytes: number) => void;
  /**
   * Told of images that are not here with a VM that is not here, when not all nodes were heard. It throws while an answer is worth
   * waiting for; when it returns they count as gone. Without it they do not.
   */
  settle?(left: readonly LeftImage[]): void;
}

const POLL_MS = 250;
const RETRY_MS = 1000;
/** The same step without effect so often means that it will not help. */
const MAX_FAILURES = 5;

/**
 * Returns when every disk is independent of the archive, or gone together with its domain. Idempotent; when the signal
 * fires, what is pulled stays pulled and QEMU goes on with the disk it works on.
 * @throws VirtkeepError disk_full, qemu_img_failed, libvirt_failed, canceled; what `settle` throws
 */
export async function pullIn(
  dependencies: ImageDependencies,
  pull: InstantPull,
  options: PullOptions,
): Promise<void> {
  const { signal, log } = options;
  let failures = 0;
  let last = '';
  for (;;) {
    const { domain, view } = await lookPatiently(dependencies, pull, signal);
    options.onProgress?.(doneBytes(view), totalBytes(view));
    const step = nextPullStep(view);
    if (step.do === 'give_up') giveUp(pull, step.reason, options);
    if (step.do === 'done' || step.do === 'give_up') {
      for (const disk of pull.disks) await removeUpperLayers(disk, signal);
      return;
    }
    if (step.do === 'wait') {
      await sleep(POLL_MS, signal);
      continue;
    }
    const seen = JSON.stringify([step, view.disks.map(disk => disk.allocatedSize)]);
    failures = seen === last ? failures + 1 : 0;
    last = seen;
    try {
      if (failures > MAX_FAILURES) throw stuck(step);
      log.info('pulling the data of an instant restore', { domainId: pull.domainId, step });
      await act(dependencies, domain, pull, { step, signal });
    } catch (error) {
      throwIfAborted(signal);
      // the VM may have been started or switched off between looking and acting: look again, a few times
      if (failures > MAX_FAILURES) throw error;
      log.warn('a step of an instant restore failed, looking again', { step, error });
    }
    if (failures > 0) await sleep(RETRY_MS, signal);
  }
}

/**
 * The same, with the archive held against everybody who would change or remove it. It is held by the whole operation; this
 * is what an earlier run of the agent let go.
 * @throws VirtkeepError as {@link pullIn}; file_busy while another node writes the archive
 */
export async function pullLocked(
  dependencies: ImageDependencies,
  pull: InstantPull,
  options: PullOptions,
): Promise<void> {
  const lock = (await exists(pull.archivePath)) ? await lockFile(pull.archivePath, 'shared') : null;
  try {
    await pullIn(dependencies, pull, options);
  } finally {
    await lock?.release();
  }
}

/** The VM may be switched off between two questions about it: then they are asked again. */
async function lookPatiently(
  dependencies: ImageDependencies,
  pull: InstantPull,
  signal: AbortSignal,
): ReturnType<typeof look> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await patiently(signal, () => look(dependencies, pull, signal));
    } catch (error) {
      throwIfAborted(signal);
      if (failures > MAX_FAILURES) throw error;
    }
    await sleep(RETRY_MS, signal);
  }
}

/** Returns when the answer is not waited for any more. */
function giveUp({ archivePath, disks }: InstantPull, reason: string, { settle }: PullOptions): void {
  if (!settle) throw stuck({ do: 'blocked', reason });
  const paths = disks.map(({ overlayPath }) => overlayPath);
  const text =
    `Not all data were pulled out of ${archivePath}: neither the VM nor its images (${paths.join(', ')}) are here, and whether another ` +
    `node has them is not known (${reason}). Keep the archive until that is known: they would still need it.`;
  settle([{ path: paths[0]!, why: 'unknown', reason, text }]);
}

function stuck(step: PullStep): VirtkeepError {
  const reason =
    step.do === 'blocked'
      ? step.reason
      : `the data cannot be pulled in ("${step.do}" has no effect; is there space in the pool?)`;
  return new VirtkeepError('libvirt_failed', { call: 'virDomainBlockPull', reason });
}

/** What is seen before each step. */
export interface PullView {
  domain: 'running' | 'off' | 'gone';
  disks: {
    targetDev: string;
    virtualSize: number;
    /** Bytes that the overlay takes: as long as they grow, a repeated step is no vain one. */
    allocatedSize: number;
    /** The running VM reads the archive through this disk. */
    liveOnArchive: boolean;
    /** What the running VM writes to is the overlay itself, and not a layer that somebody put on it. */
    isLiveTop: boolean;
    /** The overlay is part of a running VM's disk. */
    inUse: boolean;
    /** Bytes QEMU has pulled; null when it is not at it. */
    jobBytes: number | null;
    /** The overlay's header says that it is unfinished. */
    unfinished: boolean;
  }[];
  /** The definition of the next start names a chain. */
  chainDefined: boolean;
  /** What another node has to do with the VM, or may have: nothing is pulled from here, and none that is absent is gone. */
  elsewhere: string | null;
  /** Why that is not known, when nothing else is missing: neither the VM nor an image is here, though what these lay on is. */
  unheard: string | null;
  /** Which image of the domain is not proven to be independent, although no overlay that is there says so. */
  unproven: string | null;
}

export type PullStep =
  | { do: 'pull'; targetDev: string }
  | { do: 'wait' }
  | { do: 'pull_offline'; targetDev: string }
  | { do: 'define' }
  | { do: 'blocked'; reason: string }
  /** As soon as no answer of other nodes is waited for. */
  | { do: 'give_up'; reason: string }
  | { do: 'done' };

/** The next step, one disk after the other. */
export function nextPullStep(view: PullView): PullStep {
  for (const disk of view.disks) {
    const { targetDev } = disk;
    if (disk.jobBytes !== null) return { do: 'wait' };
    if (disk.liveOnArchive && !disk.isLiveTop)
      return { do: 'blocked', reason: `a layer was put on ${targetDev} before its data were pulled in` };
    if (disk.liveOnArchive) return { do: 'pull', targetDev };
    if (disk.unfinished && disk.inUse) return { do: 'wait' };
    if (disk.unfinished && view.elsewhere === null) return { do: 'pull_offline', targetDev };
  }
  if (view.unheard !== null) return { do: 'give_up', reason: view.unheard };
  const reason = view.elsewhere ?? view.unproven;
  if (reason !== null) return { do: 'blocked', reason };
  return view.chainDefined ? { do: 'define' } : { do: 'done' };
}

function totalBytes(view: PullView): number {
  return view.disks.reduce((sum, disk) => sum + disk.virtualSize, 0);
}

function doneBytes(view: PullView): number {
  return view.disks.reduce(
    (sum, disk) => sum + (disk.unfinished ? (disk.jobBytes ?? 0) : disk.virtualSize),
    0,
  );
}

async function look(
  dependencies: ImageDependencies,
  pull: InstantPull,
  signal: AbortSignal,
): Promise<{ domain: Domain | null; view: PullView }> {
  const domain = await findDomain(dependencies, pull.domainId);
  const isRunning = domain !== null && (await domain.isActive());
  const live = isRunning ? parseDomain(await domain.xml()).disks : [];
  const isDefined = domain !== null && (await domain.isPersistent());
  const config = isDefined ? parseDomain(await domain.xml(DomainXml.INACTIVE)).disks : [];
  const seen = await Promise.all(pull.disks.map(disk => viewOf({ domain, isRunning, live }, pull, disk)));
  const disks = seen.map(({ view }) => view);
  const targets = new Set(pull.disks.map(disk => disk.targetDev));
  const absent = domain === null ? seen.flatMap(({ absentPath }) => absentPath ?? []) : [];
  const mustAsk = !isRunning && (absent.length > 0 || disks.some(({ unfinished }) => unfinished));
  const use = mustAsk
    ? await useByOthers(dependencies, pull, { isGone: domain === null, absent }, signal)
    : null;
  const isLost = absent.length === pull.disks.length && (await isGroundThere(dependencies, absent, signal));
  const view: PullView = {
    domain: domain === null ? 'gone' : isRunning ? 'running' : 'off',
    disks,
    chainDefined: config.some(disk => targets.has(disk.targetDev) && disk.backingChain !== undefined),
    elsewhere: use?.reason ?? null,
    unheard: isLost ? (use?.unheard ?? null) : null,
    unproven: await unprovenAmong([...live, ...config], pull),
  };
  return { domain, view };
}

async function findDomain({ libvirt }: ImageDependencies, domainId: string): Promise<Domain | null> {
  try {
    return await libvirt().domainByUuid(domainId);
  } catch (error) {
    if (isNoDomain(error)) return null;
    throw error;
  }
}

/** The images of a disk as libvirt knows them, top to bottom. */
const chainOf = (disk: DiskConfig) => [disk.path, ...(disk.backingChain ?? []).map(layer => layer.path)];

async function viewOf(
  { domain, isRunning, live }: { domain: Domain | null; isRunning: boolean; live: DiskConfig[] },
  pull: InstantPull,
  { targetDev, overlayPath }: InstantDisk,
): Promise<{ view: PullView['disks'][number]; absentPath: string | null }> {
  const readsArchive = (disk: DiskConfig) => chainOf(disk).includes(pull.archivePath);
  // an overlay that somebody has moved is known by what it stands on
  const user =
    live.find(disk => chainOf(disk).includes(overlayPath)) ??
    live.find(disk => disk.targetDev === targetDev && readsArchive(disk));
  const header = (await exists(overlayPath)) ? await readImageHeader(overlayPath) : null;
  const job = isRunning && user ? await domain!.blockJobInfo(user.targetDev) : null;
  const view = {
    targetDev: user?.targetDev ?? targetDev,
    virtualSize: header?.virtualSize ?? 0,
    allocatedSize: header?.allocatedSize ?? 0,
    liveOnArchive: user !== undefined && readsArchive(user),
    isLiveTop: user !== undefined && (user.path === overlayPath || chainOf(user)[1] === pull.archivePath),
    inUse: user !== undefined,
    jobBytes: job?.type === BlockJobType.PULL ? Number(job.cur) : null,
    unfinished: header?.backingFile !== undefined,
  };
  return { view, absentPath: header === null ? overlayPath : null };
}

/**
 * Whether the VM, or somebody at its images, is on another node. While the VM is defined here, only what is proven counts: QEMU's
 * locks do the rest. One that is not here is looked for.
 * @param absent images that are not here
 * @returns what speaks against a pull; with `unheard`, it is only that a node was not heard
 */
async function useByOthers(
  dependencies: ImageDependencies,
  { domainId, disks }: InstantPull,
  { isGone, absent }: { isGone: boolean; absent: readonly string[] },
  signal: AbortSignal,
): Promise<{ reason: string; unheard?: string } | null> {
  const paths = disks.map(({ overlayPath }) => overlayPath);
  const use = await useElsewhere(dependencies, { domainId, paths, proven: true, isRead: isGone }, signal);
  if (use.kind === 'used') return { reason: `${use.by} uses the disks, and pulls nothing in` };
  const [answer] =
    absent.length > 0
      ? await dependencies.otherNodes.whoUses([{ kind: 'domain', id: domainId }], signal)
      : [];
  // a thin clone elsewhere is not the VM
  if (answer?.kind === 'used' && answer.by.domainId === domainId)
    return { reason: `the VM is on the node ${answer.by.nodeName}, and ${absent[0]} is not here` };
  if (use.kind === 'free') return null;
  return { reason: `whether the VM is on another node is not known: ${use.reason}`, unheard: use.reason };
}

/** Whether what these files lay on is there, so that their absence says something; a directory of their own may be gone with them. */
async function isGroundThere(
  dependencies: ImageDependencies,
  paths: readonly string[],
  signal: AbortSignal,
): Promise<boolean> {
  const pools = await dependencies.pools(signal);
  for (const path of paths) {
    const pool = poolOfPath(path, pools);
    if (pool?.mounted === false || !(await exists(pool?.path ?? dirname(path)))) return false;
  }
  return true;
}

/**
 * Of the domain's disks that stand on what the restore made, or took the place of what is not there any more, the first that is
 * not independent of the archive as far as the files themselves tell. Only without one may the definition forget the chain.
 */
async function unprovenAmong(disks: readonly DiskConfig[], pull: InstantPull): Promise<string | null> {
  const made = [pull.archivePath, ...pull.disks.map(({ overlayPath }) => overlayPath)];
  const lost: string[] = [];
  for (const { targetDev, overlayPath } of pull.disks) if (!(await exists(overlayPath))) lost.push(targetDev);
  for (const disk of disks) {
    const isNamed = chainOf(disk).some(path => path !== undefined && made.includes(path));
    if (disk.path === undefined || !(isNamed || lost.includes(disk.targetDev))) continue;
    const end = await endOf(disk.path);
    if ('absent' in end) return `${end.absent} is not there`;
    if ('unfinished' in end) return `${end.unfinished} still needs the archive`;
  }
  return null;
}

/** Where a chain ends by its headers: at a file that is not there, at one that a pull has not finished, or as a whole disk. */
async function endOf(path: string): Promise<{ absent: string } | { unfinished: string } | { whole: string }> {
  const passed = new Set<string>();
  for (let next = path; ; ) {
    if (!(await exists(next))) return { absent: next };
    const { backingFile, backingPath } = await readImageHeader(next);
    if (backingFile === undefined) return { whole: next };
    passed.add(next);
    if (backingPath === undefined || passed.has(backingPath)) return { unfinished: next };
    next = backingPath;
  }
}

async function act(
  { libvirt }: ImageDependencies,
  domain: Domain | null,
  pull: InstantPull,
  { step, signal }: { step: PullStep; signal: AbortSignal },
): Promise<void> {
  switch (step.do) {
    case 'pull':
      return domain!.blockPull(step.targetDev, pull.bandwidth, BlockPull.BANDWIDTH_BYTES);
    case 'pull_offline':
      return pullOffline(
        pull.archivePath,
        pull.disks.find(disk => disk.targetDev === step.targetDev)!,
        signal,
      );
    case 'define': {
      const xml = await domain!.xml(DomainXml.INACTIVE | DomainXml.SECURE);
      // somebody may have changed it since it was looked at
      const reason = await unprovenAmong(parseDomain(xml).disks, pull);
      if (reason !== null) throw stuck({ do: 'blocked', reason });
      await libvirt().defineDomain(stripBackingStore(xml));
      return;
    }
    case 'blocked':
      throw stuck(step);
    case 'wait':
    case 'give_up':
    case 'done':
      return;
  }
}
