/**
 * The side effects that a workflow declares before they happen, as data: all that undoing them needs. The journal keeps
 * them, and the one undo there is (`recover.ts`) reads them; a journal of an earlier version is still read, so a field that
 * came later may be absent.
 */
import type { FileMark, OwnFile } from '../images/index.ts';
import type { RevertToUndo } from '../snapshots/index.ts';
import type { FormerFirmware } from './firmware/state-firmware.ts';

/**
 * When an effect is undone: `always` at the operation's end, only on `failure` (error, cancel, crash before commit), or
 * only on `success`: what the committed result replaces, which must stay until then.
 */
export type UndoWhen = 'always' | 'failure' | 'success';

/** A side effect as plain data: all that undoing it needs, also in another process after a crash. */
export type Effect =
  /** Guest file systems are frozen by us: thaw them. */
  | { type: 'frozen_guest'; domainId: string }
  /** A guest is suspended by us for a moment: let it go on. */
  | { type: 'paused_guest'; domainId: string }
  /** A temporary saved state, or one that is not meant to stay: merge its overlays back, delete its memory file and metadata. */
  | {
      type: 'automatic_state';
      domainId: string;
      name: string;
      overlays: readonly FrozenLayer[];
      memoryPath?: string;
      /** Its merges are noted in the domain's metadata before they begin. Absent in a journal of an earlier version. */
      noted?: boolean;
      /** Nobody but the operation wrote to its overlays unless the domain uses them: those that it does not are removed. */
      unusedIsNothing?: boolean;
    }
  /**
   * A disk lent to another domain: its loan ends, unless the borrower still has the disk. With `unplug` the borrower's
   * guest is asked for it first; one that does not let go keeps it, and the reconciler of loans goes on.
   */
  | {
      type: 'loan';
      ownerId: string;
      diskId: string;
      borrowerId: string;
      unplug: boolean;
      /** Its clone (on zfs) stays. */
      keepClone: boolean;
    }
  /**
   * A new disk attached to a domain that was there before: the guest is asked for it, and it leaves the definition, unless somebody has
   * written to it since `mark`. Its file is an effect of its own.
   */
  | ({ type: 'attached_disk' } & AttachedDisk)
  /** A saved state being deleted, and what earlier deletions left to be merged: complete it. Name null: only the latter. */
  | { type: 'removed_state'; domainId: string; name: string | null; countsAsDeletion: boolean }
  /** A domain being reverted to a saved state: give it its former definition, disks and power state back. */
  | ({ type: 'revert' } & Revert)
  /** Overlays of a domain that a revert leaves behind: remove those that nothing writes to or stands on. */
  | { type: 'unused_layers'; domainId: string; paths: string[] }
  /**
   * An archive being extended: put back its old end, kept in `tailPath`, and remove that file. The archive is then
   * byte for byte what it was.
   */
  | { type: 'appended_archive'; path: string; tailPath: string }
  /**
   * An archive being written: remove the partial file, and the published one (with its hash file) when it bears this id. It
   * may also be another's of the same id, a conversion made elsewhere, or have been extended since: it goes only while the
   * name is reserved for `owner` and it has so many states. Both are absent in a journal of an earlier version.
   */
  | {
      type: 'archive';
      backupId: string;
      partialPath: string;
      finalPath: string;
      owner?: string;
      states?: number;
    }
  /** A name for an archive that was reserved: give it free, unless it was given to another since. */
  | { type: 'reserved_name'; path: string; owner: string }
  /**
   * An archive that was converted: remove it with its hash file, while what was made of it is there and it is what it `was`:
   * another node may have extended it since. Absent in a journal of an earlier version.
   */
  | {
      type: 'replaced_archive';
      path: string;
      by: string;
      was?: ConvertedArchive;
      /** As agents of before declared a `trimmed_archive`. */
      isTrimmed?: true;
    }
  /**
   * An archive written anew beside itself without its oldest states: `by` gets its name, while each of the two is what it `was` and
   * what was `made` of it. Otherwise neither changes its name.
   */
  | {
      type: 'trimmed_archive';
      path: string;
      by: string;
      was: ConvertedArchive;
      /** Absent in a journal of an earlier version. */
      made?: ConvertedArchive;
    }
  /** A file made by the operation: remove it, unless it is provably another one or somebody uses it. */
  | OwnFile
  /** A directory made by the operation: remove it when nothing is in it; with `own` it is no one else's and goes with all. */
  | { type: 'directory'; path: string; own?: boolean }
  /**
   * A domain defined by the operation: stop it, undefine it with its saved states' metadata, NVRAM and TPM state. One that
   * refers to none of the `files` made for it was defined by somebody else.
   */
  | { type: 'domain'; domainId: string; files?: string[] }
  /**
   * A VM that runs from an archive: pull its data into its disks until nothing refers to the archive. Of a restore that failed nothing
   * is left to be pulled. (Agents of before declared it for that, too: its domain and its disks are gone by then.)
   */
  | { type: 'instant_pull'; domainId: string; archivePath: string; bandwidth: number; disks: InstantDisk[] }
  /**
   * An archive that QEMU's user was let read: give it the group and the permissions back that it had.
   * @property isLeft another operation that reads it does so
   */
  | { type: 'archive_access'; path: string; gid: number; mode: number; isLeft?: boolean }
  /**
   * As agents of before declared it: changes of an off domain's disks, made in overlays and on their way into its images.
   * Complete that, unless the domain was started meanwhile.
   */
  | {
      type: 'changed_disks';
      /** Absent in a journal of an earlier version. */
      domainId?: string;
      paths: string[];
    }
  /** A template that was changed: new files take the place of the former ones, and its version is noted. */
  | ({ type: 'template_change' } & TemplateChange)
  /** A domain that was given another name: give it the former one back, unless it is used under the new one by now. */
  | {
      type: 'renamed_domain';
      domainId: string;
      from: string;
      to: string;
      /** The file that libvirt finds by the name. Absent where there is none, and in a journal of an earlier version. */
      variables?: { from: string; to: string };
    }
  /**
   * Packages installed in a guest for an operation, or, until it is known which, those that its package manager was told to
   * install. They stay, as the user is told.
   */
  | { type: 'guest_packages'; domain: string; packages: readonly string[]; installed: boolean }
  /** A guest that was given another name to join a directory under it. It has which it has, as the user is told. */
  | { type: 'guest_name'; domain: string; before: string; name: string }
  /** A running guest was told to make such a change, which completes "was told to …". It may stand, as the user is told. */
  | { type: 'guest_change'; domain: string; change: string }
  /** The node's hook is to be told how a backup ended; told again when that was cut off. */
  | { type: 'backup_hook'; phase: 'backup-end' | 'backup-abort'; facts: Readonly<Record<string, string>> }
  /** Files of a domain that is being removed: remove them once the domain is gone; never while it exists. */
  | { type: 'orphaned_files'; domainId: string; paths: string[] };

