/** What attaching and detaching a disk of another VM answer (API contract; specification 4.1 and 4.2). Pure. */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
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

/** The agent's result of an attaching. */
export interface AttachResult {
  vdisk: string;
  owner_id: string;
  attached: { id: string; target_dev: string; path: string };
  warnings?: string[];
}

/** The agent's result of a detaching. */
export interface DetachResult {
  vdisk: string;
  owner_id: string;
  domain_id: string;
  owner_is_here: boolean;
}

/** @param owner as it is after the attaching. */
export function attachedRecord(result: AttachResult, owner: Domain | undefined): AttachedRecord {
  const { id, target_dev } = result.attached;
  const warnings = result.warnings ?? [];
  return {
    vdisk: result.vdisk,
    attached: { id, target_dev, target_bus: 'virtio', driver_cache: 'none', readonly: true },
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
