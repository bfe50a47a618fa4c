/** The backup itself: a full one or an increment, by what was decided when the part began. */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Actor } from '../../../auth/principal.ts';
import type { BackupFiles } from '../../backup-files/backup-files.ts';
import { archiveIdOfRow } from '../../backup-files/identity.ts';
import { detailsOf } from '../../backup-files/record.ts';
import type { BackupOptions, BackupService } from '../../backups/backups.ts';
import { type BackupChoices, incremental, type ScheduleDefinition } from '../definition.ts';
import { nameOf } from '../name-template.ts';
import {
  type ArchivesOf,
  type EndedTask,
  isGood,
  type OpenPart,
  type Planned,
  type Step,
  type StepEnd,
} from './step.ts';

export interface BackupStepDependencies {
  backups: Pick<BackupService, 'backup'>;
  backupFiles: BackupFiles;
  nodeName: (id: string | null) => string;
  poolName: (id: string | null) => string;
  archivesOf: ArchivesOf;
}

export class BackupStep implements Step {
  readonly #dependencies: BackupStepDependencies;

  constructor(dependencies: BackupStepDependencies) {
    this.#dependencies = dependencies;
  }

  /** Keeps how large the archive is that is extended: what an increment takes is by how much it grows. */
  async plan({ row }: OpenPart): Promise<Planned> {
    const extended =
      row.extend_id === null ? undefined : await this.#dependencies.backupFiles.find(row.extend_id);
    return { subject: String(extended?.size ?? 0) };
  }

  async begin(part: OpenPart, user: Actor, taskId: string): Promise<unknown> {
    const { row, run, definition } = part;
    const { name_template, time_zone: timeZone, verbose_name: task } = definition;
    const mode = row.mode === 'increment' ? 'increment' : 'full';
    const words = { vm: row.entity_name, node: this.#dependencies.nodeName(row.node_id), task, mode };
    const due = Date.parse(run.due_time ?? run.created);
    const description = nameOf(name_template, words, { due, timeZone });
    const options = optionsOf(definition, row.mode, row.extend_id);
    const named = description === '' ? {} : { description };
    const { bandwidth } = definition;
    const limits = bandwidth === 0 ? [] : [{ key: run.scheduled_task_id, bytesPerSecond: bandwidth }];
    const request = { ...options, ...named, domain: row.entity_id };
    // what was not there when it was decided may be another task's, whose rules let restore points go
    const newArchive = row.extend_id === null;
    const leaves = await this.#left(part);
    return this.#dependencies.backups.backup(request, user, taskId, { limits, newArchive, leaves });
  }

  /**
   * The task's archives of the VM but the one that this run makes or extends and the one that the task names: it extends none of them again.
   * What they have on the VM would stay for ever, and each new archive would add to it. Held states stay as long as their archive, and all do
   * when the run extends what somebody else made: that may go, and the task goes back to its own.
   */
  async #left({ row, run, definition: { options } }: OpenPart): Promise<string[]> {
    if (options.hold_states) return [];
    const own = new Set(await this.#dependencies.archivesOf(run.scheduled_task_id, row.entity_id));
    const extended = await this.#archiveOf(row.extend_id);
    if (row.extend_id !== null && (extended === undefined || !own.has(extended))) return [];
    const named = await this.#archiveOf(options.backup ?? null);
    return [...own].filter(id => id !== extended && id !== named);
  }

  async #archiveOf(fileId: string | null): Promise<string | undefined> {
    const file = fileId === null ? undefined : await this.#dependencies.backupFiles.find(fileId);
    return file && archiveIdOfRow(file);
  }

  async ended({ row, definition }: OpenPart, task: EndedTask): Promise<StepEnd> {
    if (row.mode === 'increment' && row.extend_id !== null && hasKey(task.error, 'not_extendable'))
      return {
        go: 'again',
        columns: { mode: 'full', extend_id: null },
        note: `A full backup is made instead of an increment: ${task.error.message}`,
      };
    const needed = this.#neededMore(row, task);
    if (definition.free_space_cleanup && needed > 0)
      return { go: 'again', columns: { step: 'space', subject: null, estimate: needed } };
    if (!isGood(task)) return { go: 'fail', error: task.error ?? new VirtkeepError('canceled') };
    const fileId = task.state?.entities.find(entity => entity.class === 'file')?.id ?? null;
    const file = fileId === null ? undefined : await this.#dependencies.backupFiles.find(fileId);
    const states = file === undefined ? [] : detailsOf(file).states;
    const mode = states.length > 1 ? 'increment' : 'full';
    const sizeBefore = mode === 'increment' ? Number(row.subject) : 0;
    const bytes = file === undefined ? null : Math.max(0, file.size - sizeBefore);
    const reason = file === undefined ? '' : detailsOf(file).fallback_reason;
    const wanted = row.mode === 'increment' && mode === 'full' && reason !== '';
    return {
      go: 'next',
      columns: { file_id: fileId, mode, bytes },
      ...(wanted && { note: `A full backup was made instead of an increment: ${reason}` }),
    };
  }

  /** Bytes that the node wants on the backup's pool; 0: it wants no more than room was made for. */
  #neededMore({ pool_id, estimate }: OpenPart['row'], { error }: EndedTask): number {
    if (!hasKey(error, 'pool_no_space')) return 0;
    // the memory of a VM may lie elsewhere until it is copied
    if (error.params.pool !== this.#dependencies.poolName(pool_id)) return 0;
    const needed = Number(error.params.needed_bytes);
    return needed > estimate ? needed : 0;
  }
}

/**
 * The request of one backup.
 * @param extend the file that is to be extended, when the task names one that still can be
 */
export function optionsOf(
  definition: Pick<ScheduleDefinition, 'options'>,
  mode: string,
  extend: string | null,
): Omit<BackupOptions, 'domain'> {
  const { backup: _backup, increment: _increment, ...common }: BackupChoices = definition.options;
  if (mode !== 'increment')
    return { ...common, can_be_incremental: common.can_be_incremental || incremental(definition) };
  if (extend === null) return { ...common, increment: true };
  const { datapool: _pool, ...rest } = common;
  return { ...rest, backup: extend };
}
