/**
 * Compares backup files with their checksums and hashes: the one that the part has just made, or those of a VM, one after another. What
 * has been compared since the part began is not compared again.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Actor } from '../../../auth/principal.ts';
import type { FileRow, ScheduledPartRow } from '../../../store/schema.ts';
import type { BackupFiles } from '../../backup-files/backup-files.ts';
import { detailsOf, lastPointOf } from '../../backup-files/record.ts';
import { isArchive } from '../../backup-files/usable.ts';
import type { FileActionService } from '../../backups/file-actions.ts';
import type { ScheduleDefinition } from '../definition.ts';
import { type EndedTask, isGood, type OpenPart, type Planned, type Step, type StepEnd } from './step.ts';

const SEPARATOR = ',';

export interface VerifyStepDependencies {
  backupFiles: BackupFiles;
  fileActions: Pick<FileActionService, 'verify'>;
}

export class VerifyStep implements Step {
  readonly #dependencies: VerifyStepDependencies;

  constructor(dependencies: VerifyStepDependencies) {
    this.#dependencies = dependencies;
  }

  /** @throws VirtkeepError archive_damaged: all were compared, and one is damaged */
  async plan(part: OpenPart): Promise<Planned | null> {
    const files = await this.#files(part);
    const done = comparedBy(part);
    const next = files.find(({ id }) => !done.includes(id));
    if (next) return { subject: [...done, next.id].join(SEPARATOR) };
    const bad = files.find(file => detailsOf(file).hash_sum?.ok === false);
    if (bad)
      throw new VirtkeepError('archive_damaged', { path: bad.filename, reason: detailsOf(bad).damage });
    return null;
  }

  async #files({ row, definition }: OpenPart): Promise<FileRow[]> {
    const { backupFiles } = this.#dependencies;
    if (definition.action === 'verify')
      return filesToVerify(backupFiles, row.entity_id, definition.verify_scope);
    if (definition.options.hash_sum !== true || row.file_id === null) return [];
    const file = await backupFiles.find(row.file_id);
    return file === undefined ? [] : [file];
  }

  begin({ row }: OpenPart, user: Actor, taskId: string): Promise<unknown> {
    return this.#dependencies.fileActions.verify(comparedBy({ row }).at(-1)!, user, taskId);
  }

  /** Its file has not been compared. */
  async unbegun(part: OpenPart): Promise<Partial<ScheduledPartRow>> {
    return { subject: comparedBy(part).slice(0, -1).join(SEPARATOR) };
  }

  async ended(_part: OpenPart, task: EndedTask): Promise<StepEnd> {
    if (!isGood(task)) return { go: 'fail', error: task.error ?? new VirtkeepError('canceled') };
    return { go: 'again' };
  }
}

/** Ids of the files that the part has compared, the one of its task last: times of nodes tell nothing of that. */
const comparedBy = ({ row }: Pick<OpenPart, 'row'>): string[] =>
  (row.subject ?? '').split(SEPARATOR).filter(Boolean);

/** The newest backup of a VM that can be compared, or all of them, the newest first. */
async function filesToVerify(
  backupFiles: BackupFiles,
  domainId: string,
  scope: ScheduleDefinition['verify_scope'],
): Promise<FileRow[]> {
  const rows = (await backupFiles.filesOf({ domain: domainId }))
    .filter(row => isArchive(row) && ['ACTIVE', 'DAMAGED'].includes(row.status))
    .sort((a, b) => (lastPointOf(a) < lastPointOf(b) ? 1 : -1));
  return scope === 'newest' ? rows.slice(0, 1) : rows;
}
