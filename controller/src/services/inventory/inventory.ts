/**
 * What exists on the nodes: taken over from their inventory streams, kept in memory for the lists and in the database
 * across restarts. A node that is away keeps its things here, marked by its connection; only the node itself says that
 * something is gone.
 */

import { isDeepStrictEqual } from 'node:util';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { type Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import {
  type Inventory as FullInventory,
  type InventoryEvent,
  NodeInfo,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { shareLoop } from '@virtkeep/shared/turns';
import type { Database, NodeRow, PoolRow } from '../../store/schema.ts';
import { hasFiles } from '../pools/record.ts';
import { type DomainDifference, domainDifference } from './difference.ts';
import { domainHome } from './domain-home.ts';
import { DomainMap } from './domain-map.ts';
import { DomainEntry, KeptDomain } from './kept-domain.ts';
import { InventoryStore } from './store.ts';

export interface NodeEntry {
  row: NodeRow;
  /** The node's last report about itself; null before the first one. */
  info: NodeInfo | null;
}

export interface PoolEntry {
  row: PoolRow;
  /** The pool as each node sees it. */
  views: Map<string, Pool>;
}

export type InventoryChange = {
  kind: 'node' | 'domain' | 'data_pool';
  id: string;
  action: 'created' | 'changed' | 'removed';
};

/** Waited for before a change of a domain counts as taken over; `undefined`: it was not there, or is gone. */
export type DomainWatcher = (
  id: string,
  before: Domain | undefined,
  after: Domain | undefined,
) => Promise<void>;

/** What a domain is by all that is told of it, and how that differs from what was known. */
interface Settled {
  id: string;
  before: DomainEntry | undefined;
  entry: DomainEntry;
  difference: DomainDifference;
}

/** A transaction with so many keeps the loop for some milliseconds. */
const DOMAINS_AT_ONCE = 50;

export class Inventory {
  readonly nodes = new Map<string, NodeEntry>();
  readonly domains = new DomainMap();
  readonly pools = new Map<string, PoolEntry>();
  /** Goes up when a pool has come, or has another name: what is in order by these names is not any more. */
  poolNamesVersion = 0;
  /** Reports about a domain by other nodes than its own, by domain and node; most domains have none. */
  readonly #copies = new Map<string, ReadonlyMap<string, KeptDomain>>();
  /** Nodes that are away: their last report about a VM is no proof that it still runs. */
  readonly #away = new Set<string>();
  readonly #store: InventoryStore;
  readonly #tell: (change: InventoryChange) => void;
  /** One change of a domain or pool at a time: each builds on what the former one wrote. By id. */
  readonly #oneByOne = new KeyedQueue();
  #watcher: DomainWatcher = async () => {};
  #poolWatcher: (id: string) => Promise<void> = async () => {};
  #returnWatcher: (poolId: string, nodeId: string) => void = () => {};
  /** Known pools that no node has. */
  readonly #orphaned = new Set<string>();

  constructor(db: Database, tell: (change: InventoryChange) => void) {
    this.#store = new InventoryStore(db);
    this.#tell = tell;
  }

  /** Set once at start. */
  setDomainWatcher(watcher: DomainWatcher): void {
    this.#watcher = watcher;
  }

  /** Set once at start; waited for when a node tells that a known pool has come to it as the first, or has left it as the last one. */
  setPoolWatcher(watcher: (id: string) => Promise<void>): void {
    this.#poolWatcher = watcher;
  }

  /** Set once at start; called when a node can read the files of a pool that it could not read before. */
  setReturnWatcher(watcher: (poolId: string, nodeId: string) => void): void {
    this.#returnWatcher = watcher;
  }

  /** Reads what was known before the restart. */
  async load(): Promise<void> {
    for (const row of await this.#store.nodes()) {
      this.nodes.set(row.id, { row, info: infoOf(row) });
      this.#away.add(row.id);
    }
    for (const { domain_id: id, node_id: nodeId, record_json } of await this.#store.domainCopies()) {
      const copies = new Map(this.#copies.get(id)).set(nodeId, KeptDomain.ofJson(record_json));
      this.#copies.set(id, copies);
    }
    for (const row of await this.#store.domains()) {
      await shareLoop();
      const kept = KeptDomain.ofJson(row.record_json);
      const { id, first_seen: firstSeen, modified, ran_on: ranOn } = row;
      // the text that all of a node have in common
      const nodeId = this.nodes.get(row.node_id)?.row.id ?? row.node_id;
      const { conflict } = this.#homeOf(new Map(this.#copies.get(id)).set(nodeId, kept), { nodeId, ranOn });
      this.domains.set(kept.id, new DomainEntry(kept, { nodeId, firstSeen, modified, ranOn, conflict }));
    }
    for (const row of await this.#store.pools()) this.pools.set(row.id, { row, views: new Map() });
    for (const view of await this.#store.poolViews()) {
      this.pools.get(view.pool_id)?.views.set(view.node_id, Pool.fromJSON(JSON.parse(view.record_json)));
    }
    this.#orphaned.clear();
    for (const [id, { views }] of this.pools) if (views.size === 0) this.#orphaned.add(id);
  }

  /** @throws node_not_found. */
  node(id: string): NodeEntry {
    const entry = this.nodes.get(id);
    if (!entry) throw new VirtkeepError('node_not_found', { id });
    return entry;
  }

  /** @throws domain_not_found. */
  domain(id: string): DomainEntry {
    const entry = this.domains.get(id);
    if (!entry) throw new VirtkeepError('domain_not_found', { id });
    return entry;
  }

  /**
   * A domain that something is to be done with.
   * @throws domain_not_found, domain_on_several_nodes, domain_runs_twice
   */
  oneDomain(id: string): DomainEntry {
    const entry = this.domain(id);
    if (entry.conflict === null) return entry;
    const names = entry.conflict.nodeIds.map(nodeId => this.nodes.get(nodeId)?.row.verbose_name ?? nodeId);
    const key = entry.conflict.kind === 'twice' ? 'domain_runs_twice' : 'domain_on_several_nodes';
    throw new VirtkeepError(key, { domain: entry.name, nodes: names.sort().join(', ') });
  }

  /** A pool that at least one node has. @throws pool_not_found. */
  pool(id: string): PoolEntry {
    const entry = this.pools.get(id);
    if (!entry || entry.views.size === 0) throw new VirtkeepError('pool_not_found', { id });
    return entry;
  }

  /** It is known, and no node has it any more. A node that is away has what it had. */
  isOrphaned(poolId: string): boolean {
    return this.#orphaned.has(poolId);
  }

  /** Ids of all such pools, as they are at each moment. */
  get orphanedPools(): ReadonlySet<string> {
    return this.#orphaned;
  }

  /** The base data pool of a node: the one its agent marks. */
  basePool(nodeId: string): string | null {
    for (const [id, { views }] of this.pools) if (views.get(nodeId)?.isBase) return id;
    return null;
  }

  /** The same of all nodes that have one. */
  basePools(): ReadonlyMap<string, string> {
    const found = new Map<string, string>();
    for (const [id, { views }] of this.pools)
      for (const [nodeId, view] of views) if (view.isBase && !found.has(nodeId)) found.set(nodeId, id);
    return found;
  }

  /** Takes an event of a node's stream over. */
  async apply(nodeId: string, event: InventoryEvent): Promise<void> {
    const change = event.event;
    // the database answers at once: many changes in a row would keep other requests waiting
    if (change?.$case !== 'full') await shareLoop();
    switch (change?.$case) {
      case 'full':
        return this.#full(nodeId, change.value);
      case 'domainChanged':
        return this.domainChanged(nodeId, change.value);
      case 'domainRemoved':
        return this.domainRemoved(nodeId, change.value);
      case 'poolChanged':
        return this.poolChanged(nodeId, change.value);
      case 'poolRemoved':
        return this.#oneByOne.run(change.value, () => this.#dropPool(nodeId, change.value));
      case 'nodeChanged':
        return this.nodeChanged(nodeId, change.value);
      case undefined:
        return;
    }
  }

  /**
   * Everything the node has. While its hypervisor daemon cannot be reached the lists are empty without meaning so:
   * then nothing is taken away.
   */
  async #full(nodeId: string, full: FullInventory): Promise<void> {
    const domainIds = new Set(full.domains.map(domain => domain.id));
    const poolIds = new Set(full.pools.map(pool => pool.id));
    // collected before anything is awaited: reports that arrive during the takeover are not among them
    const goneDomains = this.#reportedBy(nodeId)
      .filter(id => !domainIds.has(id))
      .map(id => ({ id, report: this.#reports(id).get(nodeId) }));
    const gonePools = [...this.pools]
      .map(([id, { views }]) => ({ id, views, view: views.get(nodeId) }))
      .filter(({ id, view }) => view && !poolIds.has(id));
    this.#away.delete(nodeId);
    if (full.node) await this.nodeChanged(nodeId, full.node);
    for (const pool of full.pools) {
      await shareLoop();
      await this.poolChanged(nodeId, pool);
    }
    for (let at = 0; at < full.domains.length; at += DOMAINS_AT_ONCE) {
      await shareLoop();
      await this.#takeDomains(nodeId, full.domains.slice(at, at + DOMAINS_AT_ONCE));
    }
    if (full.node?.libvirtConnected === false) return;
    for (const { id, report } of goneDomains)
      await this.#oneByOne.run(id, async () => {
        if (this.#reports(id).get(nodeId) === report) await this.#dropDomain(nodeId, id);
      });
    for (const { id, views, view } of gonePools)
      await this.#oneByOne.run(id, async () => {
        if (views.get(nodeId) === view) await this.#dropPool(nodeId, id);
      });
  }

  async nodeChanged(nodeId: string, info: NodeInfo): Promise<void> {
    const entry = this.nodes.get(nodeId);
    if (!entry) return;
    const last_seen = new Date().toISOString();
    const inventory_json = JSON.stringify(NodeInfo.toJSON(info));
    const same = entry.row.inventory_json === inventory_json;
    entry.info = info;
    await this.updateNode(nodeId, { last_seen, inventory_json }, !same);
  }

  /** Writes columns of a node's row. */
  async updateNode(nodeId: string, columns: Partial<Omit<NodeRow, 'id'>>, tell = true): Promise<void> {
    const entry = this.node(nodeId);
    entry.row = { ...entry.row, ...columns };
    await this.#store.updateNode(nodeId, columns);
    if (tell) this.#tell({ kind: 'node', id: nodeId, action: 'changed' });
  }

  /** A node that has just been enrolled, anew or for the first time. */
  async putNode(row: NodeRow): Promise<void> {
    const present = this.nodes.get(row.id);
    await this.#store.putNode(row);
    this.nodes.set(row.id, { row, info: infoOf(row) });
    this.#tell({ kind: 'node', id: row.id, action: present ? 'changed' : 'created' });
  }

  /** The node was lost. A VM of it that somebody has started on another node since belongs to that node now. */
  async nodeAway(nodeId: string): Promise<void> {
    this.#away.add(nodeId);
    for (const id of [...this.#copies.keys()])
      await this.#oneByOne.run(id, async () => {
        const reports = this.#reports(id);
        if (reports.has(nodeId)) await this.#settleDomain(id, reports);
      });
  }

  /** Forgets a node, its domains and its view of the pools. @returns pools that no node has any more. */
  async removeNode(nodeId: string): Promise<string[]> {
    await this.#store.removeNode(nodeId);
    for (const id of this.#reportedBy(nodeId)) {
      await shareLoop();
      await this.domainRemoved(nodeId, id);
    }
    const orphaned: string[] = [];
    for (const [id, entry] of this.pools) {
      if (entry.views.delete(nodeId) && entry.views.size === 0) orphaned.push(id);
    }
    for (const id of orphaned) this.#orphaned.add(id);
    this.nodes.delete(nodeId);
    this.#tell({ kind: 'node', id: nodeId, action: 'removed' });
    return orphaned;
  }

  /** A report of the node's stream and an answer to a question may overtake each other: the older of two records is dropped. */
  domainChanged(nodeId: string, domain: Domain): Promise<void> {
    return this.#oneByOne.run(domain.id, async () => {
      const report = this.#reports(domain.id).get(nodeId);
      if (report && domain.revision < report.domain.revision) return;
      await this.#takeDomain(nodeId, this.#kept(domain));
    });
  }

  /** A report. It has the id as the text that is kept already: each report brings a text of its own, and who keeps an id would keep that. */
  #kept(domain: Domain): KeptDomain {
    return new KeptDomain({ ...domain, id: this.domains.ownId(domain.id) });
  }

  #takeDomain(nodeId: string, kept: KeptDomain): Promise<void> {
    return this.#settleDomain(kept.id, this.#reports(kept.id).set(nodeId, kept));
  }

  /** Ids of the domains that a node has told of. */
  #reportedBy(nodeId: string): string[] {
    const copies = [...this.#copies].flatMap(([id, reports]) => (reports.has(nodeId) ? [id] : []));
    return [...new Set([...this.domains.ofNode(nodeId), ...copies])];
  }

  /** Each node's report about a domain; a copy of the map. */
  #reports(id: string): Map<string, KeptDomain> {
    const entry = this.domains.get(id);
    const reports = new Map(this.#copies.get(id));
    return entry ? reports.set(entry.nodeId, entry.kept) : reports;
  }

  /** Several at once, whatever their revision: the node's clock, where these begin, may have been set back. */
  #takeDomains(nodeId: string, domains: readonly Domain[]): Promise<void> {
    return this.#oneByOne.runAll(
      domains.map(({ id }) => id),
      async () => {
        const settled: Settled[] = [];
        for (const domain of domains) {
          const reports = this.#reports(domain.id).set(nodeId, this.#kept(domain));
          if (reports.size > 1) await this.#settleDomain(domain.id, reports);
          else settled.push(this.#settled(domain.id, reports));
        }
        await this.#put(settled);
      },
    );
  }

  /** @param reports at least one */
  async #settleDomain(id: string, reports: ReadonlyMap<string, KeptDomain>): Promise<void> {
    const settled = this.#settled(id, reports);
    const { nodeId } = settled.entry;
    await this.#keepCopies(id, new Map([...reports].filter(([reporter]) => reporter !== nodeId)));
    await this.#put([settled]);
  }

  /** What is to be known of a domain by these reports. */
  #settled(id: string, reports: ReadonlyMap<string, KeptDomain>): Settled {
    const before = this.domains.get(id);
    const now = new Date().toISOString();
    const { nodeId, ranOn, conflict } = this.#homeOf(reports, before);
    const kept = reports.get(nodeId)!;
    const isSame =
      before?.nodeId === nodeId && before.ranOn === ranOn && isDeepStrictEqual(before.conflict, conflict);
    const difference = isSame ? differenceOf(before.kept, kept) : 'domain';
    const modified = difference === 'domain' || !before ? now : before.modified;
    const facts = { nodeId, firstSeen: before?.firstSeen ?? now, modified, ranOn, conflict };
    return { id: before?.id ?? kept.id, before, entry: new DomainEntry(kept, facts), difference };
  }

  async #put(settled: readonly Settled[]): Promise<void> {
    // that a guest told the same later is not worth a row or a message: the node's next report brings it anyway
    for (const { id, entry, difference } of settled)
      if (difference === 'freshness') this.domains.set(id, entry);
    const changed = settled.filter(({ difference }) => difference === 'domain' || difference === 'guest');
    await this.#store.putDomains(changed.map(({ entry }) => entry));
    for (const { id, before, entry } of changed) {
      this.domains.set(id, entry);
      await this.#watcher(id, before?.domain, entry.domain);
      this.#tell({ kind: 'domain', id, action: before ? 'changed' : 'created' });
    }
  }

  #homeOf(
    reports: ReadonlyMap<string, KeptDomain>,
    before: Pick<DomainEntry, 'nodeId' | 'ranOn'> | undefined,
  ) {
    const states = [...reports].map(
      ([nodeId, { powerState }]) =>
        [nodeId, this.#away.has(nodeId) ? PowerState.UNSPECIFIED : powerState] as const,
    );
    return domainHome(new Map(states), before);
  }

  async #keepCopies(id: string, copies: ReadonlyMap<string, KeptDomain>): Promise<void> {
    const before = this.#copies.get(id);
    if (copies.size > 0) this.#copies.set(id, copies);
    else this.#copies.delete(id);
    if (copies.size > 0 || before) await this.#store.putDomainCopies(id, copies);
  }

  /** The node no longer has the domain; one that another node has by now stays. */
  domainRemoved(nodeId: string, id: string): Promise<void> {
    return this.#oneByOne.run(id, () => this.#dropDomain(nodeId, id));
  }

  async #dropDomain(nodeId: string, id: string): Promise<void> {
    const present = this.domains.get(id);
    const reports = this.#reports(id);
    if (!present || !reports.delete(nodeId)) return;
    if (reports.size > 0) {
      await this.#settleDomain(id, reports);
    } else {
      await this.#store.removeDomain(id);
      this.domains.delete(id);
      await this.#watcher(id, present.domain, undefined);
      this.#tell({ kind: 'domain', id, action: 'removed' });
    }
  }

  poolChanged(nodeId: string, pool: Pool): Promise<void> {
    return this.#oneByOne.run(pool.id, () => this.#takePool(nodeId, pool));
  }

  async #takePool(nodeId: string, pool: Pool): Promise<void> {
    const present = this.pools.get(pool.id);
    const wasOrphaned = this.isOrphaned(pool.id);
    const now = new Date().toISOString();
    const row: PoolRow = present
      ? { ...present.row, verbose_name: pool.name, type: pool.type }
      : newPoolRow(pool, now);
    await this.#store.putPool(row, nodeId, pool, now);
    const views = present?.views ?? new Map<string, Pool>();
    const former = views.get(nodeId);
    views.set(nodeId, pool);
    this.pools.set(pool.id, { row, views });
    if (present?.row.verbose_name !== row.verbose_name) this.poolNamesVersion += 1;
    if (wasOrphaned) await this.#markOrphaned(pool.id, false);
    this.#tell({ kind: 'data_pool', id: pool.id, action: present ? 'changed' : 'created' });
    if (former && !hasFiles(former) && hasFiles(pool)) this.#returnWatcher(pool.id, nodeId);
  }

  async #markOrphaned(id: string, isOrphaned: boolean): Promise<void> {
    const mark = (isSo: boolean) => (isSo ? this.#orphaned.add(id) : this.#orphaned.delete(id));
    mark(isOrphaned);
    try {
      await this.#poolWatcher(id);
    } catch (error) {
      mark(!isOrphaned);
      throw error;
    }
  }

  /** Writes what the controller itself knows of a pool. */
  updatePool(
    id: string,
    columns: Partial<
      Pick<PoolRow, 'description' | 'outside' | 'readonly' | 'backup_bandwidth' | 'latency_target'>
    >,
  ): Promise<void> {
    return this.#oneByOne.run(id, async () => {
      const entry = this.pool(id);
      const changed = { ...columns, modified: new Date().toISOString() };
      entry.row = { ...entry.row, ...changed };
      await this.#store.updatePool(id, changed);
      this.#tell({ kind: 'data_pool', id, action: 'changed' });
    });
  }

  /** The row stays when the last node lets go: backup files and the user's marks still name it. */
  async #dropPool(nodeId: string, id: string): Promise<void> {
    const entry = this.pools.get(id);
    if (!entry?.views.has(nodeId)) return;
    // first: what fails is done again while the node has it here
    if (entry.views.size === 1) await this.#markOrphaned(id, true);
    entry.views.delete(nodeId);
    await this.#store.removePoolView(id, nodeId);
    this.#tell({ kind: 'data_pool', id, action: entry.views.size === 0 ? 'removed' : 'changed' });
  }
}

const differenceOf = (before: KeptDomain, after: KeptDomain): DomainDifference =>
  before.equals(after) ? 'nothing' : domainDifference(before.domain, after.domain);

function infoOf(row: NodeRow): NodeInfo | null {
  const json = JSON.parse(row.inventory_json || '{}') as object;
  return Object.keys(json).length === 0 ? null : NodeInfo.fromJSON(json);
}

/** The marks in the row are those set here; those of the nodes are in their views. */
function newPoolRow(pool: Pool, now: string): PoolRow {
  return {
    id: pool.id,
    verbose_name: pool.name,
    description: pool.description,
    type: pool.type,
    outside: 0,
    backup_bandwidth: 0,
    latency_target: 0,
    readonly: 0,
    created: now,
    modified: now,
  };
}
