/**
 * How a domain's disks are held at one instant so that others may read them: the seam between lending, which knows who
 * has which disk, and the storage. There is one implementation by saved states (workflows/lend/state-freezer.ts: what is
 * attached is the frozen layer) and one by zfs snapshots and clones. Which one serves a domain is asked per lender, in
 * the order of the list in workflows/lend/freezers.ts; the one by saved states, the last, serves everything.
 *
 * Every call is idempotent: it may have been interrupted by a crash and is then made again. All are made under the
 * lender's domain lock. What `freeze` and `sourceOf` make needs no effect of their own in the journal: before the first
 * of them the loan is declared, and undoing it calls `giveBack`, and `release` when no loan is left.
 */
import type { Logger } from '@virtkeep/shared/log';
import type { LeftImage } from '../../images/index.ts';
import type { Instant } from '../../snapshots/index.ts';
import type { OperationContext } from '../context.ts';

/** A disk of the domain that lends, its own ones only. */
export interface LenderDisk {
  /** Id of the original. */
  id: string;
  targetDev: string;
  /** The active file or device. */
  path: string;
  /** "qcow2", "raw". */
  format: string;
  /** A block device. */
  block: boolean;
  readonly: boolean;
  /** Its content is ciphertext, or stands on some. */
  encrypted: boolean;
}

/** The domain that lends. */
export interface Lender {
  id: string;
  name: string;
  /** Its files never change: they are lent themselves and nothing is frozen. */
  template: boolean;
  /** It runs or is suspended. */
  active: boolean;
  /** In the order of its definition. */
  disks: LenderDisk[];
}

/** What is attached in place of a disk. */
export interface LentSource {
  path: string;
  format: string;
  block: boolean;
  /** Id of the object when it has one of its own (a clone); else it is made from its path. */
  attachedId?: string;
}

export interface FreezerOptions {
  signal: AbortSignal;
  log: Logger;
  /** Told what stays although the disk was given back, and why. */
  warn(text: string): void;
  /**
   * Told of layers that are not merged since not all nodes were heard. It throws while an answer is worth waiting for. Without it nobody
   * waits: what was begun fails then.
   */
  settle?(left: readonly LeftImage[]): void;
}

export interface DiskFreezer {
  /** For logs: "state", "zfs". */
  readonly kind: string;
  /** Whether it is the one for this domain. Must answer the same as long as the domain lends anything. */
  serves(lender: Lender, options: FreezerOptions): Promise<boolean>;
  /** The instant, when there is one. */
  find(lender: Lender, options: FreezerOptions): Promise<Instant | null>;
  /**
   * Makes the instant of all disks, when there is none: quiesced when the guest's agent answers, else as after a power
   * cut, with a warning.
   * @param allowNetworkLayers layers of a VM whose disks are all devices may lie on a network file system
   * @returns null when nothing has to be frozen
   * @throws VirtkeepError snapshot_failed, layers_on_network, zfs_failed, canceled
   */
  freeze(lender: Lender, context: OperationContext, allowNetworkLayers: boolean): Promise<Instant | null>;
  /**
   * What a borrower gets of a disk; makes the clone where there has to be one (one per disk and borrower).
   * @returns null when the instant does not hold the disk: it came later
   */
  sourceOf(
    lender: Lender,
    disk: LenderDisk,
    borrowerId: string,
    options: FreezerOptions,
  ): Promise<LentSource | null>;
  /** A borrower has the disk no more: its clone goes. Also for disks that the domain has lost meanwhile. */
  giveBack(lender: Lender, diskId: string, borrowerId: string, options: FreezerOptions): Promise<void>;
  /** Whether the clone of a disk exists, asked for clones that were kept. */
  cloneExists(lender: Lender, diskId: string, borrowerId: string, options: FreezerOptions): Promise<boolean>;
  /**
   * No loan is left: the instant goes. One that cannot go now is told and stays, whole, to the reconciler; nobody is held for it.
   * @throws VirtkeepError snapshot_remove_failed, zfs_failed: its end was begun
   */
  release(lender: Lender, options: FreezerOptions): Promise<void>;
}