/**
 * Undoes one effect. Idempotent: succeeds when the effect never happened, happened in part, or was undone before.
 * Rejects when it could not be undone; it is then tried again later.
 */
export type UndoEffect = (
  effect: Effect,
  signal: AbortSignal,
  /** Tells the user what was left as it is, for good. */
  warn: (text: string) => void,
  /** Notes what is left of the effect, of which a part was undone that may not be undone twice. */
  amend: (left: Effect) => void,
) => Promise<void>;

/** An overlay of a state, with the file that it froze as that was then. */
export interface FrozenLayer {
  targetDev: string;
  path: string;
  /** The file below as it was then. Absent before the state is made, and in a journal of an earlier version. */
  mark?: string;
  /** Of a transient domain only: the same, with its name. */
  below?: { path: string; mark: string };
}

/** A disk that an operation attaches to a domain. */
export interface AttachedDisk {
  domainId: string;
  path: string;
  targetDev: string;
  bus: string;
  /** What its file was before it was attached, as `disks/source-guard.ts` tells it. */
  mark: string;
}

/** A layer in its place: bytes `offset` to `offset + sizeBytes` of the archive. */
export interface Slice {
  member: string;
  offset: number;
  sizeBytes: number;
}

/** A disk of an instant restore; a part of the journal's `instant_pull` effect. */
export interface InstantDisk {
  targetDev: string;
  /** The new image, which the VM writes to and the data are pulled into. */
  overlayPath: string;
  /** Bottom to top. */
  slices: Slice[];
}

export interface TemplateChange {
  templateId: string;
  /** The template's new version. */
  version: number;
  cloneIds: string[];
  /** In this order: the clones' new overlays, then the template's new images. */
  files: { domainId: string; from: string; to: string }[];
}

/** What tells that an archive is still the one that was converted or trimmed, or made so. */
export interface ConvertedArchive {
  backupId: string;
  states: number;
  sizeBytes: number;
  /** SHA-256 of its newest manifest without signature. Absent of what was converted, and in a journal of an earlier version. */
  manifestSha256?: string;
  /** Of the hash file beside it; absent when there is none, and in a journal of an earlier version. */
  hashFile?: FileMark;
}

/** What a revert changes, and what was before. */
export interface Revert extends RevertToUndo {
  /** The firmware's state before; absent in a journal of an earlier version. */
  firmware?: FormerFirmware;
}

export interface EffectHandle {
  /**
   * Undoes the effect now, before the operation's end, and strikes it from the journal.
   * @throws VirtkeepError internal when another effect must be undone before
   */
  undo(signal: AbortSignal): Promise<void>;
  /** The effect is meant to stay: strikes it from the journal without undoing it. */
  keep(): void;
}

export interface Effects {
  /**
   * Durably declares an effect. Call it before the effect happens.
   * @throws VirtkeepError journal_failed; then the effect must not happen.
   */
  begin(effect: Effect, when: UndoWhen): EffectHandle;
}
