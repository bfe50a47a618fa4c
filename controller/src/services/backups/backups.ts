/** Backups and restores: what is checked here before a node is asked, and what is sent to it. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import type {
  StartApplianceRestoreRequest,
  StartConfigRestoreRequest,
  StartRestoreRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { resultOf } from '@virtkeep/shared/operation-result';
import type { Actor } from '../../auth/principal.ts';
import type { FileRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { archiveIdOfRow } from '../backup-files/identity.ts';
import type { RemovedArchives } from '../backup-files/removed-archives.ts';
import { isAppliance, isBusy, isDefinition } from '../backup-files/usable.ts';
import type { DomainService } from '../domains/domains.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import type { BackupAttempts } from '../protection/attempts.ts';
import type { EndedOperation } from '../tasks/ends.ts';
import { type NodeOptions, nodeFields } from '../tasks/node-fields.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';
import { refuseDriversWithoutVirtio } from './drivers.ts';
import { fileOf, resultFile } from './ended-file.ts';
import type { Extension, ExtensionChooser } from './extension.ts';

import { assertArchive, type LibraryService, refOf } from './library.ts';

/** Specification 2.2, and the further options of the REST contract: those that the node decides by, and the controller's own. */
export interface BackupOptions
  extends NodeOptions<
    StartBackupRequest,
    | 'operationId'
    | 'domainId'
    | 'fileId'
    | 'poolId'
    | 'extend'
    | 'extendFileId'
    | 'extendArchiveId'
    | 'extendCompressed'
    | 'extendHashed'
    | 'fallbackFull'
    | 'fallbackReason'
    | 'removedArchives'
    | 'limits'
  > {
  domain: string;
  backup?: string;
  increment?: boolean;
  datapool?: string;
  protected?: boolean;
  /** Bytes per second that it reads at most. */
  bandwidth?: number;
}

/** What a scheduler says of a backup beyond what users do. */
export interface BackupPlan {
  /** Rates that backups on one node share by their keys, beside the one of its own. */
  limits?: readonly { key: string; bytesPerSecond: number }[];
  /** Its increment extends nothing that there is by now, and makes an archive that can be extended. */
  newArchive?: boolean;
  /** Ids of archives that it leaves for the one that it makes or extends: nobody needs what they have on the VM any more. */
  leaves?: readonly string[];
}

export interface RestoreOptions
  extends NodeOptions<
    StartRestoreRequest,
    'operationId' | 'file' | 'fileId' | 'poolId' | 'domainId' | 'name' | 'bandwidth'
  > {
  file: string;
  node: string;
  datapool?: string;
  verbose_name?: string;
  /** Bytes per second and disk, of an instant restore. */
  bandwidth?: number;
}

export interface ApplianceRestoreOptions
  extends NodeOptions<
    StartApplianceRestoreRequest,
    'operationId' | 'file' | 'fileId' | 'poolId' | 'domainId' | 'name'
  > {
  file: string;
  node: string;
  datapool?: string;
  verbose_name?: string;
}

export interface ConfigRestoreOptions
  extends NodeOptions<StartConfigRestoreRequest, 'operationId' | 'file' | 'fileId' | 'domainId' | 'name'> {
  file: string;
  node: string;
  verbose_name?: string;
}

export interface BackupServiceDependencies {
  inventory: Inventory;
  backupFiles: BackupFiles;
  pools: PoolService;
  library: LibraryService;
  nodeTasks: NodeTasks;
  extensions: ExtensionChooser;
  removedArchives: RemovedArchives;
  domains: DomainService;
  attempts: BackupAttempts;
  /** Notes whose archive a task has made or extended; may be told the same again. */
  origins: { made(file: BackupFile, task: TaskState): Promise<void> };
  log: Logger;
}

export class BackupService {
  readonly #dependencies: BackupServiceDependencies;

  constructor(dependencies: BackupServiceDependencies) {
    this.#dependencies = dependencies;
    dependencies.nodeTasks.ends.succeeded({
      backup: ended => this.#backedUp(ended),
      restore: ended => dependencies.domains.changed(ended),
      config_restore: ended => dependencies.domains.changed(ended),
      appliance_restore: ended => this.#appliancesRestored(ended),
    });
  }

