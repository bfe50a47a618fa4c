/** Backups and restores: what is checked here before a node is asked, and what is sent to it. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Catalogue } from './catalogue.ts';
import type { Inventory } from './inventory.ts';
import { type LibraryService, refOf } from './library.ts';
import type { NodeTasks } from './node-tasks.ts';
import type { Actor, PoolService } from './pools.ts';
import type { TaskState } from './tasks.ts';

/** Specification 2.2, and the further options of the REST contract. */
export interface BackupOptions {
  domain: string;
  exclude_iso?: boolean;
  can_be_incremental?: boolean;
  backup?: string;
  increment?: boolean;
  datapool?: string;
  hash_sum?: boolean;
  compress?: boolean;
  hold_states?: boolean;
  exclude_vdisks?: string[];
  description?: string;
  protected?: boolean;
  require_consistency?: boolean;
}

export interface RestoreOptions {
  file: string;
  node: string;
  datapool?: string;
  state?: string;
  verbose_name?: string;
  keep_identity?: boolean;
  start_on?: boolean;
  flatten?: boolean;
}

export class BackupService {
  readonly #inventory: Inventory;
  readonly #catalogue: Catalogue;
  readonly #pools: PoolService;
  readonly #library: LibraryService;
  readonly #nodeTasks: NodeTasks;

  constructor(
    inventory: Inventory,
    catalogue: Catalogue,
    pools: PoolService,
    library: LibraryService,
    nodeTasks: NodeTasks,
  ) {
    this.#inventory = inventory;
    this.#catalogue = catalogue;
    this.#pools = pools;
    this.#library = library;
    this.#nodeTasks = nodeTasks;
  }

  /**
   * Starts a full backup. Whether the domain's disks and state allow one is the node's decision.
   * @throws domain_not_found, conflicting_fields, not_available, vdisk_not_found, pool_not_found, pool_not_active,
   * pool_read_only, pool_outside, and what the node answers.
   */
  async backup(options: BackupOptions, user: Actor, taskId: string): Promise<TaskState> {
    await this.#refuseIncrements(options);
    const { domain, nodeId } = this.#inventory.domain(options.domain);
    const excluded = options.exclude_vdisks ?? [];
    const unknown = excluded.find(id => !domain.disks.some(disk => disk.id === id));
    if (unknown !== undefined)
      throw new VirtkeepError('vdisk_not_found', { id: unknown, field: 'exclude_vdisks' });
    this.#nodeTasks.assertReady(nodeId);
    const poolId = options.datapool ?? this.#basePool(nodeId);
    this.#pools.writable(poolId, nodeId, 'datapool');
    const fileId = newId();
    const request = {
      domainId: domain.id,
      fileId,
      poolId,
      excludeIso: options.exclude_iso ?? false,
      compress: options.compress ?? false,
      hashSum: options.hash_sum ?? false,
      excludeVdisks: excluded,
      requireConsistency: options.require_consistency ?? false,
      description: options.description ?? '',
    };
    return this.#nodeTasks.start({
      taskId,
      name: 'domain_backup',
      verboseName: `Back up ${domain.name}`,
      user,
      nodeId,
      entities: [
        { id: fileId, class: 'file' },
        { id: domain.id, class: 'domain' },
      ],
      prepare: () =>
        this.#catalogue.creating({
          id: fileId,
          poolId,
          domain,
          description: options.description ?? '',
          protected: options.protected ?? false,
          compressed: options.compress ?? false,
        }),
      send: (clients, operationId, signal) => clients.backups.start({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Options of incremental backups, which this version does not make. A backup file given as `datapool` (clients are
   * known to do so) is meant as `backup` when it can be extended and no pool has that id.
   */
  async #refuseIncrements(options: BackupOptions): Promise<void> {
    if (options.datapool !== undefined && options.backup !== undefined)
      throw new VirtkeepError('conflicting_fields', { first: 'datapool', second: 'backup', field: 'backup' });
    const refuse = (field: string, what: string) => {
      throw new VirtkeepError('not_available', { field, what });
    };
    if (options.backup !== undefined) refuse('backup', 'Extending a backup');
    if (options.datapool !== undefined && !this.#inventory.pools.has(options.datapool)) {
      const file = await this.#catalogue.find(options.datapool);
      if (file?.can_be_incremental === 1) refuse('datapool', 'Extending a backup');
    }
    if (options.can_be_incremental) refuse('can_be_incremental', 'A backup with increment capability');
    if (options.increment) refuse('increment', 'Extending the latest backup');
    if (options.hold_states) refuse('hold_states', 'Holding incremental saved states');
  }

  #basePool(nodeId: string): string {
    const poolId = this.#inventory.basePool(nodeId);
    if (poolId !== null) return poolId;
    const node = this.#inventory.node(nodeId).row.verbose_name;
    const reason = `is required, because the node ${node} has no base data pool`;
    throw new VirtkeepError('invalid_field', { field: 'datapool', reason });
  }

  /**
   * Starts a restore; the new domain's id is chosen here and is the task's entity.
   * @throws file_not_found, file_busy, file_not_backup, node_not_found, pool_not_active, pool_read_only, pool_outside,
   * identity_in_use, not_available, and what the node answers.
   */
  async restore(options: RestoreOptions, user: Actor, taskId: string): Promise<TaskState> {
    if (options.flatten) throw new VirtkeepError('not_available', { field: 'flatten', what: 'Flattening' });
    const row = await this.#library.published(options.file);
    if (row.type !== 'tar')
      throw new VirtkeepError('file_not_backup', { file: row.filename, type: row.type, action: 'restore' });
    this.#inventory.node(options.node);
    this.#nodeTasks.assertReady(options.node);
    this.#pools.onNode(row.pool_id, options.node, 'node');
    this.#checkTarget(options.datapool, row.pool_id, options.node);
    const domainId = options.keep_identity ? this.#oldIdentity(row.domain_id, row.filename) : newId();
    const request = {
      file: refOf(row),
      fileId: row.id,
      state: options.state ?? '',
      poolId: options.datapool ?? '',
      domainId,
      name: options.verbose_name ?? '',
      keepIdentity: options.keep_identity ?? false,
      startOn: options.start_on ?? false,
    };
    return this.#nodeTasks.start({
      taskId,
      name: 'domain_restore',
      verboseName: `Restore ${options.verbose_name ?? row.domain_name ?? row.filename}`,
      user,
      nodeId: options.node,
      entities: [
        { id: domainId, class: 'domain' },
        { id: row.id, class: 'file' },
      ],
      send: (clients, operationId, signal) => clients.restores.start({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Specification 2.3, rule 7: a pool that is not written to cannot be chosen, and a backup lying on one needs another
   * pool to be chosen, since it may be fallen back on.
   */
  #checkTarget(poolId: string | undefined, backupPoolId: string, nodeId: string): void {
    this.#pools.writable(poolId ?? backupPoolId, nodeId, 'datapool');
  }

  /** The original's uuid, when no node has it; one on a node that is away counts as there. */
  #oldIdentity(domainId: string | null, filename: string): string {
    if (domainId === null)
      throw new VirtkeepError('archive_unsupported', { path: filename, reason: 'it names no original VM' });
    const present = this.#inventory.domains.get(domainId);
    if (!present) return domainId;
    const node = this.#inventory.nodes.get(present.nodeId)?.row.verbose_name ?? present.nodeId;
    throw new VirtkeepError('identity_in_use', {
      domain: present.domain.name,
      node,
      field: 'keep_identity',
    });
  }
}
