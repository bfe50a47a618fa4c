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
import type { Inventory } from '../../inventory/inventory.ts';
import type { ScheduleDefinition } from '../definition.ts';
import { type EndedTask, isGood, type OpenPart, type Planned, type Step, type StepEnd } from './step.ts';

const SEPARATOR = ',';

export interface VerifyStepDependencies {
  backupFiles: BackupFiles;
  fileActions: Pick<FileActionService, 'verify'>;
  inventory: Pick<Inventory, 'isOrphaned'>;
}

interface Chosen {
  files: FileRow[];
  /** How many are left out. */
  lost: number;
}

export class VerifyStep implements Step {
  readonly #dependencies: VerifyStepDependencies;

  constructor(dependencies: VerifyStepDependencies) {
    this.#dependencies = dependencies;
  }

  /** @throws VirtkeepError archive_damaged: all were compared, and one is damaged */
  async plan(part: OpenPart): Promise<Planned | null> {
    const { files, lost } = await this.#chosen(part);
    const done = comparedBy(part);
    const next = files.find(({ id }) => !done.includes(id));
    const isToTell = done.length === 0 && lost > 0;
    const note = isToTell
      ? `Left out, in pools that no node has any more: ${lost} of its backups`
      : undefined;
    if (next) return { subject: [...done, next.id].join(SEPARATOR), note };
    const bad = files.find(file => detailsOf(file).hash_sum?.ok === false);
    if (bad)
      throw new VirtkeepError('archive_damaged', { path: bad.filename, reason: detailsOf(bad).damage });
    return null;
  }

  async #chosen({ row, definition }: OpenPart): Promise<Chosen> {
    if (definition.action === 'verify') return this.#ofVm(row.entity_id, definition.verify_scope);
    if (definition.options.hash_sum !== true || row.file_id === null) return { files: [], lost: 0 };
    const file = await this.#dependencies.backupFiles.find(row.file_id);
    return { files: file === undefined ? [] : [file], lost: 0 };
  }

  /**
   * The newest backup of a VM that can be compared, or all of them, the newest first. Where no node has the pool of any of them, nothing is
   * left out: to compare none is no success.
   */
  async #ofVm(domainId: string, scope: ScheduleDefinition['verify_scope']): Promise<Chosen> {
    const { backupFiles, inventory } = this.#dependencies;
    const all = (await backupFiles.filesOf({ domain: domainId }))
      .filter(row => isArchive(row) && ['ACTIVE', 'DAMAGED'].includes(row.status))
      .sort((a, b) => (lastPointOf(a) < lastPointOf(b) ? 1 : -1));
    const reached = all.filter(row => !inventory.isOrphaned(row.pool_id));
    const files = reached.length > 0 ? reached : all;
    return { files: scope === 'newest' ? files.slice(0, 1) : files, lost: all.length - files.length };
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
