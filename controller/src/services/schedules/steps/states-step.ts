/**
 * Deletes the saved states of a VM when the limit of increments is reached: after the backup that reaches it, and before the next one when
 * that did not succeed. Without it the backup goes on all the same.
 */
import type { Actor } from '../../../auth/principal.ts';
import type { BackupFiles } from '../../backup-files/backup-files.ts';
import type { SnapshotService } from '../../domains/snapshots.ts';
import type { Inventory } from '../../inventory/inventory.ts';
import { isLimitReached, statesToDelete } from '../states.ts';
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

export interface StatesStepDependencies {
  inventory: Inventory;
  backupFiles: BackupFiles;
  snapshots: Pick<SnapshotService, 'remove'>;
  archivesOf: ArchivesOf;
}

/** Before the backup: what was decided then stands in the mode. */
export const BY_LIMIT = 'full_by_limit';

const SEPARATOR = ',';

export class StatesStep implements Step {
  readonly #dependencies: StatesStepDependencies;

  constructor(dependencies: StatesStepDependencies) {
    this.#dependencies = dependencies;
  }

  /** Decides once which states go: a merge takes long, and what somebody saves meanwhile is not the limit's to delete. */
  async plan(part: OpenPart): Promise<Planned | null> {
    const { row, definition } = part;
    const domain = this.#dependencies.inventory.domains.get(row.entity_id)?.domain;
    // once begun it goes on, although what it counts grows less by it
    if (!domain || (row.subject === null && !(await this.#isReached(part)))) return null;
    const present = statesToDelete(definition, domain).map(({ id }) => id);
    const left = row.subject === null ? present : decidedOf(row).filter(id => present.includes(id));
    return left.length === 0 ? null : { subject: left.join(SEPARATOR) };
  }

  async #isReached(part: OpenPart): Promise<boolean> {
    const { row, definition } = part;
    if (row.step === 'clear') return row.mode === BY_LIMIT;
    const { archivesOf, backupFiles } = this.#dependencies;
    const file = row.file_id === null ? undefined : await backupFiles.find(row.file_id);
    if (file === undefined || row.mode !== 'increment' || !isLimitReached(definition, file)) return false;
    return isOwn(archivesOf, aboutOf(part), file);
  }

  begin({ row }: OpenPart, user: Actor, taskId: string): Promise<unknown> {
    const state = { id: decidedOf(row)[0]!, bandwidth: 0 };
    return this.#dependencies.snapshots.remove(row.entity_id, state, user, taskId);
  }

  async unbegun(): Promise<Record<string, never>> {
    return {};
  }

  async ended(_part: OpenPart, task: EndedTask): Promise<StepEnd> {
    return isGood(task) ? { go: 'again' } : goOnAfter('next', task, 'A saved state was not deleted');
  }
}

/** Ids of the states that are still to go, the one of its task first. */
const decidedOf = ({ subject }: OpenPart['row']): string[] => (subject ?? '').split(SEPARATOR);
