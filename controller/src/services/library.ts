/** The library: backup files as users see them, and what may be done with one. */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { mapLimited } from '@virtkeep/shared/limit';
import type { NodeLinks } from '../agents/links.ts';
import type { FileRow } from '../store/schema.ts';
import type { Catalogue } from './catalogue.ts';
import { archiveIdOf, archiveIdOfRow } from './file-identity.ts';
import type { FileFilter } from './file-list.ts';
import { detailsOf, type FileRecord, fileRecord } from './file-record.ts';
import type { Inventory } from './inventory.ts';
import type { NodeTasks } from './node-tasks.ts';
import type { Actor, PoolService } from './pools.ts';
import type { TaskState } from './tasks.ts';
import { lacksTemplate, type TemplateAnswer, withTemplateOf } from './template-answers.ts';

/** Reading a whole compressed archive of another make can take long. */
const SHOW_TIMEOUT_MS = 600_000;

/** Whoever waits for a backup waits for this, too; what was read before stays when it takes longer. */
const REREAD_TIMEOUT_MS = 10_000;
/** Of the other nodes, when one lacks a template. */
const ELSEWHERE_TIMEOUT_MS = 60_000;
const ASKED_AT_ONCE = 8;

export class LibraryService {
  readonly #catalogue: Catalogue;
  readonly #inventory: Inventory;
  readonly #links: NodeLinks;
  readonly #nodeTasks: NodeTasks;
  readonly #pools: PoolService;

  constructor(
    catalogue: Catalogue,
    inventory: Inventory,
    links: NodeLinks,
    nodeTasks: NodeTasks,
    pools: PoolService,
  ) {
    this.#catalogue = catalogue;
    this.#inventory = inventory;
    this.#links = links;
    this.#nodeTasks = nodeTasks;
    this.#pools = pools;
  }

  async list(filter: FileFilter): Promise<{ count: number; files: FileRecord[] }> {
    const { count, rows } = await this.#catalogue.list(filter);
    return { count, files: rows.map(row => this.record(row)) };
  }

  /** @throws file_not_found. */
  async get(id: string): Promise<FileRecord> {
    return this.record(await this.#catalogue.get(id));
  }

  record(row: FileRow): FileRecord {
    const domain = this.#inventory.domains.get(row.domain_id ?? '')?.domain;
    return fileRecord(row, this.#inventory.pools.get(row.pool_id)?.row, domain);
  }

  /** @throws file_not_found. */
  async update(id: string, changes: { description?: string; protected?: boolean }): Promise<FileRecord> {
    await this.#catalogue.get(id);
    await this.#catalogue.update(id, {
      ...(changes.description === undefined ? {} : { description: changes.description }),
      ...(changes.protected === undefined ? {} : { protected: Number(changes.protected) }),
    });
    return this.get(id);
  }

  /**
   * Reads the archive's configuration on a node that sees it, and remembers what it found; while no node sees it, the
   * newest state is told as it was read last, with the warning `not_current`.
   * @param state number or name of a state; undefined: the newest.
   * @throws file_not_found, state_not_found, pool_not_active, node_unreachable, archive_damaged.
   */
  async show(
    id: string,
    state: string | undefined,
  ): Promise<{ file: FileRecord; shown: ShowBackupResponse }> {
    const row = await this.published(id);
    try {
      const shown = await this.#read(row, state ?? '', AbortSignal.timeout(SHOW_TIMEOUT_MS));
      return { file: await this.get(id), shown };
    } catch (error) {
      const remembered = state === undefined ? detailsOf(row).shown : null;
      if (remembered === null || !hasKey(error, 'node_unreachable', 'pool_not_active')) throw error;
      const shown = ShowBackupResponse.fromJSON(remembered);
      shown.warnings.push({ key: 'not_current', text: `${error.message} This is what was read last.` });
      return { file: this.record(row), shown };
    }
  }

  /** Reads the information of a file that has changed, when it was known before. @throws what the node answers */
  async reread(id: string): Promise<void> {
    const row = await this.#catalogue.get(id);
    if (detailsOf(row).information !== null)
      await this.#read(row, '', AbortSignal.timeout(REREAD_TIMEOUT_MS));
  }

