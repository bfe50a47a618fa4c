/** The disks of all VMs, and which of them are attached to another VM: told from the inventory. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Attachment, Disk } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { diskOf } from '@virtkeep/shared/which-disk';
import type { NodeLinks } from '../../agents/links.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { DomainEntry } from '../inventory/kept-domain.ts';
import { SeenNodes } from '../inventory/seen-nodes.ts';
import { inOrder } from '../list-order.ts';
import { OrderedThings, type PageRequest } from '../ordered-things.ts';
import {
  fullVdiskRecord,
  statusTold,
  strayVdiskRecord,
  usedBytes,
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

export interface VdiskPageRequest extends PageRequest {
  filter: VdiskFilter;
  /** Ids of those that bear the tag that is asked for; undefined: none is. */
  tagged?: Iterable<string> | undefined;
  /** Part of its name. */
  name?: string | undefined;
}

/** A disk and the VM that owns it. */
export interface OwnedDisk {
  disk: Disk;
  entry: DomainEntry;
}

export class VdiskService {
  readonly #inventory: Inventory;
  readonly #links: NodeLinks;
  readonly #lists: OrderedThings<OwnedDisk>;
  readonly #seenNodes: SeenNodes;
  #poolNamesVersion = 0;

  constructor(inventory: Inventory, links: NodeLinks) {
    this.#inventory = inventory;
    this.#links = links;
    const { domains, pools } = inventory;
    this.#lists = new OrderedThings({
      all: () => domains.diskIds(),
      find: id => this.find(id),
      fields: {
        verbose_name: ({ disk }) => disk.name,
        size: ({ disk }) => Number(disk.virtualSize),
        used: ({ disk }) => usedBytes(disk),
        domain: ({ entry }) => entry.name,
        datapool: ({ disk }) =>
          disk.poolId === '' ? null : (pools.get(disk.poolId)?.row.verbose_name ?? ''),
        status: ({ entry }) => statusTold(links.isConnected(entry.nodeId)),
      },
      nodeFields: ['status'],
      refresh: () => this.#refresh(),
    });
    this.#seenNodes = new SeenNodes(
      () => inventory.nodes.keys(),
      id => statusTold(links.isConnected(id)),
    );
    domains.onChange((_id, before, after) => {
      for (const disk of before?.domain.disks ?? []) this.#lists.touch(disk.id);
      for (const disk of after?.domain.disks ?? []) this.#lists.touch(disk.id);
    });
  }

  /** Each disk once, also those of nodes that are away. @param full with the devices' details. */
  async page(request: VdiskPageRequest, full: boolean): Promise<{ count: number; records: VdiskRecord[] }> {
    const { filter, tagged, name } = request;
    if (filter.another_domain !== undefined)
      return this.#pageOfAttached(request, filter.another_domain, full);
    const part = name?.toLowerCase();
    const isAny = [...Object.values(filter), name].every(value => value === undefined);
    const matches = ({ disk, entry }: OwnedDisk) =>
      isOf(filter, disk.poolId, entry) && (part === undefined || disk.name.toLowerCase().includes(part));
    const among = this.#among(filter);
    const { count, things } = await this.#lists.page(request, {
      among: tagged ?? (among && diskIdsOf(among)),
      matches: isAny ? undefined : owned => matches(this.#ownedBy(owned, filter)),
      name: JSON.stringify([filter, name]),
    });
    return { count, records: things.map(owned => this.#record(this.#ownedBy(owned, filter), full)) };
  }

  /** What disks are in order by may have changed elsewhere. */
  #refresh(): void {
    const { domains, poolNamesVersion } = this.#inventory;
    if (poolNamesVersion !== this.#poolNamesVersion) this.#lists.forget();
    this.#poolNamesVersion = poolNamesVersion;
    this.#lists.nodesChanged(this.#seenNodes.changed(), nodeId =>
      diskIdsOf([...domains.ofNode(nodeId)].flatMap(id => domains.get(id) ?? [])),
    );
  }

  /** The VMs whose disks may match; undefined: those of any. */
  #among({ domain, node }: VdiskFilter): DomainEntry[] | undefined {
    const { domains } = this.#inventory;
    if (domain === undefined && node === undefined) return undefined;
    const ids = domain === undefined ? domains.ofNode(node!) : [domain];
    return [...ids].flatMap(id => domains.get(id) ?? []);
  }

  /** Of a disk that several VMs share that one's that is asked for. */
  #ownedBy(owned: OwnedDisk, filter: VdiskFilter): OwnedDisk {
    if (isOf(filter, owned.disk.poolId, owned.entry)) return owned;
    for (const other of this.#owners(owned.disk.id))
      if (isOf(filter, other.disk.poolId, other.entry)) return other;
    return owned;
  }

  #pageOfAttached(
    { ordering, limit, offset, filter, tagged, name }: VdiskPageRequest,
    domainId: string,
    full: boolean,
  ): { count: number; records: VdiskRecord[] } {
    const part = name?.toLowerCase();
    const bearers = tagged && new Set(tagged);
    const found = new Map<string, VdiskRecord>();
    for (const one of this.#attachedTo(domainId)) {
      const record = 'entry' in one ? this.#record(one, full) : strayVdiskRecord(one, full);
      const nodeId = 'entry' in one ? one.entry.nodeId : '';
      if (found.has(record.id) || !matches(record, nodeId, filter)) continue;
      if (part !== undefined && !record.verbose_name.toLowerCase().includes(part)) continue;
      if (bearers?.has(record.id) !== false) found.set(record.id, record);
    }
    const field = ordering.field as keyof VdiskRecord;
    const all = [...found.values()];
    const records = inOrder(
      all,
      record => record[field],
      ({ id }) => id,
      ordering.descending,
    );
    return { count: all.length, records: records.slice(offset, offset + limit) };
  }

  /** The whole record. @throws vdisk_not_found. */
  get(id: string): VdiskRecord {
    const found = this.find(id);
    if (found === undefined) throw new VirtkeepError('vdisk_not_found', { id });
    return this.#record(found, true);
  }

  /** The disk and its VM; of a disk that several VMs share, the first one's. */
  find(id: string): OwnedDisk | undefined {
    for (const owned of this.#owners(id)) return owned;
    return undefined;
  }

  *#owners(id: string): Generator<OwnedDisk> {
    const { domains } = this.#inventory;
    for (const domainId of domains.withDisk(id)) {
      const entry = domains.get(domainId);
      const disk = entry?.domain.disks.find(one => one.id === id);
      if (entry && disk) yield { disk, entry };
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

function* diskIdsOf(entries: readonly DomainEntry[]): Generator<string> {
  for (const { domain } of entries) for (const disk of domain.disks) yield disk.id;
}

function isOf({ domain, datapool, node }: VdiskFilter, poolId: string, entry: DomainEntry): boolean {
  return (
    (domain === undefined || domain === entry.id) &&
    (datapool === undefined || (poolId !== '' && datapool === poolId)) &&
    (node === undefined || node === entry.nodeId)
  );
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
