/**
 * Who reads a backup file at present, on whichever node: the tasks without an outcome that read it, and the downloads under
 * way. A task is on disk before its start call leaves, so this outlives the controller; one whose node is lost counts until
 * it ends or its locks are released. Who writes a file stands in its own row (`FileWork`).
 */
import { KeyedCount } from '@virtkeep/shared/keyed-count';
import type { Database } from '../../store/schema.ts';

/** Kinds of tasks that read a file to their end, and the word for it in a refusal. */
const READERS: Record<string, string> = {
  domain_restore: 'restore',
  domain_config_restore: 'restore',
  domain_import_disk: 'import',
  file_verify: 'verify',
  file_compress_copy: 'compress',
  file_unpack_copy: 'unpack',
  file_convert: 'convert',
  file_export: 'export',
};

/** Statuses of tasks without an outcome. */
const OPEN = ['IN_PROGRESS', 'LOST'];

export interface FileUser {
  /** Id of its task. */
  operation: string;
  kind: string;
}

export class FileUsers {
  readonly #db: Database;
  readonly #downloads = new KeyedCount();

  constructor(db: Database) {
    this.#db = db;
  }

  /** Counts a download. @returns what ends it; harmless when repeated. */
  download(fileId: string): () => void {
    return this.#downloads.add(fileId);
  }

  /** One that reads the file; undefined when nobody does. */
  async readerOf(fileId: string): Promise<FileUser | undefined> {
    const task = await this.#db
      .selectFrom('task_entities')
      .innerJoin('tasks', 'tasks.id', 'task_entities.task_id')
      .select(['tasks.id', 'tasks.name'])
      .where('task_entities.entity_id', '=', fileId)
      .where('tasks.name', 'in', Object.keys(READERS))
      .where('tasks.status', 'in', OPEN)
      .orderBy('tasks.created')
      .executeTakeFirst();
    if (task) return { operation: task.id, kind: READERS[task.name]! };
    return this.#downloads.of(fileId) > 0 ? { operation: 'of a download', kind: 'download' } : undefined;
  }

  /** Ids of all files that somebody reads. */
  async read(): Promise<Set<string>> {
    const open = await this.#db
      .selectFrom('tasks')
      .innerJoin('task_entities', 'task_entities.task_id', 'tasks.id')
      .select(['tasks.name', 'task_entities.entity_id'])
      .where('tasks.status', 'in', OPEN)
      .execute();
    const ofTasks = open.filter(({ name }) => Object.hasOwn(READERS, name)).map(row => row.entity_id);
    return new Set([...ofTasks, ...this.#downloads.keys()]);
  }

  /** Whether a task is under way on a node that answers. */
  async isRunning(taskId: string): Promise<boolean> {
    const task = await this.#db
      .selectFrom('tasks')
      .select('id')
      .where('id', '=', taskId)
      .where('status', '=', 'IN_PROGRESS')
      .executeTakeFirst();
    return task !== undefined;
  }
}
