/** The actions on backup files, and what is done with the nodes' results. */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { ConvertResult } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation_result';
import { required, resultOf } from '@virtkeep/shared/operation-result';
import type { Actor } from '../../auth/principal.ts';
import type { FileRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { detailsOf } from '../backup-files/record.ts';
import type { RemovedArchives } from '../backup-files/removed-archives.ts';
import { isConvertible, isDirectory } from '../backup-files/usable.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import type { EndedOperation } from '../tasks/ends.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { TaskState } from '../tasks/tasks.ts';
import { refuseDriversWithoutVirtio } from './drivers.ts';
import { fileOf, resultFile } from './ended-file.ts';
import { assertArchive, type LibraryService, refOf, SHOW_TIMEOUT_MS } from './library.ts';
import { shownSignature } from './show-record.ts';

export interface RecompressOptions {
  /** Else it is unpacked. */
  compress: boolean;
  datapool?: string;
  /** Of zstd, 1 to 9. */
  level?: number;
  sign?: boolean;
  keep_source?: boolean;
}

export interface ConvertOptions {
  /** Absent: one that can use both pools. */
  node?: string;
  datapool?: string;
  compress?: boolean;
  /** Of zstd, 1 to 9. */
  level?: number;
  hash_sum?: boolean;
  virtio?: boolean;
  /** Of virtio, by virt-v2v. */
  inject_drivers?: boolean;
  exclude_iso?: boolean;
  /** Which VM of an OVF descriptor, and in which configuration; or all of them. */
  system?: string;
  all?: boolean;
  configuration?: string;
  /** Of a backup of virtnbdbackup's: number or name of the restore point. */
  state?: string;
  /** By the networks of the file the node's. */
  networks?: Record<string, string>;
}

export interface ExportOptions {
  format: 'ova' | 'ovf' | 'qcow2';
  state?: string;
  datapool?: string;
  filename?: string;
  compress?: boolean;
  allow_foreign?: boolean;
}

export interface FileActionDependencies {
  inventory: Inventory;
  backupFiles: BackupFiles;
  removedArchives: RemovedArchives;
  pools: PoolService;
  library: LibraryService;
  nodeTasks: NodeTasks;
  /** Takes the tags of what is gone for good. */
  tags: { forget(ids: readonly string[]): Promise<void> };
}

export class FileActionService {
  readonly #dependencies: FileActionDependencies;

  constructor(dependencies: FileActionDependencies) {
    this.#dependencies = dependencies;
    const { ends } = dependencies.nodeTasks;
    ends.succeeded({
      refresh_backup: ended => this.#refreshed(ended),
      verify: ended => this.#verified(ended),
      recompress: ended => this.#recompressed(ended),
      recompress_copy: ended => this.#copied(ended),
      convert_backup: ended => this.#converted(ended),
      convert_all: ended => this.#convertedAll(ended),
      export_backup: ended => this.#exported(ended),
      trim: ended => this.#trimmed(ended),
      delete_backup: ended => this.#removed(ended),
    });
    ends.failed(task => this.#failed(task));
  }

  /** Reads the file's information anew, as a task. */
  async refresh(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#dependencies.library.published(id);
    const nodeId = this.#dependencies.pools.nodeFor(row.pool_id);
    this.#dependencies.nodeTasks.assertReady(nodeId);
    const task = {
      taskId,
      name: 'file_refresh',
      verboseName: `Read ${row.filename}`,
      user,
      entities: [{ id, class: 'file' }],
    };
    // one that is packed as a whole is unpacked for that
    if (row.type === 'OVA')
      return this.#dependencies.nodeTasks.start({
        ...task,
        nodeId,
        send: (clients, operationId, signal) =>
          clients.backups.refresh({ operationId, fileId: id, file: refOf(row) }, { signal }),
      });
    return this.#dependencies.nodeTasks.runLocal(task, async signal => {
      const limit = AbortSignal.any([signal, AbortSignal.timeout(SHOW_TIMEOUT_MS)]);
      await this.#dependencies.library.read(row, {}, limit).catch((error: unknown) => {
        // it was read, and which of its VMs is meant says whoever shows or restores one
        if (!hasKey(error, 'ovf_system_ambiguous')) throw error;
      });
      return this.#dependencies.library.get(id);
    });
  }

  /**
   * Compares the whole archive with its checksums and hashes, as a task.
   * @throws file_not_found, file_busy, file_not_backup.
   */
  async verify(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#dependencies.backupFiles.idle(id);
    assertArchive(row, 'verify');
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'file_verify',
      verboseName: `Verify ${row.filename}`,
      user,
      nodeId: this.#dependencies.pools.nodeFor(row.pool_id),
      entities: [{ id, class: 'file' }],
      prepare: () => this.#dependencies.backupFiles.read(id),
      send: (clients, operationId, signal) =>
        clients.backups.verify({ operationId, fileId: id, file: refOf(row) }, { signal }),
    });
  }

  /**
   * Turns a plain archive into a compressed one or back, as a task; in place, or into another pool. What lies where nothing may be
   * written stays, and another pool is needed (specification 2.3, rule 7).
   * @throws file_not_found, file_busy, file_not_backup, compression_same, pool_not_found, pool_not_active,
   * pool_read_only, pool_outside.
   */
  async recompress(id: string, options: RecompressOptions, user: Actor, taskId: string): Promise<TaskState> {
    const { compress } = options;
    const row = await this.#dependencies.backupFiles.get(id);
    assertArchive(row, compress ? 'compress' : 'unpack');
    if (compress === (row.compressed === 1)) {
      const format = compress ? 'compressed' : 'plain';
      throw new VirtkeepError('compression_same', { file: row.filename, format });
    }
    const nodeId = this.#dependencies.pools.nodeFor(row.pool_id, options.datapool);
    this.#dependencies.pools.writable(options.datapool ?? row.pool_id, nodeId, 'datapool');
    // when the source's pool cannot be written to, a request to remove the source is refused, and not answered by a copy
    if (options.keep_source === false) this.#dependencies.pools.writable(row.pool_id, nodeId, 'keep_source');
    const keepsSource = options.keep_source ?? !this.#dependencies.pools.isWritable(row.pool_id, nodeId);
    await (keepsSource ? this.#dependencies.backupFiles.idle(id) : this.#dependencies.backupFiles.unused(id));
    const request = {
      fileId: id,
      file: refOf(row),
      compress,
      compressionLevel: options.level ?? 0,
      poolId: options.datapool ?? '',
      sign: options.sign ?? false,
    };
    const work = { operation: taskId, description: null, protected: null };
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: `file_${compress ? 'compress' : 'unpack'}${keepsSource ? '_copy' : ''}`,
      verboseName: `${compress ? 'Compress' : 'Unpack'} ${row.filename}`,
      user,
      nodeId,
      entities: [{ id, class: 'file' }],
      prepare: () =>
        keepsSource
          ? this.#dependencies.backupFiles.read(id)
          : this.#dependencies.backupFiles.begin(id, 'UPDATING', work),
      send: (clients, operationId, signal) =>
        keepsSource
          ? clients.backups.recompressCopy({ operationId, ...request }, { signal })
          : clients.backups.recompress({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Makes a backup of a foreign file that holds a VM with its disks, as a task; the file stays.
   * @throws file_not_found, file_busy, file_not_convertible, conflicting_fields, node_not_found, pool_not_found, pool_not_active,
   * pool_read_only, pool_outside.
   */
  async convert(id: string, options: ConvertOptions, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#dependencies.backupFiles.idle(id);
    if (!isConvertible(row))
      throw new VirtkeepError('file_not_convertible', { file: row.filename, type: row.type });
    if (options.all && options.system !== undefined)
      throw new VirtkeepError('conflicting_fields', { first: 'all', second: 'system', field: 'all' });
    refuseDriversWithoutVirtio(options);
    const nodeId = options.node ?? this.#dependencies.pools.nodeFor(row.pool_id, options.datapool);
    this.#dependencies.pools.onNode(row.pool_id, nodeId, 'node');
    this.#dependencies.pools.writable(options.datapool ?? row.pool_id, nodeId, 'datapool');
    const request = {
      fileId: id,
      file: refOf(row),
      poolId: options.datapool ?? '',
      compress: options.compress ?? false,
      compressionLevel: options.level ?? 0,
      hashSum: options.hash_sum ?? false,
      virtio: options.virtio ?? false,
      injectDrivers: options.inject_drivers ?? false,
      excludeIso: options.exclude_iso ?? false,
      system: options.system ?? '',
      all: options.all ?? false,
      configuration: options.configuration ?? '',
      state: options.state ?? '',
      networks: options.networks ?? {},
    };
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'file_convert',
      verboseName: `Convert ${row.filename}`,
      user,
      nodeId,
      entities: [{ id, class: 'file' }],
      prepare: () => this.#dependencies.backupFiles.read(id),
      send: (clients, operationId, signal) =>
        clients.backups.convert({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Writes a restore point of a backup for other hypervisors, as a task; the backup stays.
   * @throws file_not_found, file_busy, file_not_backup, pool_not_found, pool_not_active, pool_read_only, pool_outside.
   */
  async export(id: string, options: ExportOptions, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#dependencies.backupFiles.idle(id);
    assertArchive(row, 'export');
    const nodeId = this.#dependencies.pools.nodeFor(row.pool_id, options.datapool);
    this.#dependencies.pools.writable(options.datapool ?? row.pool_id, nodeId, 'datapool');
    const request = {
      fileId: id,
      file: refOf(row),
      format: options.format,
      state: options.state ?? '',
      poolId: options.datapool ?? '',
      name: options.filename ?? '',
      compress: options.compress ?? false,
      allowForeign: options.allow_foreign ?? false,
    };
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'file_export',
      verboseName: `Export ${row.filename}`,
      user,
      nodeId,
      entities: [{ id, class: 'file' }],
      prepare: () => this.#dependencies.backupFiles.read(id),
      send: (clients, operationId, signal) => clients.backups.export({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Drops the oldest restore points of an archive, as a task: it is written anew without them, and stays the same archive.
   * @throws file_not_found, file_protected, file_busy, file_not_backup, nothing_to_trim, pool_read_only, pool_outside.
   */
  async trim(
    id: string,
    { keep_states: keepStates }: { keep_states: number },
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const row = await this.#dependencies.backupFiles.unused(id);
    assertArchive(row, 'trim');
    if (row.protected === 1) throw new VirtkeepError('file_protected', { file: row.filename });
    const { states } = detailsOf(row);
    if (states.length > 0 && states.length <= keepStates)
      throw new VirtkeepError('nothing_to_trim', {
        ...{ file: row.filename, states: states.length, keep_states: keepStates },
      });
    const nodeId = this.#dependencies.pools.nodeFor(row.pool_id);
    this.#dependencies.pools.writable(row.pool_id, nodeId, 'file');
    const work = { operation: taskId, description: null, protected: null, removes: true as const };
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'file_trim',
      verboseName: `Trim ${row.filename}`,
      user,
      nodeId,
      entities: [{ id, class: 'file' }],
      prepare: () => this.#dependencies.backupFiles.begin(id, 'UPDATING', work),
      send: (clients, operationId, signal) =>
        clients.backups.trim({ operationId, fileId: id, file: refOf(row), keepStates }, { signal }),
    });
  }

  /**
   * Removes a file, as a task. One that is missing, or in a pool that no node has any more, is only forgotten.
   * @throws file_not_found, file_protected, file_not_removable, file_busy, pool_read_only, pool_outside.
   */
  async remove(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#dependencies.backupFiles.get(id);
    if (row.protected === 1) throw new VirtkeepError('file_protected', { file: row.filename });
    if (row.status === 'MISSING') return this.#forget(row, user, taskId);
    const isOutOfReach = this.#dependencies.inventory.isOrphaned(row.pool_id);
    if (isDirectory(row) && !isOutOfReach)
      throw new VirtkeepError('file_not_removable', { file: row.filename, program: row.type });
    await this.#dependencies.backupFiles.unused(id);
    if (isOutOfReach) return this.#forget(row, user, taskId);
    const nodeId = this.#dependencies.pools.nodeFor(row.pool_id);
    this.#dependencies.pools.writable(row.pool_id, nodeId, 'file');
    const work = { operation: taskId, description: null, protected: null, removes: true as const };
    return this.#dependencies.nodeTasks.start({
      taskId,
      name: 'file_remove',
      verboseName: `Remove ${row.filename}`,
      user,
      nodeId,
      entities: [{ id, class: 'file' }],
      prepare: () => this.#dependencies.backupFiles.begin(id, 'DELETING', work),
      send: (clients, operationId, signal) =>
        clients.backups.delete({ operationId, fileId: id, file: refOf(row) }, { signal }),
    });
  }

  #forget(row: FileRow, user: Actor, taskId: string): Promise<TaskState> {
    const task = {
      taskId,
      name: 'file_remove',
      verboseName: `Forget ${row.filename}`,
      user,
      entities: [{ id: row.id, class: 'file' }],
    };
    const { nodeTasks, backupFiles, tags } = this.#dependencies;
    return nodeTasks.runLocal(task, async () => {
      await backupFiles.forget(row.id);
      await tags.forget([row.id]);
      return {};
    });
  }

  async #refreshed(ended: EndedOperation): Promise<unknown> {
    const { library } = this.#dependencies;
    const id = await fileOf(ended, this.#dependencies);
    await library.remember(id, required(resultOf(ended.operation, 'refreshBackup').shown, 'shown'));
    return library.get(id);
  }

  async #verified(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library } = this.#dependencies;
    const id = await fileOf(ended, this.#dependencies);
    const { ok, problems, hashed, verifiedAt, ...told } = resultOf(ended.operation, 'verify');
    const restorableStates = told.restorableStates?.numbers ?? null;
    // an agent of before does not tell: of what is compressed every frame has a checksum, of all else nothing has
    const isProven = async () => hashed || (await backupFiles.get(id)).compressed === 1;
    const unprovenMembers = told.unprovenMembers ?? ((await isProven()) ? 0 : 1);
    await backupFiles.verified(id, { ok, problems, verifiedAt, unprovenMembers, restorableStates });
    return {
      ...(await library.get(id)),
      ...{ ok, problems, hashed },
      unproven_members: unprovenMembers,
      verified_at: verifiedAt,
      restorable_states: restorableStates,
      signature: shownSignature(told.signature),
    };
  }

  async #recompressed(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library } = this.#dependencies;
    const from = await fileOf(ended, this.#dependencies);
    const id = await backupFiles.recordResult(resultFile(ended, 'recompress'), ended.operation.id, { from });
    if (id !== from && !(await backupFiles.find(from))) await this.#dependencies.tags.forget([from]);
    return library.get(id);
  }

  async #trimmed(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library } = this.#dependencies;
    const from = await fileOf(ended, this.#dependencies);
    const id = await backupFiles.recordResult(resultFile(ended, 'trim'), ended.operation.id, { from });
    return { ...(await library.get(id)), removed_states: resultOf(ended.operation, 'trim').removedStates };
  }

  /** The copy is the result of the task; it has the description and protection of its original. */
  async #copied(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library } = this.#dependencies;
    const original = await fileOf(ended, this.#dependencies);
    const id = await backupFiles.recordResult(resultFile(ended, 'recompressCopy'), ended.operation.id);
    const row = await backupFiles.find(original);
    if (row) await backupFiles.update(id, { description: row.description, protected: row.protected });
    await ended.nameEntities([id, original].map(named => ({ id: named, class: 'file' })));
    return library.get(id);
  }

  async #converted(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library } = this.#dependencies;
    const original = await fileOf(ended, this.#dependencies);
    const id = await backupFiles.recordResult(resultFile(ended, 'convertBackup'), ended.operation.id);
    await ended.nameEntities([id, original].map(named => ({ id: named, class: 'file' })));
    return { ...(await library.get(id)), ...conversionOf(resultOf(ended.operation, 'convertBackup')) };
  }

  /** The first is the result of the task, which names all of them. */
  async #convertedAll(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library } = this.#dependencies;
    const original = await fileOf(ended, this.#dependencies);
    const ids: string[] = [];
    const result = resultOf(ended.operation, 'convertAll');
    for (const file of result.files) ids.push(await backupFiles.recordResult(file, ended.operation.id));
    await ended.nameEntities([...ids, original].map(named => ({ id: named, class: 'file' })));
    return { ...(await library.get(ids[0]!)), ...conversionOf(result) };
  }

  async #exported(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, library } = this.#dependencies;
    const original = await fileOf(ended, this.#dependencies);
    const { path, files } = resultOf(ended.operation, 'exportBackup');
    const id = await backupFiles.recordResult(resultFile(ended, 'exportBackup'), ended.operation.id);
    await ended.nameEntities([id, original].map(named => ({ id: named, class: 'file' })));
    return { ...(await library.get(id)), path, files };
  }

  async #removed(ended: EndedOperation): Promise<unknown> {
    const { backupFiles, removedArchives } = this.#dependencies;
    const id = await fileOf(ended, this.#dependencies);
    const row = await backupFiles.find(id);
    if (row) await removedArchives.removed(row);
    await this.#drop(id);
    return {};
  }

  /** Removes the file's record and its tags, without a report. */
  async #drop(id: string): Promise<void> {
    await this.#dependencies.backupFiles.remove(id);
    await this.#dependencies.tags.forget([id]);
  }

  /** Sets the file right that the task was creating or changing: its first entity. */
  async #failed(task: TaskState): Promise<void> {
    const [entity] = task.entities;
    if (entity?.class === 'file')
      await this.#dependencies.backupFiles.operationFailed(entity.id, task.row.id);
  }
}

/** What is told of a conversion besides the backup. */
const conversionOf = ({
  signedBy,
  driversInjected,
}: Pick<ConvertResult, 'signedBy' | 'driversInjected'>) => ({
  signed_by: signedBy ?? null,
  drivers_injected: driversInjected ?? false,
});
