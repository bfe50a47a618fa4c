/**
 * What to do, decided without doing it: how the automatic state of a backup is made, and the next step of removing one.
 *
 * Removal is a loop of look, decide, act. Nothing is remembered between two rounds, so it goes on after a kill of the
 * agent or of libvirtd, and when the guest is powered off in the middle.
 */
import { basename, dirname, extname, join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { heldReason } from './picture.ts';

/** Names of automatic states start so; whatever bears such a name without a running operation is a leftover. */
export const AUTOMATIC_PREFIX = 'virtkeep-tmp-';

/** Name of the state that keeps the instant of all disks that a domain lends (specification 3.1). */
export const LENDING_STATE = 'vdisks_attached_to_another_domains';

export const automaticStateName = (operationId: string): string => `${AUTOMATIC_PREFIX}${operationId}`;

/** A disk as the planner needs it. */
export interface DiskToFreeze {
  targetDev: string;
  /** The active file or device. */
  path: string;
  /** A device has no directory for an overlay beside it. */
  block: boolean;
  /** Goes into the backup and is written to by the guest. */
  wanted: boolean;
}

export type StateMode = 'quiesced' | 'memory' | 'disks';

export interface StatePlan {
  name: string;
  mode: StateMode;
  /** Per disk of the domain the overlay to be made; null: the disk stays out of the state. */
  disks: { targetDev: string; overlayPath: string | null }[];
  memoryPath: string | null;
}

/**
 * Plans the automatic state of a running domain. Overlays go beside their disks (same file system, same permissions),
 * those of block devices and the memory into `spareDir`.
 * @throws VirtkeepError snapshot_failed when a name would be too long for the file system
 */
export function planAutomaticState(
  domainName: string,
  operationId: string,
  mode: StateMode,
  disks: DiskToFreeze[],
  spareDir: string,
): StatePlan {
  const name = automaticStateName(operationId);
  return planFiles(domainName, { name, mark: name, mode, extension: '' }, disks, spareDir);
}

/**
 * Plans a state that stays: one made by hand, or by an increment. Files are named after the disk's first layer and the
 * operation, since the state's name may be anything.
 * @param spareDir as for `planAutomaticState`
 * @throws VirtkeepError snapshot_failed when a name would be too long for the file system
 */
export function planState(
  domainName: string,
  state: { name: string; operationId: string; mode: StateMode },
  disks: DiskToFreeze[],
  spareDir: string,
): StatePlan {
  const { name, operationId, mode } = state;
  return planFiles(
    domainName,
    { name, mark: `${STATE_MARK}${operationId}`, mode, extension: '.qcow2' },
    disks,
    spareDir,
  );
}

/** In the names of overlays of states that stay, before the operation's id. */
const STATE_MARK = 'state-';
/** What `planState` added to the name of a file that is itself an overlay. */
const STATE_ENDING = /\.[a-z]+\.state-[0-9a-f-]{36}$/;

/** @param names the state's name, and what its files are marked with */
function planFiles(
  domainName: string,
  { name, mark, mode, extension }: { name: string; mark: string; mode: StateMode; extension: string },
  disks: DiskToFreeze[],
  spareDir: string,
): StatePlan {
  return {
    name,
    mode,
    disks: disks.map(disk => ({
      targetDev: disk.targetDev,
      overlayPath: disk.wanted
        ? overlayPath(domainName, disk, `${disk.targetDev}.${mark}${extension}`, spareDir)
        : null,
    })),
    memoryPath: mode === 'memory' ? join(spareDir, `${mark}.memory`) : null,
  };
}

/** 255 is the longest name of every common file system. */
const MAX_NAME_BYTES = 255;

function overlayPath(domainName: string, disk: DiskToFreeze, ending: string, spareDir: string): string {
  const stem = basename(disk.path, extname(disk.path)).replace(STATE_ENDING, '');
  const room = MAX_NAME_BYTES - Buffer.byteLength(`.${ending}`);
  if (room < 1)
    throw new VirtkeepError('snapshot_failed', {
      domain: domainName,
      reason: `the target name ${disk.targetDev} is too long`,
    });
  const short = Buffer.byteLength(stem) <= room ? stem : '_';
  return join(disk.block ? spareDir : dirname(disk.path), `${short}.${ending}`);
}

/** What is seen before each step of a removal. */
export interface RemovalView {
  domain: 'running' | 'off' | 'gone';
  /** It is off, and its next start goes on from its memory with the files that it had. */
  memorySaved: boolean;
  /** libvirt knows the state. */
  state: { hasChildren: boolean; deleting: boolean } | null;
  overlays: {
    targetDev: string;
    path: string;
    exists: boolean;
    /** Top of the disk in the running domain. */
    isLiveTop: boolean;
    mirror: { job: string; ready: boolean } | null;
    /** Top of the disk in the definition of the next start. */
    isConfigTop: boolean;
    /** Below the top of any disk: something later stands on it. */
    isBelow: boolean;
    /** A block job of the disk that has no mirror: a merge below the top. */
    isJobRunning: boolean;
  }[];
  memoryFile: string | null;
  /** libvirt is making a state: it goes on with one although whoever asked for it is gone. */
  isSnapshotting: boolean;
}

export type RemovalStep =
  /** Ends libvirt's job that saves the memory into our file; the overlays come only after it. */
  | { do: 'abort_save' }
  /** libvirt is making a state without memory, perhaps ours; that takes no longer than the freezing of the guest. */
  | { do: 'wait_for_state' }
  /** libvirt's own deletion: merges when later states stand on this one. Not cancellable. */
  | { do: 'native_delete' }
  | { do: 'commit'; targetDev: string }
  /** Merge below the top: somebody put a layer on ours without a state of libvirt. */
  | { do: 'commit_middle'; targetDev: string }
  | { do: 'wait'; targetDev: string }
  | { do: 'pivot'; targetDev: string }
  /** Merge by qemu-img, then let the definition name the file below. */
  | { do: 'commit_offline'; targetDevs: string[] }
  /** The running domain is merged, its definition still names the overlay. */
  | { do: 'fix_definition'; targetDevs: string[] }
  | { do: 'forget' }
  | { do: 'remove_files'; paths: string[] }
  | { do: 'blocked'; reason: string }
  | { do: 'done' };

/** The next step of removing an automatic state. */
export function nextRemovalStep(view: RemovalView): RemovalStep {
  const existing = view.overlays.filter(overlay => overlay.exists).map(overlay => overlay.path);
  const memory = view.memoryFile === null ? [] : [view.memoryFile];
  // the overlays of a domain that somebody undefined hold its newest data: they are not ours to delete
  if (view.domain === 'gone')
    return memory.length > 0 ? { do: 'remove_files', paths: memory } : { do: 'done' };
  const held = heldReason(view);
  if (held !== null && (view.state || existing.length > 0)) return { do: 'blocked', reason: held };
  if (view.isSnapshotting) return { do: memory.length > 0 ? 'abort_save' : 'wait_for_state' };
  if (view.state && (view.state.hasChildren || view.state.deleting)) return { do: 'native_delete' };
  const below = view.overlays.find(overlay => overlay.isBelow && !overlay.isLiveTop);
  if (below) {
    if (view.domain === 'off')
      return { do: 'blocked', reason: `a layer without a state stands on ${below.path}; start the VM` };
    return { do: below.isJobRunning ? 'wait' : 'commit_middle', targetDev: below.targetDev };
  }
  const merge = view.domain === 'running' ? mergeOnline(view) : mergeOffline(view);
  if (merge) return merge;
  if (view.state) return { do: 'forget' };
  const left = [...existing, ...memory];
  return left.length > 0 ? { do: 'remove_files', paths: left } : { do: 'done' };
}

function mergeOnline(view: RemovalView): RemovalStep | undefined {
  const live = view.overlays.find(overlay => overlay.isLiveTop);
  if (live) {
    if (!live.mirror) return { do: 'commit', targetDev: live.targetDev };
    return { do: live.mirror.ready ? 'pivot' : 'wait', targetDev: live.targetDev };
  }
  const stale = view.overlays.filter(overlay => overlay.isConfigTop).map(overlay => overlay.targetDev);
  return stale.length > 0 ? { do: 'fix_definition', targetDevs: stale } : undefined;
}

function mergeOffline(view: RemovalView): RemovalStep | undefined {
  const tops = view.overlays.filter(overlay => overlay.isConfigTop).map(overlay => overlay.targetDev);
  return tops.length > 0 ? { do: 'commit_offline', targetDevs: tops } : undefined;
}
