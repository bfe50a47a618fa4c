/** The disks of all VMs, and which of them are attached to another VM: told from the inventory. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Attachment, Disk } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { diskOf } from '@virtkeep/shared/which-disk';
import type { NodeLinks } from '../../agents/links.ts';
import type { DomainEntry, Inventory } from '../inventory/inventory.ts';
import {
  fullVdiskRecord,
  strayVdiskRecord,
  type VdiskContext,
  type VdiskRecord,
  vdiskRecord,
} from './record.ts';

export interface VdiskFilter {
  /** Originals of the disks that this VM has from others. */
  another_domain?: string | undefined;
  domain?: string | undefined;
  datapool?: string | undefined;
  node?: string | undefined;
}

/** A disk and the VM that owns it. */
export interface OwnedDisk {
  disk: Disk;
  entry: DomainEntry;
}

export class VdiskService {
  readonly #inventory: Inventory;
  readonly #links: NodeLinks;

  constructor(inventory: Inventory, links: NodeLinks) {
    this.#inventory = inventory;
    this.#links = links;
  }

  /** Each disk once, also those of nodes that are away. @param full with the devices' details. */
  list(filter: VdiskFilter, full: boolean): VdiskRecord[] {
    const found = filter.another_domain === undefined ? this.#all() : this.#attachedTo(filter.another_domain);
    const records = new Map<string, VdiskRecord>();
    for (const one of found) {
      const record = 'entry' in one ? this.#record(one, full) : strayVdiskRecord(one, full);
      const nodeId = 'entry' in one ? one.entry.nodeId : '';
      if (!records.has(record.id) && matches(record, nodeId, filter)) records.set(record.id, record);
    }
    return [...records.values()];
  }

  /** The whole record. @throws vdisk_not_found. */
  get(id: string): VdiskRecord {
    const found = this.find(id);
    if (found === undefined) throw new VirtkeepError('vdisk_not_found', { id });
    return this.#record(found, true);
  }

  /** The disk and its VM; of a disk that several VMs share, the first one's. */
  find(id: string): OwnedDisk | undefined {
    for (const owned of this.#all()) if (owned.disk.id === id) return owned;
    return undefined;
  }

  *#all(): Generator<OwnedDisk> {
    for (const entry of this.#inventory.domains.values()) {
      for (const disk of entry.domain.disks) yield { disk, entry };
    }
  }

  *#attachedTo(domainId: string): Generator<OwnedDisk | Attachment> {
    for (const attachment of this.#inventory.domains.get(domainId)?.domain.attachments ?? []) {
      yield this.original(attachment) ?? attachment;
    }
  }

  /** The disk that was lent; of a thin clone its own one, although it may be attached by the name of its template's. */
  original({ ownerId, diskId }: Attachment): OwnedDisk | undefined {
    const named = this.find(diskId);
    const entry = this.#inventory.domains.get(ownerId);
    const disk = entry && diskOf(entry.domain, diskId, named?.disk);
    return entry && disk ? { disk, entry } : named;
  }

  #record({ disk, entry }: OwnedDisk, full: boolean): VdiskRecord {
    const pool = this.#inventory.pools.get(disk.poolId)?.row;
    const context: VdiskContext = {
      connected: this.#links.isConnected(entry.nodeId),
      pool: pool && { name: pool.verbose_name, type: pool.type },
    };
    return full ? fullVdiskRecord(disk, entry, context) : vdiskRecord(disk, entry, context);
  }
}

function matches(record: VdiskRecord, nodeId: string, filter: VdiskFilter): boolean {
  const same = (expected: string | undefined, value: string | undefined) =>
    expected === undefined || expected === value;
  return (
    same(filter.domain, record.domain.id) &&
    same(filter.datapool, record.datapool?.id) &&
    same(filter.node, nodeId)
  );
}
