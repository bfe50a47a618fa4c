/** The data pools: one record for each uuid, whatever the number of nodes that have it. */
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { type BackupFile, ListFilesResponse, type Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { hasResult, resultOf } from '@virtkeep/shared/operation-result';
import { MiB } from '@virtkeep/shared/units';
import type { NodeLinks } from '../../agents/links.ts';
import type { Actor } from '../../auth/principal.ts';
import type { BackupFiles, ScannedFiles } from '../backup-files/backup-files.ts';
import type { Inventory, PoolEntry } from '../inventory/inventory.ts';
import { type EndedOperation, entityOf } from '../tasks/ends.ts';
import { NodeAway, type NodeTasks } from '../tasks/node-tasks.ts';
import { isUncertain } from '../tasks/operation.ts';
import type { TaskState } from '../tasks/tasks.ts';
import { QuietScans } from './quiet-scans.ts';
import { isUsable, type ListedPool, listedPool, type PoolRecord, poolRecord } from './record.ts';

export interface PoolChanges {
  outside?: boolean;
  readonly?: boolean;
  description?: string;
  /** Bytes per second; 0: no limit. */
  backup_bandwidth?: number;
  /** Milliseconds; 0: no limit. */
  latency_target?: number;
}

export interface PoolFilter {
  node?: string | undefined;
  type?: string | undefined;
}

const CALL_TIMEOUT_MS = 30_000;
/** All that is known of the files of one pool; with more a node could take all memory. */
const MAX_FILES_BYTES = 256 * MiB;
/** So long is a node asked how much is free: what begins on the others waits for its answer. */
const FREE_TIMEOUT_MS = 10_000;
/** One that has not said so in that time (its libvirt hangs) is not asked again for so long, but for the state of now. */
const SILENCE_MS = 30_000;

interface FreeQuestion {
  /** In ms of `performance.now`. */
  askedMs: number;
  answer: Promise<number | undefined>;
}

export interface PoolServiceDependencies {
  inventory: Inventory;
  links: NodeLinks;
  nodeTasks: NodeTasks;
  backupFiles: BackupFiles;
  log: Logger;
}

export class PoolService {
  readonly #dependencies: PoolServiceDependencies;
  /** The last question to each node how much is free on a pool, by both ids. */
  readonly #asked = new Map<string, FreeQuestion>();
  /** Until when nodes that gave no answer are not asked again; in ms of `performance.now`. */
  readonly #silentUntil = new Map<string, number>();
  readonly #quietScans: QuietScans;

  constructor(dependencies: PoolServiceDependencies) {
    this.#dependencies = dependencies;
    dependencies.nodeTasks.ends.succeeded({ scan_pool: ended => this.#scanned(ended) });
    this.#quietScans = new QuietScans({
      isShared: id => this.#isShared(id),
      isConnected: nodeId => dependencies.links.isConnected(nodeId),
      nodeFor: id => this.#nodeNow(id),
      start: (id, nodeId) => this.#scanQuietly(id, nodeId),
    });
  }

  stop(): void {
    this.#quietScans.stop();
  }

  /** What lists are put in order by; the records are made of a page. */
  async list(filter: PoolFilter): Promise<ListedPool[]> {
    const { inventory, links, backupFiles } = this.#dependencies;
    const counts = await backupFiles.countsOfPools();
    const isConnected = (nodeId: string) => links.isConnected(nodeId);
    return [...inventory.pools.values()]
      .filter(
        entry =>
          entry.views.size > 0 &&
          (filter.node === undefined || entry.views.has(filter.node)) &&
          (filter.type === undefined || entry.row.type === filter.type),
      )
      .map(entry => listedPool(entry, isConnected, counts.get(entry.row.id) ?? 0));
  }

  /** The record of one of them. */
  listed({ id, file_count }: Pick<ListedPool, 'id' | 'file_count'>): PoolRecord {
    return this.#record(this.#dependencies.inventory.pool(id), file_count);
  }

  /** @throws pool_not_found. */
  async get(id: string): Promise<PoolRecord> {
    const entry = this.#dependencies.inventory.pool(id);
    return this.#record(entry, await this.#dependencies.backupFiles.countOfPool(id));
  }

  /**
   * Marks a pool, here and on every node that has it; a node that is away gets the mark when it returns.
   * @throws pool_not_found, and what a connected node answers.
   */
  async update(id: string, changes: PoolChanges): Promise<PoolRecord> {
    const { views } = this.#dependencies.inventory.pool(id);
    await this.#dependencies.inventory.updatePool(id, {
      ...(changes.outside === undefined ? {} : { outside: Number(changes.outside) }),
      ...(changes.readonly === undefined ? {} : { readonly: Number(changes.readonly) }),
      ...(changes.description === undefined ? {} : { description: changes.description }),
      ...(changes.backup_bandwidth === undefined ? {} : { backup_bandwidth: changes.backup_bandwidth }),
      ...(changes.latency_target === undefined ? {} : { latency_target: changes.latency_target }),
    });
    const { backup_bandwidth: _rate, latency_target: _wait, ...marks } = changes;
    for (const nodeId of Object.keys(marks).length > 0 ? views.keys() : []) {
      if (this.#dependencies.links.isConnected(nodeId)) await this.#push(nodeId, id, marks);
    }
    return this.get(id);
  }

  /** Gives a returned node the marks that were set while it was away. */
  async pushMarks(nodeId: string): Promise<void> {
    for (const [id, { row, views }] of this.#dependencies.inventory.pools) {
      const view = views.get(nodeId);
      if (!view) continue;
      const missing: PoolChanges = {
        ...(row.readonly === 1 && !view.readonly && { readonly: true }),
        ...(row.outside === 1 && !view.outside && { outside: true }),
      };
      if (Object.keys(missing).length > 0) await this.#push(nodeId, id, missing);
    }
  }

  async #push(nodeId: string, id: string, changes: PoolChanges): Promise<void> {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    const pool = await this.#dependencies.links.clients(nodeId).pools.update({ id, ...changes }, { signal });
    await this.#dependencies.inventory.poolChanged(nodeId, pool);
  }

  /**
   * Bytes that are free on a pool, as a node finds them just now. Undefined: nobody knows, since the node cannot use the pool, is away, or
   * did not answer within `FREE_TIMEOUT_MS`. What it told earlier says nothing then: nothing is to be deleted for that.
   * @param maxAgeMs the same question does, too, when it was put not longer ago, answered or not; above 0 a node that has just been silent
   *   is not asked
   */
  freeNow(id: string, nodeId: string, maxAgeMs = 0): Promise<number | undefined> {
    const key = `${id} ${nodeId}`;
    const nowMs = performance.now();
    const last = this.#asked.get(key);
    if (last && nowMs - last.askedMs < maxAgeMs) return last.answer;
    if (maxAgeMs > 0 && nowMs < (this.#silentUntil.get(nodeId) ?? 0)) return Promise.resolve(undefined);
    const answer = this.#askFree(id, nodeId);
    this.#asked.set(key, { askedMs: nowMs, answer });
    return answer;
  }

  async #askFree(id: string, nodeId: string): Promise<number | undefined> {
    const { links, inventory, log } = this.#dependencies;
    const signal = AbortSignal.timeout(FREE_TIMEOUT_MS);
    try {
      const pool = await links.clients(nodeId).pools.get({ id }, { signal });
      await inventory.poolChanged(nodeId, pool);
      return isUsable(pool) ? Number(pool.available) : undefined;
    } catch (error) {
      if (signal.aborted) this.#silentUntil.set(nodeId, performance.now() + SILENCE_MS);
      log.warn('a data pool could not be looked at', { pool: id, node: nodeId, reason: reasonOf(error) });
      return undefined;
    }
  }

  /** Reads a pool's backup files anew, as a task. @throws pool_not_found, pool_not_active, node_unreachable. */
  async scan(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const { row } = this.#dependencies.inventory.pool(id);
    const nodeId = this.nodeFor(id);
    this.#dependencies.backupFiles.scanBegins(taskId, id);
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'scan_data_pool',
      verboseName: `Scan data pool ${row.verbose_name}`,
      user,
      nodeId,
      entities: [{ id, class: 'data_pool' }],
      send: (clients, operationId, signal) =>
        clients.pools.scan({ operationId, poolId: id, thorough: true, filesApart: true }, { signal }),
    });
  }

  async #scanned({ nodeId, operation }: EndedOperation): Promise<PoolRecord> {
    const id = entityOf(operation, EntityClass.DATA_POOL);
    const files = await this.#filesOf(nodeId, id, operation);
    const sees = (poolId: string) => {
      const view = this.#dependencies.inventory.pools.get(poolId)?.views.get(nodeId);
      return view !== undefined && isUsable(view);
    };
    await this.#dependencies.backupFiles.scanned(id, files, operation.id, sees);
    this.#quietScans.ended(operation.id);
    return this.get(id);
  }

  /** What the node has on the pool since this scan of it. @throws node_unreachable, pool_not_active, pool_not_mounted. */
  async #filesOf(nodeId: string, poolId: string, operation: Operation): Promise<ScannedFiles> {
    if (!hasResult(operation, 'scanApart'))
      return { files: resultOf(operation, 'scanPool').files, isWhole: true };
    const { count } = resultOf(operation, 'scanApart');
    const silence = new AbortController();
    const timer = setTimeout(() => silence.abort(), CALL_TIMEOUT_MS);
    const files: BackupFile[] = [];
    let bytes = 0;
    try {
      const { pools } = this.#dependencies.links.reached(nodeId);
      for await (const some of pools.streamFiles({ poolId }, { signal: silence.signal })) {
        timer.refresh();
        bytes += ListFilesResponse.encode(some).finish().length;
        if (bytes > MAX_FILES_BYTES) throw new Error(`node ${nodeId} tells of too many files`);
        for (const file of some.files) files.push(file);
      }
    } finally {
      clearTimeout(timer);
    }
    // fewer than the scan has seen: some were removed since, or the node does not see them just now
    return { files, isWhole: files.length >= count };
  }

  /**
   * A connected node on which the pool can be used, preferring one that can use the other pool too, then one that is
   * not in service mode.
   * @throws pool_not_found; pool_not_active when the nodes that have it cannot use it; node_unreachable (as NodeAway).
   */
  nodeFor(id: string, otherId?: string): string {
    const { row, views } = this.#dependencies.inventory.pool(id);
    const connected = [...views].filter(([nodeId]) => this.#dependencies.links.isConnected(nodeId));
    const usable = connected.filter(([, pool]) => isUsable(pool)).map(([nodeId]) => nodeId);
    const others = otherId === undefined ? undefined : this.#dependencies.inventory.pools.get(otherId)?.views;
    const rank = (nodeId: string) => {
      const other = others?.get(nodeId);
      const inService = this.#dependencies.inventory.node(nodeId).row.service_mode === 1;
      return (other && isUsable(other) ? 0 : 2) + Number(inService);
    };
    const [found] = usable.sort((a, b) => rank(a) - rank(b));
    if (found !== undefined) return found;
    const nodeIds = [...views.keys()];
    const nodeId = nodeIds.find(id => this.#dependencies.links.isExpected(id)) ?? nodeIds[0];
    const node = this.#dependencies.inventory.nodes.get(nodeId ?? '')?.row.verbose_name ?? '';
    if (connected.length > 0) throw new VirtkeepError('pool_not_active', { pool: row.verbose_name, node });
    throw new NodeAway(
      nodeId ?? '',
      new VirtkeepError('node_unreachable', { node, reason: 'no node that has the data pool is connected' }),
    );
  }

  /** The nodes besides this one that have the pool, be they reachable or not. */
  othersWith(poolId: string, nodeId: string): { id: string; name: string }[] {
    const { views } = this.#dependencies.inventory.pool(poolId);
    return [...views.keys()]
      .filter(id => id !== nodeId)
      .map(id => ({ id, name: this.#dependencies.inventory.nodes.get(id)?.row.verbose_name ?? id }));
  }

  /** The pool as this node sees it, usable. @throws pool_not_found, pool_not_active. */
  onNode(poolId: string, nodeId: string, field: string): Pool {
    const entry = this.#dependencies.inventory.pools.get(poolId);
    if (!entry || entry.views.size === 0) throw new VirtkeepError('pool_not_found', { id: poolId, field });
    const pool = entry.views.get(nodeId);
    if (pool && isUsable(pool)) return pool;
    const node = this.#dependencies.inventory.node(nodeId).row.verbose_name;
    throw new VirtkeepError('pool_not_active', { pool: entry.row.verbose_name, node, field });
  }

  /** As `onNode`, for a pool that will be written to (specification 2.3, rule 7). @throws also pool_read_only, pool_outside. */
  writable(poolId: string, nodeId: string, field: string): Pool {
    const pool = this.onNode(poolId, nodeId, field);
    const { row } = this.#dependencies.inventory.pool(poolId);
    if (pool.readonly || row.readonly === 1)
      throw new VirtkeepError('pool_read_only', { pool: pool.name, field });
    if (pool.outside || row.outside === 1)
      throw new VirtkeepError('pool_outside', { pool: pool.name, field });
    return pool;
  }

  /**
   * How fast one node may read for backups that go to the pool: its share, since the nodes do not know of each other. In bytes per
   * second; undefined: no limit.
   */
  backupRate(id: string): number | undefined {
    const { row, views } = this.#dependencies.inventory.pool(id);
    if (row.backup_bandwidth === 0) return undefined;
    return Math.max(1, Math.floor(row.backup_bandwidth / views.size));
  }

  /** How long VMs may wait for disks of these pools before a backup that reads or writes there is slowed down. */
  latencyTargets(ids: Iterable<string>): { poolId: string; targetMs: number }[] {
    const { pools } = this.#dependencies.inventory;
    return [...new Set(ids)].flatMap(poolId => {
      const targetMs = pools.get(poolId)?.row.latency_target ?? 0;
      return targetMs === 0 ? [] : [{ poolId, targetMs }];
    });
  }

  /** True when `writable` would not refuse it. */
  isWritable(poolId: string, nodeId: string): boolean {
    try {
      this.writable(poolId, nodeId, 'datapool');
      return true;
    } catch (error) {
      if (hasKey(error)) return false;
      throw error;
    }
  }

  /**
   * Scans the pools of a node that is back, or pools that are back on a node; the results come as those of any operation, without a task.
   * They unpack nothing: each node that sees a pool would do so at each of its returns. Nothing is done while the node is away.
   */
  async scanOfReturned(nodeId: string, poolIds: readonly string[]): Promise<void> {
    if (!this.#dependencies.links.isConnected(nodeId)) return;
    for (const poolId of poolIds) await this.#quietScans.ask(poolId, nodeId);
  }

  async #scanQuietly(poolId: string, nodeId: string): Promise<string | undefined> {
    const { backupFiles, links, log } = this.#dependencies;
    const operationId = newId();
    backupFiles.scanBegins(operationId, poolId);
    try {
      const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
      await links.clients(nodeId).pools.scan({ operationId, poolId, filesApart: true }, { signal });
      return operationId;
    } catch (error) {
      log.warn('pool not scanned', { node: nodeId, pool: poolId, error });
      // begun perhaps: its result is to be known for what it is
      if (isUncertain(error)) return operationId;
      backupFiles.scanRefused(operationId);
      return undefined;
    }
  }

  #isShared(id: string): boolean {
    const views = this.#dependencies.inventory.pools.get(id)?.views ?? new Map<string, Pool>();
    return views.size > 1 || [...views.values()].some(view => view.shared);
  }

  #nodeNow(id: string): string | undefined {
    try {
      return this.nodeFor(id);
    } catch (error) {
      if (hasKey(error)) return undefined;
      throw error;
    }
  }

  #record(entry: PoolEntry, fileCount: number): PoolRecord {
    const nodes = [...entry.views.keys()].map(id => ({
      id,
      verbose_name: this.#dependencies.inventory.nodes.get(id)?.row.verbose_name ?? '',
      connected: this.#dependencies.links.isConnected(id),
    }));
    return poolRecord(entry, nodes, fileCount);
  }
}
