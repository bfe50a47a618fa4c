/** What a merge is to reach, and the steps on the way there. Each may be the last one before a crash. */
import type { DomainMetadata } from '../../domain-xml/index.ts';

export interface MergeGoal {
  /** The state to be deleted; null: only what was begun is completed. */
  name: string | null;
  /** A deletion by the user, after which older archives cannot be extended. */
  countsAsDeletion: boolean;
  /** Present when an operation created the state for itself: these files are removed with it, as if it had never existed. */
  stateFiles?: StateFiles;
  /** Files that stay for a reason that is told by itself. */
  staying?: ReadonlySet<string>;
}

/** The files that an operation may have made for its state. */
export interface StateFiles {
  overlays: readonly {
    targetDev: string;
    path: string;
    /** The file below it as it was when the overlay was made, from `markOf`. */
    mark?: string;
  }[];
  memoryPath?: string;
  /** Each merge is noted in the domain's metadata before it begins. Absent in a journal of an earlier version. */
  noted?: boolean;
  /** Nobody but the operation wrote to an overlay that is not used. */
  unusedIsNothing?: boolean;
}

/** A state that an operation made for itself; the same as the journal's `automatic_state` effect. */
export interface AutomaticState extends StateFiles {
  domainId: string;
  name: string;
}

export type MergeStep =
  /** Writes the domain's metadata. */
  | { do: 'note'; metadata: DomainMetadata }
  | { do: 'remove_memory'; path: string }
  /** libvirt's own deletion: of internal states, and of one that it was interrupted in. */
  | { do: 'native_delete'; name: string }
  /** Makes states the children of another one, or (null) first ones. */
  | { do: 'reparent'; states: string[]; parent: string | null }
  /** Removes the state, which has no children, from libvirt's list. */
  | { do: 'forget'; name: string }
  /** Merges the top of a running disk into the file below it; ends with `pivot`. */
  | { do: 'commit_active'; targetDev: string; layer: string; above: string }
  /** Merges a file below the top of a running disk; ends by itself. */
  | { do: 'commit_middle'; targetDev: string; layer: string; above: string }
  | { do: 'wait'; targetDev: string }
  /** Lets the guest go on with the lower file, and notes that the merge is done. */
  | { do: 'pivot'; targetDev: string; layer: string; above: string }
  /** A job that virtkeep did not start runs on the disk: nothing is done to it, and nothing merged under it. */
  | { do: 'wait_for_job'; targetDev: string; job: string }
  /** Merges by qemu-img, notes that, and lets everything that stood on the upper file, or kept it, use the lower one. */
  | {
      do: 'commit_offline';
      targetDev: string;
      layer: string;
      above: string;
      readers: string[];
      states: string[];
    }
  /** Merges by qemu-img what nobody uses, and notes that. */
  | { do: 'commit_detached'; layer: string; above: string }
  /** The data are merged already: only what stands on the upper file is to be moved. */
  | { do: 'move_readers'; targetDev: string; layer: string; above: string; readers: string[] }
  /** Lets states keep the lower file instead of the upper one. */
  | { do: 'rename'; states: string[]; layer: string; above: string }
  /** @property heirs files that by then have what it had, or stand on one that has */
  | { do: 'remove_file'; path: string; heirs?: string[] }
  /** Ends libvirt's job that saves the memory into our file; the overlays come only after it. */
  | { do: 'abort_save' }
  /** libvirt is making a state: perhaps ours without memory, which takes no longer than the freezing of the guest, or another. */
  | { do: 'wait_for_state' }
  /** @property left files that stay because they may hold the newest data of a disk, and why */
  | { do: 'done'; left?: string[] };
