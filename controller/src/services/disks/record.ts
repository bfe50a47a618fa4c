/** Virtual disks as the specification's 2.5 tells of them. Pure. */
import type { Attachment, Disk } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { DomainEntry } from '../inventory/kept-domain.ts';

export interface Named {
  id: string;
  verbose_name: string;
}

export interface VdiskRecord {
  id: string;
  status: 'ACTIVE' | 'FAILED';
  verbose_name: string;
  /** Bytes that the guest sees. */
  size: number;
  /** Bytes allocated on its data pool, by all its own layers. */
  used: number;
  /** Null when no pool holds it. */
  datapool: (Named & { type: string }) | null;
  /** The VM that owns it. */
  domain: Named;
  hints: number;
  shareable: boolean;
  virtual_size?: number;
  target_bus?: string;
  target_dev?: string;
  driver_type?: string;
  driver_cache?: string;
  readonly?: boolean;
  /** The saved states of its VM that hold it, oldest first. */
  snapshots?: Named[];
}

export interface VdiskContext {
  /** The node of its VM is there. */
  connected: boolean;
  /** As the inventory knows the disk's pool. */
  pool: { name: string; type: string } | undefined;
}

export const statusTold = (isConnected: boolean): VdiskRecord['status'] =>
  isConnected ? 'ACTIVE' : 'FAILED';

/** Agents of the version before tell of the active layer alone. */
export const usedBytes = (disk: Disk): number => Number(disk.usedSize || disk.allocatedSize);

/** The form of the lists. */
export function vdiskRecord(disk: Disk, { domain }: DomainEntry, context: VdiskContext): VdiskRecord {
  const { pool } = context;
  return {
    id: disk.id,
    status: statusTold(context.connected),
    verbose_name: disk.name,
    size: Number(disk.virtualSize),
    used: usedBytes(disk),
    datapool:
      disk.poolId === '' ? null : { id: disk.poolId, verbose_name: pool?.name ?? '', type: pool?.type ?? '' },
    domain: { id: domain.id, verbose_name: domain.name },
    hints: 0,
    shareable: disk.shareable,
  };
}

/** The whole record. */
export function fullVdiskRecord(disk: Disk, entry: DomainEntry, context: VdiskContext): VdiskRecord {
  return {
    ...vdiskRecord(disk, entry, context),
    virtual_size: Number(disk.virtualSize),
    target_bus: disk.targetBus,
    target_dev: disk.targetDev,
    driver_type: disk.driverType,
    driver_cache: disk.driverCache,
    readonly: disk.readonly,
    snapshots: entry.domain.savedStates
      .filter(state => state.targets.includes(disk.targetDev))
      .map(({ id, name }) => ({ id, verbose_name: name })),
  };
}

/** An attached disk whose owner nobody knows (its node was never enrolled here): it is attached all the same. */
export function strayVdiskRecord({ diskId, ownerId }: Attachment, full: boolean): VdiskRecord {
  const record: VdiskRecord = {
    id: diskId,
    status: 'FAILED',
    verbose_name: '',
    size: 0,
    used: 0,
    datapool: null,
    domain: { id: ownerId, verbose_name: '' },
    hints: 0,
    shareable: false,
  };
  if (!full) return record;
  const device = { target_bus: '', target_dev: '', driver_type: '', driver_cache: '', readonly: false };
  return { ...record, virtual_size: 0, ...device, snapshots: [] };
}