  /**
   * Starts a backup: a new archive, or an increment of one. Whether the domain's disks and state allow it is the node's
   * decision. The file that is to be extended, or made, is the first of the task's entities.
   * @throws domain_not_found, vdisk_not_found, pool_not_found, pool_not_active, pool_read_only, pool_outside, those of
   * `ExtensionChooser.choose`, and what the node answers.
   */
  async backup(
    { bandwidth, ...options }: BackupOptions,
    user: Actor,
    taskId: string,
    { limits = [], newArchive = false, leaves = [] }: BackupPlan = {},
  ): Promise<TaskState> {
    const { domain, nodeId } = this.#dependencies.inventory.oneDomain(options.domain);
    const excluded = options.exclude_vdisks ?? [];
    const unknown = excluded.find(id => !domain.disks.some(disk => disk.id === id));
    if (unknown !== undefined)
      throw new VirtkeepError('vdisk_not_found', { id: unknown, field: 'exclude_vdisks' });
    const extension = await this.#dependencies.extensions.choose({ ...options, newArchive }, domain, nodeId);
    this.#dependencies.nodeTasks.assertReady(nodeId);
    const { file } = extension;
    const poolId = this.#poolOf(extension, nodeId);
    const fileId = newId();
    const request = {
      ...nodeFields(options),
      domainId: domain.id,
      fileId,
      poolId,
      canBeIncremental: file !== undefined || options.increment || options.can_be_incremental || false,
      extend: file && refOf(file),
      extendFileId: file?.id ?? '',
      extendArchiveId: file ? archiveIdOfRow(file) : '',
      // may be absent: what the request does not name stays as it is
      extendCompressed: file && options.compress,
      extendHashed: file && options.hash_sum,
      fallbackFull: file !== undefined && extension.fallback,
      fallbackReason: extension.fallbackReason,
      removedArchives: await this.#notExtended(domain, leaves),
      limits: [...limits, ...this.#ratesOf(taskId, bandwidth, file?.pool_id ?? poolId)].map(
        ({ key, bytesPerSecond }) => ({
          key,
          bytesPerSecond: BigInt(bytesPerSecond),
        }),
      ),
      latencyTargets: this.#dependencies.pools.latencyTargets([
        file?.pool_id ?? poolId,
        ...domain.disks.map(disk => disk.poolId),
      ]),
    };
    const targetId = file?.id ?? fileId;
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'domain_backup',
      verboseName: file ? `Extend ${file.filename} of ${domain.name}` : `Back up ${domain.name}`,
      user,
      nodeId,
      leavesOut: excluded.length > 0,
      entities: [
        { id: targetId, class: 'file' },
        { id: domain.id, class: 'domain' },
      ],
      prepare: () => this.#prepare(options, { domain, poolId, fileId, file, taskId }),
      send: (clients, operationId, signal) => clients.backups.start({ operationId, ...request }, { signal }),
    });
  }

  /** Archives with states on the VM that nothing extends any more. */
  async #notExtended(domain: Domain, left: readonly string[]): Promise<string[]> {
    const onVm = new Set(domain.savedStates.map(({ backupId }) => backupId));
    const removed = await this.#dependencies.removedArchives.of(domain);
    return [...new Set([...removed, ...left.filter(id => onVm.has(id))])];
  }

  /** How fast it may read: by its own limit, and by that of the pool. */
  #ratesOf(taskId: string, bandwidth: number | undefined, poolId: string) {
    const poolRate = this.#dependencies.pools.backupRate(poolId);
    return [
      ...(bandwidth ? [{ key: taskId, bytesPerSecond: bandwidth }] : []),
      ...(poolRate === undefined ? [] : [{ key: poolId, bytesPerSecond: poolRate }]),
    ];
  }

  /**
   * The file that the result names: a new archive, the extended one, or a new one because that could not be extended;
   * then it takes the first place among the task's entities. Before that the VM's record is read again, since the archive can be
   * extended from the VM's new saved state.
   */
  async #backedUp(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library, attempts, origins, log } = this.#dependencies;
    const { operation, task } = ended;
    const file = resultFile(ended, 'backup');
    const about = await fileOf(ended, this.#dependencies);
    // first: a file that is busy is asked about again
    if (task) await origins.made(file, task);
    const before = await backupFiles.find(about);
    const id = await backupFiles.backedUp(file, operation.id, about);
    const former = id === about ? (before?.size ?? 0) : 0;
    // told again after a restart: its size is that of the end already
    if (task && (before === undefined || isBusy(before)))
      attempts.wrote(operation.id, Math.max(0, Number(file.size) - former));
    if (task && task.entities[0]?.id !== id)
      await ended.nameEntities([{ id, class: 'file' }, ...task.entities.filter(entity => entity.id !== id)]);
    await library
      .reread(id)
      .catch((error: unknown) => log.warn('a backup was not read anew', { file: id, error }));
    return library.get(id);
  }

  /**
   * Notes the user's description and protection: they hold for the extended file, or for the new one in its place. Who may only
   * make backups takes no protection off: unprotecting an extended file is changing the library.
   */
  #prepare(
    options: BackupOptions,
    target: {
      domain: { id: string; name: string };
      poolId: string;
      fileId: string;
      file: FileRow | undefined;
      taskId: string;
    },
  ): Promise<void> {
    if (target.file) {
      return this.#dependencies.backupFiles.begin(target.file.id, 'UPDATING', {
        operation: target.taskId,
        description: options.description ?? null,
        protected: options.protected || null,
      });
    }
    return this.#dependencies.backupFiles.creating({
      id: target.fileId,
      operation: target.taskId,
      poolId: target.poolId,
      domain: target.domain,
      description: options.description ?? '',
      protected: options.protected ?? false,
      compressed: options.compress ?? false,
    });
  }

  /** The pool of a new archive, also of one that replaces an archive which could not be extended. */
  #poolOf({ file, fallback, datapool }: Extension, nodeId: string): string {
    if (file && !fallback) return file.pool_id;
    const base = this.#dependencies.inventory.basePool(nodeId);
    if (
      file &&
      datapool === undefined &&
      (base === null || !this.#dependencies.pools.isWritable(base, nodeId))
    )
      return file.pool_id;
    const poolId = datapool ?? this.#basePool(nodeId);
    this.#dependencies.pools.writable(poolId, nodeId, 'datapool');
    return poolId;
  }

  #basePool(nodeId: string): string {
    const poolId = this.#dependencies.inventory.basePool(nodeId);
    if (poolId !== null) return poolId;
    const node = this.#dependencies.inventory.node(nodeId).row.verbose_name;
    const reason = `is required, because the node ${node} has no base data pool`;
    throw new VirtkeepError('invalid_field', { field: 'datapool', reason });
  }

  /**
   * Starts a restore, of a backup or of a foreign file with its disks; the new domain's id is chosen here and is the task's entity.
   * @throws file_not_found, file_busy, file_not_backup, node_not_found, pool_not_active, pool_read_only, pool_outside,
   * identity_in_use, instant_restore_unsupported, invalid_field, conflicting_fields, and what the node answers.
   */
  async restore(
    options: RestoreOptions & ApplianceRestoreOptions,
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const row = await this.#dependencies.library.published(options.file);
    if (isAppliance(row)) return this.#restoreAppliance(options, row, user, taskId);
    assertArchive(row, 'restore');
    refuseFields(options, [
      'system',
      'all',
      'configuration',
      'networks',
      'virtio',
      'inject_drivers',
      'exclude_iso',
      'keep_macs',
    ]);
    checkInstant(options, row);
    this.#dependencies.inventory.node(options.node);
    this.#dependencies.nodeTasks.assertReady(options.node);
    this.#dependencies.pools.onNode(row.pool_id, options.node, 'node');
    this.#checkTarget(options.datapool, row.pool_id, options.node);
    const domainId = options.keep_identity ? this.#oldIdentity(row.domain_id, row.filename) : newId();
    const request = {
      ...nodeFields(options),
      file: refOf(row),
      fileId: row.id,
      poolId: options.datapool ?? '',
      domainId,
      name: options.verbose_name ?? '',
      bandwidth: BigInt(options.bandwidth ?? 0),
    };
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'domain_restore',
      verboseName: `Restore ${options.verbose_name ?? row.domain_name ?? row.filename}`,
      user,
      nodeId: options.node,
      entities: [
        { id: domainId, class: 'domain' },
        { id: row.id, class: 'file' },
      ],
      prepare: () => this.#dependencies.backupFiles.read(row.id),
      send: (clients, operationId, signal) => clients.restores.start({ operationId, ...request }, { signal }),
    });
  }

  /** VMs with their disks from a foreign file; the first one's id is the task's entity, the others are named when they are there. */
  async #restoreAppliance(
    { allow_foreign: _, ...options }: RestoreOptions & ApplianceRestoreOptions,
    row: FileRow,
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    refuseFields(options, ['state', 'keep_identity', 'flatten', 'instant', 'bandwidth', 'luns']);
    if (options.all && options.system !== undefined) throw conflict('all', 'system');
    if (options.all && options.verbose_name !== undefined) throw conflict('all', 'verbose_name');
    refuseDriversWithoutVirtio(options);
    const { inventory, nodeTasks, pools, backupFiles } = this.#dependencies;
    inventory.node(options.node);
    nodeTasks.assertReady(options.node);
    pools.onNode(row.pool_id, options.node, 'node');
    this.#checkTarget(options.datapool, row.pool_id, options.node);
    const domainId = newId();
    const request = {
      ...nodeFields(options),
      file: refOf(row),
      fileId: row.id,
      poolId: options.datapool ?? '',
      domainId,
      name: options.verbose_name ?? '',
    };
    return nodeTasks.start({
      taskId,
      name: 'domain_restore',
      verboseName: `Restore ${options.verbose_name ?? row.domain_name ?? row.filename}`,
      user,
      nodeId: options.node,
      entities: [
        { id: domainId, class: 'domain' },
        { id: row.id, class: 'file' },
      ],
      prepare: () => backupFiles.read(row.id),
      send: (clients, operationId, signal) =>
        clients.restores.startAppliance({ operationId, ...request }, { signal }),
    });
  }

  async #appliancesRestored(ended: EndedOperation): Promise<unknown> {
    const { domains } = resultOf(ended.operation, 'applianceRestore');
    const files = (ended.task?.entities ?? []).filter(entity => entity.class === 'file');
    if (domains.length > 1)
      await ended.nameEntities([
        ...domains.map(({ domainId: id }) => ({ id, class: 'domain' as const })),
        ...files,
      ]);
    return this.#dependencies.domains.changed(ended);
  }

  /**
   * Starts the restore of a VM without disks, from a domain XML, an OVF descriptor or an archive of Proxmox VE; its id is chosen here and is the task's entity.
   * @throws file_not_found, file_busy, file_not_definition, node_not_found, pool_not_active, and what the node answers.
   */
  async configRestore(options: ConfigRestoreOptions, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#dependencies.library.published(options.file);
    if (!isDefinition(row))
      throw new VirtkeepError('file_not_definition', { file: row.filename, type: row.type });
    this.#dependencies.inventory.node(options.node);
    this.#dependencies.nodeTasks.assertReady(options.node);
    this.#dependencies.pools.onNode(row.pool_id, options.node, 'node');
    const domainId = newId();
    const request = {
      ...nodeFields(options),
      file: refOf(row),
      fileId: row.id,
      domainId,
      name: options.verbose_name ?? '',
    };
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'domain_config_restore',
      verboseName: `Restore ${options.verbose_name ?? row.domain_name ?? row.filename} without disks`,
      user,
      nodeId: options.node,
      entities: [
        { id: domainId, class: 'domain' },
        { id: row.id, class: 'file' },
      ],
      prepare: () => this.#dependencies.backupFiles.read(row.id),
      send: (clients, operationId, signal) =>
        clients.restores.startConfig({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Specification 2.3, rule 7: a pool that is not written to cannot be chosen, and a backup lying on one needs another
   * pool to be chosen, since it may be fallen back on.
   */
  #checkTarget(poolId: string | undefined, backupPoolId: string, nodeId: string): void {
    this.#dependencies.pools.writable(poolId ?? backupPoolId, nodeId, 'datapool');
  }

  /** The original's uuid, when no node has it; one on a node that is away counts as there. */
  #oldIdentity(domainId: string | null, filename: string): string {
    if (domainId === null)
      throw new VirtkeepError('archive_unsupported', { path: filename, reason: 'it names no original VM' });
    const present = this.#dependencies.inventory.domains.get(domainId);
    if (!present) return domainId;
    const node = this.#dependencies.inventory.nodes.get(present.nodeId)?.row.verbose_name ?? present.nodeId;
    throw new VirtkeepError('identity_in_use', {
      domain: present.domain.name,
      node,
      field: 'keep_identity',
    });
  }
}

const conflict = (first: string, second: string) =>
  new VirtkeepError('conflicting_fields', { first, second, field: first });

/** What means nothing for the file is refused, and not left out. @throws conflicting_fields. */
function refuseFields<Options extends object>(
  options: Options,
  names: readonly (keyof Options & string)[],
): void {
  const wrong = names.find(name => options[name] !== undefined && (options[name] as unknown) !== false);
  if (wrong !== undefined) throw conflict(wrong, 'file');
}

/** A disk image inside a compressed archive cannot be read as it lies. @throws instant_restore_unsupported, invalid_field. */
function checkInstant(options: RestoreOptions, row: FileRow): void {
  if (options.instant && row.compressed === 1) {
    const reason = 'it is compressed; unpack it first';
    throw new VirtkeepError('instant_restore_unsupported', { file: row.filename, reason, field: 'instant' });
  }
  if (options.bandwidth !== undefined && !options.instant) {
    const reason = 'limits an instant restore only; leave it out, or set instant';
    throw new VirtkeepError('invalid_field', { field: 'bandwidth', reason });
  }
}