  /** Reads the file's information anew, as a task. */
  async refresh(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.published(id);
    this.#nodeTasks.assertReady(this.#pools.nodeFor(row.pool_id));
    const task = {
      taskId,
      name: 'file_refresh',
      verboseName: `Read ${row.filename}`,
      user,
      entities: [{ id, class: 'file' }],
    };
    return this.#nodeTasks.runLocal(task, async signal => {
      await this.#read(row, '', AbortSignal.any([signal, AbortSignal.timeout(SHOW_TIMEOUT_MS)]));
      return this.get(id);
    });
  }

  async #read(row: FileRow, state: string, signal: AbortSignal): Promise<ShowBackupResponse> {
    const nodeId = this.#pools.nodeFor(row.pool_id);
    const file = { poolId: row.pool_id, filename: row.filename };
    const shown = await this.#links.clients(nodeId).backups.show({ file, state }, { signal });
    if (lacksTemplate(shown.warnings)) {
      const others = await this.#templateElsewhere(nodeId, { file, state }, signal);
      shown.warnings = withTemplateOf(shown.warnings, others);
    }
    if (shown.file && archiveIdOf(shown.file) === archiveIdOfRow(row))
      await this.#catalogue.seen(shown.file, () => true);
    if (state === '') await this.#catalogue.informed(row.id, shown);
    return shown;
  }

  /** What the other nodes that have the file's pool say of the template that the backup's thin clone stands on. */
  #templateElsewhere(
    askedId: string,
    request: { file: { poolId: string; filename: string }; state: string },
    signal: AbortSignal,
  ): Promise<TemplateAnswer[]> {
    const others = this.#pools.othersWith(request.file.poolId, askedId);
    const limit = AbortSignal.any([signal, AbortSignal.timeout(ELSEWHERE_TIMEOUT_MS)]);
    return mapLimited(others, ASKED_AT_ONCE, async ({ id, name }) => {
      const shown = await Promise.resolve()
        .then(() => this.#links.clients(id).backups.show(request, { signal: limit }))
        .catch(() => undefined);
      return { node: name, warnings: shown?.warnings };
    });
  }

  /**
   * Compares the whole archive with its checksums and hashes, as a task.
   * @throws file_not_found, file_busy, file_not_backup.
   */
  async verify(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#catalogue.idle(id);
    assertArchive(row, 'verify');
    return this.#nodeTasks.start({
      taskId,
      name: 'file_verify',
      verboseName: `Verify ${row.filename}`,
      user,
      nodeId: this.#pools.nodeFor(row.pool_id),
      entities: [{ id, class: 'file' }],
      prepare: () => this.#catalogue.read(id),
      send: (clients, operationId, signal) =>
        clients.backups.verify({ operationId, fileId: id, file: refOf(row) }, { signal }),
    });
  }

  /**
   * Turns a plain archive into a compressed one or back, as a task; in place, or into another pool. What lies where nothing may be
   * written stays, and another pool is needed (specification 2.3, rule 7).
   * @param options level: zstd, 1 to 9.
   * @throws file_not_found, file_busy, file_not_backup, compression_same, pool_not_found, pool_not_active,
   * pool_read_only, pool_outside.
   */
  async recompress(
    id: string,
    compress: boolean,
    options: { datapool?: string; level?: number; sign?: boolean; keep_source?: boolean },
    user: Actor,
    taskId: string,
  ): Promise<TaskState> {
    const row = await this.#catalogue.get(id);
    assertArchive(row, compress ? 'compress' : 'unpack');
    if (compress === (row.compressed === 1)) {
      const format = compress ? 'compressed' : 'plain';
      throw new VirtkeepError('compression_same', { file: row.filename, format });
    }
    const nodeId = this.#pools.nodeFor(row.pool_id, options.datapool);
    this.#pools.writable(options.datapool ?? row.pool_id, nodeId, 'datapool');
    const keepsSource = options.keep_source === true || !this.#pools.isWritable(row.pool_id, nodeId);
    await (keepsSource ? this.#catalogue.idle(id) : this.#catalogue.unused(id));
    const request = {
      fileId: id,
      file: refOf(row),
      compress,
      compressionLevel: options.level ?? 0,
      poolId: options.datapool ?? '',
      sign: options.sign ?? false,
    };
    const work = { operation: taskId, description: row.description, protected: row.protected === 1 };
    return this.#nodeTasks.start({
      taskId,
      name: `file_${compress ? 'compress' : 'unpack'}${keepsSource ? '_copy' : ''}`,
      verboseName: `${compress ? 'Compress' : 'Unpack'} ${row.filename}`,
      user,
      nodeId,
      entities: [{ id, class: 'file' }],
      prepare: () => (keepsSource ? this.#catalogue.read(id) : this.#catalogue.begin(id, 'UPDATING', work)),
      send: (clients, operationId, signal) =>
        keepsSource
          ? clients.backups.recompressCopy({ operationId, ...request }, { signal })
          : clients.backups.recompress({ operationId, ...request }, { signal }),
    });
  }

  /**
   * Removes a file, as a task. One that is missing is only forgotten.
   * @throws file_not_found, file_protected, file_busy, pool_read_only, pool_outside.
   */
  async remove(id: string, user: Actor, taskId: string): Promise<TaskState> {
    const row = await this.#catalogue.get(id);
    if (row.protected === 1) throw new VirtkeepError('file_protected', { file: row.filename });
    if (row.status === 'MISSING') return this.#forget(row, user, taskId);
    await this.#catalogue.unused(id);
    const nodeId = this.#pools.nodeFor(row.pool_id);
    this.#pools.writable(row.pool_id, nodeId, 'file');
    const work = { operation: taskId, description: null, protected: null };
    return this.#nodeTasks.start({
      taskId,
      name: 'file_remove',
      verboseName: `Remove ${row.filename}`,
      user,
      nodeId,
      entities: [{ id, class: 'file' }],
      prepare: () => this.#catalogue.begin(id, 'DELETING', work),
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
    return this.#nodeTasks.runLocal(task, async () => {
      await this.#catalogue.remove(row.id);
      return {};
    });
  }

  /** A file that lies on its pool and is not being made or removed. @throws file_not_found, file_busy. */
  async published(id: string): Promise<FileRow> {
    const row = await this.#catalogue.get(id);
    return row.status === 'UPDATING' ? row : this.#catalogue.idle(id);
  }
}

/** @throws file_not_backup for anything but an archive of this service. */
export function assertArchive(row: FileRow, action: string): void {
  if (row.type === 'tar') return;
  throw new VirtkeepError('file_not_backup', { file: row.filename, type: row.type, action });
}

/** How the agents name a file. */
export function refOf(row: FileRow): { poolId: string; filename: string } {
  return { poolId: row.pool_id, filename: row.filename };
}
