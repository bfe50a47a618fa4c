/**
 * Files that are sent into `backups/` of a data pool. The node has all of an upload and is the truth of it: the controller keeps nothing
 * of it, passes the bytes on as they come, and asks the nodes for one that it does not know.
 */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';
import type { Upload, WriteUploadRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/upload';
import { newId } from '@virtkeep/shared/ids';
import { mapLimited } from '@virtkeep/shared/limit';
import { resultOf } from '@virtkeep/shared/operation-result';
import type { NodeLinks } from '../../agents/links.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import type { FileRecord } from '../backup-files/record.ts';
import type { LibraryService } from '../backups/library.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import type { Shares } from '../shares.ts';
import type { EndedOperation } from '../tasks/ends.ts';
import type { NodeTasks } from '../tasks/node-tasks.ts';
import type { NewTask, TaskService } from '../tasks/tasks.ts';

type Actor = NewTask['user'];

export interface NewUpload {
  datapool: string;
  filename: string;
  /** undefined: not known. */
  sizeBytes: number | undefined;
  /** Lower-case hex; empty: it is not compared. */
  sha256: string;
  /** All comes in one request: of one that breaks off nothing stays. */
  isOneWrite: boolean;
}

/** Bytes of an upload, from an offset on. */
export interface UploadPart {
  offset: number;
  checksum?: { algorithm: string; digest: Buffer };
  /** They are the last ones. */
  last: boolean;
  bytes: AsyncIterable<Uint8Array>;
}

export interface UploadRecord {
  id: string;
  datapool: string;
  filename: string;
  /** null: not known yet. */
  size: number | null;
  offset: number;
  sha256: string;
  status: 'UPLOADING' | 'DONE';
  /** Without a byte it is given up then. */
  expires: string;
  /** Of its task; null: none runs. */
  task: string | null;
  /** The record of the file; null: it is not done, or no backup file by its name. */
  file: FileRecord | null;
}

export interface UploadDependencies {
  inventory: Inventory;
  links: NodeLinks;
  nodeTasks: NodeTasks;
  pools: PoolService;
  /** Each holds a connection. */
  uploads: Shares;
  backupFiles: BackupFiles;
  library: LibraryService;
  tasks: TaskService;
}

const CALL_TIMEOUT_MS = 60_000;
const END_MS = 30_000;
/** Nodes that are asked at once. */
const WIDTH = 8;
const MAX_KNOWN = 10_000;
const KNOWN_MS = 86_400_000;

export class UploadService {
  readonly #dependencies: UploadDependencies;
  /** The node of an upload, by its id; others are asked for. */
  readonly #nodes = new ExpiringMap<string>({ lifeMs: KNOWN_MS, maxEntries: MAX_KNOWN });

  constructor(dependencies: UploadDependencies) {
    this.#dependencies = dependencies;
    dependencies.nodeTasks.ends.succeeded({ upload_file: ended => this.#uploaded(ended) });
  }

  /**
   * Begins an upload, as a task.
   * @throws pool_not_found, pool_read_only, pool_outside, pool_not_active, node_unreachable, node_in_service, and what the node answers
   */
  async create(upload: NewUpload, user: Actor): Promise<UploadRecord> {
    const { datapool, filename, sizeBytes, sha256, isOneWrite } = upload;
    const { pools, nodeTasks } = this.#dependencies;
    const nodeId = pools.nodeFor(datapool);
    pools.writable(datapool, nodeId, 'datapool');
    const request = {
      poolId: datapool,
      filename,
      sha256,
      owner: user.id,
      oneWrite: isOneWrite,
      ...(sizeBytes !== undefined && { size: BigInt(sizeBytes) }),
    };
    const id = newId();
    await nodeTasks.start({
      ...taskOf({ id, filename, poolId: datapool }, nodeId, user),
      send: ({ uploads }, operationId, signal) => uploads.create({ ...request, operationId }, { signal }),
    });
    this.#nodes.set(id, nodeId);
    return this.get(id);
  }

  /** @throws upload_not_found; node_unreachable: a node that is away may have it */
  async get(id: string): Promise<UploadRecord> {
    const { upload } = await this.#find(id);
    return this.#record(upload);
  }

  /**
   * As `get`; one that has all its bytes is ended first, should its node have been stopped before that.
   * @throws as `write`
   */
  async settled(id: string, user: Actor, signal: AbortSignal): Promise<UploadRecord> {
    const { upload } = await this.#find(id);
    if (upload.done || Number(upload.size ?? -1) !== Number(upload.offset)) return this.#record(upload);
    return this.write(id, { offset: Number(upload.offset), last: false, bytes: nothing() }, user, signal);
  }

  /**
   * Sends bytes to the node; with the last ones it resolves when the file has its name.
   * @throws upload_not_found, node_unreachable, too_many_requests, what the node answers, what the bytes throw
   */
  async write(id: string, part: UploadPart, user: Actor, signal: AbortSignal): Promise<UploadRecord> {
    const leave = this.#dependencies.uploads.take(user.id);
    try {
      const { nodeId, upload } = await this.#find(id);
      const task = upload.operationId || (upload.done ? '' : await this.#resume(upload, nodeId, user));
      const { uploads } = this.#dependencies.links.clients(nodeId);
      const written = await uploads.write(messages(id, part), { signal });
      // its end brings the file into the list
      if (written.done && task !== '') await this.#dependencies.tasks.waitFor(task, END_MS, signal);
      return await this.#record(written);
    } finally {
      leave();
    }
  }

  /** Ends an upload; nothing of it stays. @throws upload_not_found, node_unreachable, upload_busy, and what the node answers */
  async remove(id: string): Promise<void> {
    const { nodeId } = await this.#find(id);
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    await this.#dependencies.links.clients(nodeId).uploads.abort({ id }, { signal });
    this.#nodes.delete(id);
  }

  /** The agent was stopped since: another task goes on with it. */
  async #resume(upload: Upload, nodeId: string, user: Actor): Promise<string> {
    const { id } = upload;
    const taskId = newId();
    await this.#dependencies.nodeTasks.start({
      ...taskOf({ ...upload, id: taskId }, nodeId, user),
      send: ({ uploads }, operationId, signal) => uploads.resume({ operationId, id }, { signal }),
    });
    return taskId;
  }

  async #find(id: string): Promise<{ nodeId: string; upload: Upload }> {
    const known = this.#nodes.get(id);
    const nodeIds = known === undefined ? [...this.#dependencies.inventory.nodes.keys()] : [known];
    const answers = await mapLimited(nodeIds, WIDTH, nodeId =>
      this.#ask(nodeId, id).catch((error: unknown) => ({ error })),
    );
    const found = answers.find(answer => answer !== undefined && 'upload' in answer);
    if (found !== undefined && 'upload' in found) {
      this.#nodes.set(id, found.nodeId);
      return found;
    }
    // as long as one node cannot be asked, it may have it
    const failed = answers.find(answer => answer !== undefined && 'error' in answer);
    if (failed !== undefined && 'error' in failed) throw failed.error;
    throw new VirtkeepError('upload_not_found', { id });
  }

  /** @returns undefined: the node has none of this id. @throws node_unreachable, and what the node answers */
  async #ask(nodeId: string, id: string): Promise<{ nodeId: string; upload: Upload } | undefined> {
    const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
    try {
      return {
        nodeId,
        upload: await this.#dependencies.links.clients(nodeId).uploads.get({ id }, { signal }),
      };
    } catch (error) {
      // a node of the version before has no uploads
      if (hasKey(error, 'upload_not_found') || hasKey(error, 'node_outdated')) return undefined;
      throw error;
    }
  }

  async #uploaded({ operation, nameEntities }: EndedOperation): Promise<unknown> {
    const { file, poolId } = resultOf(operation, 'uploadFile');
    if (!file) return undefined;
    const id = await this.#dependencies.backupFiles.recordResult(file, operation.id);
    await nameEntities([
      { id, class: 'file' },
      { id: poolId, class: 'data_pool' },
    ]);
    return this.#dependencies.library.get(id);
  }

  async #record(upload: Upload): Promise<UploadRecord> {
    const { id, poolId, filename, size, offset, sha256, expiresInMs, operationId, done } = upload;
    return {
      id,
      datapool: poolId,
      filename,
      size: size === undefined ? null : Number(size),
      offset: Number(offset),
      sha256,
      status: done ? 'DONE' : 'UPLOADING',
      expires: new Date(Date.now() + Number(expiresInMs)).toISOString(),
      task: operationId === '' ? null : operationId,
      file: done ? await this.#fileAt(poolId, filename) : null,
    };
  }

  async #fileAt(poolId: string, filename: string): Promise<FileRecord | null> {
    const rows = await this.#dependencies.backupFiles.filesOf({ pool: poolId });
    const row = rows.find(found => found.filename === filename);
    return row ? this.#dependencies.library.get(row.id) : null;
  }
}

function taskOf(
  { id, filename, poolId }: { id: string; filename: string; poolId: string },
  nodeId: string,
  user: Actor,
) {
  return {
    taskId: id,
    name: 'file_upload',
    verboseName: `Upload ${filename}`,
    user,
    nodeId,
    entities: [{ id: poolId, class: 'data_pool' as const }],
  };
}

async function* nothing(): AsyncGenerator<Uint8Array> {}

const MAX_MESSAGE_BYTES = 1024 * 1024;

async function* messages(
  id: string,
  { offset, checksum, last, bytes }: UploadPart,
): AsyncGenerator<Partial<WriteUploadRequest>> {
  yield {
    write: {
      id,
      offset: BigInt(offset),
      checksumAlgorithm: checksum?.algorithm ?? '',
      checksum: checksum?.digest ?? Buffer.alloc(0),
      last,
    },
  };
  for await (const data of bytes)
    for (let at = 0; at < data.length; at += MAX_MESSAGE_BYTES) {
      const piece = data.subarray(at, at + MAX_MESSAGE_BYTES);
      yield { data: Buffer.from(piece.buffer, piece.byteOffset, piece.length) };
    }
}
