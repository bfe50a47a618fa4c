/** Takes the oldest restore points out of the archive that was just extended, when it holds more than the task says. */
import type { Actor } from '../../../auth/principal.ts';
import type { BackupFiles } from '../../backup-files/backup-files.ts';
import { detailsOf } from '../../backup-files/record.ts';
import type { FileActionService } from '../../backups/file-actions.ts';
import {
  type ArchivesOf,
  aboutOf,
  type EndedTask,
  goOnAfter,
  isGood,
  isOwn,
  type OpenPart,
  type Planned,
  type Step,
  type StepEnd,
} from './step.ts';

export interface TrimStepDependencies {
  backupFiles: BackupFiles;
  fileActions: Pick<FileActionService, 'trim'>;
  archivesOf: ArchivesOf;
}

export class TrimStep implements Step {
  readonly #dependencies: TrimStepDependencies;

  constructor(dependencies: TrimStepDependencies) {
    this.#dependencies = dependencies;
  }

  async plan(part: OpenPart): Promise<Planned | null> {
    const { row, definition } = part;
    const { keep_states, keep_states_by } = definition;
    if (keep_states === 0 || keep_states_by !== 'trim' || row.file_id === null) return null;
    const file = await this.#dependencies.backupFiles.find(row.file_id);
    if (file === undefined || file.protected === 1) return null;
    if (!(await isOwn(this.#dependencies.archivesOf, aboutOf(part), file))) return null;
    return detailsOf(file).states.length > keep_states ? {} : null;
  }

  begin({ row, definition }: OpenPart, user: Actor, taskId: string): Promise<unknown> {
    const { keep_states } = definition;
    return this.#dependencies.fileActions.trim(row.file_id!, { keep_states }, user, taskId);
  }

  async unbegun(): Promise<Record<string, never>> {
    return {};
  }

  /** The backup is good without it; the next run tries again. */
  async ended(_part: OpenPart, task: EndedTask): Promise<StepEnd> {
    return isGood(task) ? { go: 'next' } : goOnAfter('next', task, 'Old restore points were not taken out');
  }
}
