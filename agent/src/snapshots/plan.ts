/** How a state is made, decided without making it: the automatic one of a backup, or one that stays. */
import { basename, dirname, extname, join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';

/** Names of automatic states start so; a state with such a name and without a running operation is a leftover. */
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
  /** The disk goes into the backup, and the guest writes to it. */
  included: boolean;
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
 * @throws VirtkeepError snapshot_failed when a name would be too long for the file system; power_state_conflict for a disk named with `..`
 */
export function planAutomaticState(
  domainName: string,
  { operationId, mode }: { operationId: string; mode: StateMode },
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
 * @throws VirtkeepError snapshot_failed when a name would be too long for the file system; power_state_conflict for a disk named with `..`
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

/** A file's name without its extension, and without what a state's overlay has before that. */
export const stemOf = (path: string): string => basename(path, extname(path)).replace(STATE_ENDING, '');

/** Whether a file is called as the overlay of a state that `planState` planned. */
export const isStateOverlay = (path: string): boolean => STATE_ENDING.test(basename(path, extname(path)));

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
      overlayPath: disk.included
        ? overlayPath(domainName, disk, `${disk.targetDev}.${mark}${extension}`, spareDir)
        : null,
    })),
    memoryPath: mode === 'memory' ? join(spareDir, `${mark}.memory`) : null,
  };
}

/** 255 is the longest name of every common file system. */
const MAX_NAME_BYTES = 255;

function overlayPath(domainName: string, disk: DiskToFreeze, ending: string, spareDir: string): string {
  // behind a link the overlay's header would be read as naming another file than the disk's
  if (disk.path.split('/').includes('..'))
    throw new VirtkeepError('power_state_conflict', {
      domain: domainName,
      state: `one whose disk ${disk.targetDev} is named ${disk.path}`,
      action: 'given a state; name the file without ".."',
    });
  const stem = stemOf(disk.path);
  const room = MAX_NAME_BYTES - Buffer.byteLength(`.${ending}`);
  if (room < 1)
    throw new VirtkeepError('snapshot_failed', {
      domain: domainName,
      reason: `the target name ${disk.targetDev} is too long`,
    });
  const short = Buffer.byteLength(stem) <= room ? stem : '_';
  return join(disk.block ? spareDir : dirname(disk.path), `${short}.${ending}`);
}
