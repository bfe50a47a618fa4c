/**
 * Pulling the data of a VM that was started from an archive into its own disks, until nothing refers to the archive.
 *
 * A loop of look, decide, act, as in the removal of an automatic state: nothing is remembered between two rounds, so it
 * goes on after a kill of the agent or of libvirtd, and when the VM is switched off or on in between. While the VM runs,
 * QEMU pulls; while it is off, qemu-img does, and QEMU's image locks keep the one out while the other works.
 */
import { BlockJobType, BlockPull, type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import type { Logger } from '@virtkeep/shared/log';
import { lockFile } from '../../../archive/index.ts';
import { readImageHeader } from '../../../disks/index.ts';
import { type DiskConfig, parseDomain, stripBackingStore } from '../../../domain-xml/index.ts';
import { isNoDomain, patiently } from '../../../libvirt/errors.ts';
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
}

const POLL_MS = 250;
const RETRY_MS = 1000;
/** The same step without effect so often means that it will not help. */
const MAX_FAILURES = 5;

/**
 * Returns when every disk is independent of the archive, or the domain is gone. Idempotent; when the signal fires, what
 * is pulled stays pulled and QEMU goes on with the disk it works on.
 * @throws VirtkeepError disk_full, qemu_img_failed, libvirt_failed, canceled
 */
export async function pullIn(libvirt: Libvirt, pull: InstantPull, options: PullOptions): Promise<void> {
  const { signal, log } = options;
  let failures = 0;
  let last = '';
  for (;;) {
    const { domain, view } = await lookPatiently(libvirt, pull, signal);
    if (view.domain === 'gone') return;
    options.onProgress?.(doneBytes(view), totalBytes(view));
    const step = nextPullStep(view);
    if (step.do === 'done') {
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
      await act({ libvirt, domain: domain! }, pull, step, signal);
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
export async function pullLocked(libvirt: Libvirt, pull: InstantPull, options: PullOptions): Promise<void> {
  const lock = (await exists(pull.archivePath)) ? await lockFile(pull.archivePath, 'shared') : null;
  try {
    await pullIn(libvirt, pull, options);
  } finally {
    await lock?.release();
  }
}

/** The VM may be switched off between two questions about it: then they are asked again. */
async function lookPatiently(
  libvirt: Libvirt,
  pull: InstantPull,
  signal: AbortSignal,
): ReturnType<typeof look> {
  for (let failures = 1; ; failures += 1) {
    try {
      return await patiently(signal, () => look(libvirt, pull));
    } catch (error) {
      throwIfAborted(signal);
      if (failures > MAX_FAILURES) throw error;
    }
    await sleep(RETRY_MS, signal);
  }
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
}

export type PullStep =
  | { do: 'pull'; targetDev: string }
  | { do: 'wait' }
  | { do: 'pull_offline'; targetDev: string }
  | { do: 'define' }
  | { do: 'blocked'; reason: string }
  | { do: 'done' };

/** The next step, one disk after the other. */
export function nextPullStep(view: PullView): PullStep {
  if (view.domain === 'gone') return { do: 'done' };
  for (const disk of view.disks) {
    const { targetDev } = disk;
    if (disk.jobBytes !== null) return { do: 'wait' };
    if (disk.liveOnArchive && !disk.isLiveTop)
      return { do: 'blocked', reason: `a layer was put on ${targetDev} before its data were pulled in` };
    if (disk.liveOnArchive) return { do: 'pull', targetDev };
    if (disk.unfinished) return disk.inUse ? { do: 'wait' } : { do: 'pull_offline', targetDev };
  }
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

async function look(libvirt: Libvirt, pull: InstantPull): Promise<{ domain: Domain | null; view: PullView }> {
  let domain: Domain;
  try {
    domain = await libvirt.domainByUuid(pull.domainId);
  } catch (error) {
    if (isNoDomain(error)) return { domain: null, view: { domain: 'gone', disks: [], chainDefined: false } };
    throw error;
  }
  const running = await domain.isActive();
  const live = running ? parseDomain(await domain.xml()).disks : [];
  const config = (await domain.isPersistent()) ? parseDomain(await domain.xml(DomainXml.INACTIVE)).disks : [];
  const disks = await Promise.all(pull.disks.map(disk => viewOf({ domain, running, live }, pull, disk)));
  const targets = new Set(pull.disks.map(disk => disk.targetDev));
  const chainDefined = config.some(disk => targets.has(disk.targetDev) && disk.backingChain !== undefined);
  return { domain, view: { domain: running ? 'running' : 'off', disks, chainDefined } };
}

async function viewOf(
  { domain, running, live }: { domain: Domain; running: boolean; live: DiskConfig[] },
  pull: InstantPull,
  { targetDev, overlayPath }: InstantDisk,
): Promise<PullView['disks'][number]> {
  const chainOf = (disk: DiskConfig) => [disk.path, ...(disk.backingChain ?? []).map(layer => layer.path)];
  const user = live.find(disk => chainOf(disk).includes(overlayPath));
  const liveOnArchive = user !== undefined && chainOf(user).includes(pull.archivePath);
  const header = (await exists(overlayPath)) ? await readImageHeader(overlayPath) : null;
  const job = running && user ? await domain.blockJobInfo(user.targetDev) : null;
  return {
    targetDev: user?.targetDev ?? targetDev,
    virtualSize: header?.virtualSize ?? 0,
    allocatedSize: header?.allocatedSize ?? 0,
    liveOnArchive,
    isLiveTop: user?.path === overlayPath,
    inUse: user !== undefined,
    jobBytes: job?.type === BlockJobType.PULL ? Number(job.cur) : null,
    unfinished: header?.backingFile !== undefined,
  };
}

async function act(
  { libvirt, domain }: { libvirt: Libvirt; domain: Domain },
  pull: InstantPull,
  step: PullStep,
  signal: AbortSignal,
): Promise<void> {
  switch (step.do) {
    case 'pull':
      return domain.blockPull(step.targetDev, pull.bandwidth, BlockPull.BANDWIDTH_BYTES);
    case 'pull_offline':
      return pullOffline(
        pull.archivePath,
        pull.disks.find(disk => disk.targetDev === step.targetDev)!,
        signal,
      );
    case 'define': {
      const xml = await domain.xml(DomainXml.INACTIVE | DomainXml.SECURE);
      await libvirt.defineDomain(stripBackingStore(xml));
      return;
    }
    case 'blocked':
      throw stuck(step);
    case 'wait':
    case 'done':
      return;
  }
}
