/** What attaching and detaching a disk of another VM answer (API contract; specification 4.1 and 4.2). Pure. */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type ResultOf, required } from '@virtkeep/shared/operation-result';
import { type SnapshotRecord, snapshotRecord } from '../domains/snapshots.ts';

/** Name of the saved state that everything a VM lends shows (specification 3.1). */
export const LENT_STATE = 'vdisks_attached_to_another_domains';

export interface AttachedRecord {
  /** The original. */
  vdisk: string;
  attached: {
    /** The frozen layer or the clone that the VM reads. */
    id: string;
    target_dev: string;
    target_bus: 'virtio';
    driver_cache: 'none';
    readonly: true;
  };
  /** The owner's state that is shown; null for a template's disk, which never changes. */
  snapshot: SnapshotRecord | null;
  /** What was done otherwise than it may have been meant. */
  warnings?: string[];
}

export interface DetachedRecord {
  /** The original. */
  vdisk: string;
  /** The VM that had it. */
  domain: string;
  /** The owner's state when other disks keep it; null when it went with the last one. */
  snapshot: SnapshotRecord | null;
}

/** The result of a task that detached something; without a disk when what its node told could not be read. */
export function namesDisk(result: unknown): result is { vdisk: string } {
  return typeof result === 'object' && result !== null && 'vdisk' in result;
}

/** @param owner as it is after the attaching. */
export function attachedRecord(
  { vdisk, attached, warnings }: ResultOf<'attachDisk'>,
  owner: Domain | undefined,
): AttachedRecord {
  const { id, targetDev } = required(attached, 'attached disk');
  return {
    vdisk,
    attached: { id, target_dev: targetDev, target_bus: 'virtio', driver_cache: 'none', readonly: true },
    snapshot: lentState(owner),
    ...(warnings.length > 0 ? { warnings } : {}),
  };
}

/** @param owner as it is after the detaching. */
export function detachedRecord(vdisk: string, domain: string, owner: Domain | undefined): DetachedRecord {
  return { vdisk, domain, snapshot: lentState(owner) };
}

function lentState(owner: Domain | undefined): SnapshotRecord | null {
  const state = owner?.savedStates.find(one => one.name === LENT_STATE);
  return owner && state ? snapshotRecord(state, owner) : null;
}
