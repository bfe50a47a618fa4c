/**
 * Deletes backup files that a plan names: those beyond the task's rules after a backup, and the oldest ones before it when the pool has no
 * space. The whole plan is written down before the first file goes. Each file is judged anew right before: what has become protected,
 * the last good one, or is read meanwhile stays.
 */
import { type ErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Actor } from '../../../auth/principal.ts';
import type { FileRow, RetentionDecisionRow } from '../../../store/schema.ts';
import { archiveIdOfRow } from '../../backup-files/identity.ts';
import type { FileActionService } from '../../backups/file-actions.ts';
import type { DeleteReason } from '../../retention/plan.ts';
import { taskError } from '../../tasks/record.ts';
import { NODE_WAIT_MS } from '../away-nodes.ts';
import { keyOf, type NewDecision, type ScheduleStore } from '../store.ts';
import {
  type EndedTask,
  goOnAfter,
  isGood,
  NotKnownYet,
  type OpenPart,
  type Planned,
  type Step,
  type StepEnd,
} from './step.ts';

/** A file that a rule lets go. */
export interface Doomed {
  file: FileRow;
  reason: DeleteReason;
}

export interface DeletionsDependencies {
  store: ScheduleStore;
  fileActions: Pick<FileActionService, 'remove'>;
  now: () => Date;
  /** The files that are to go, as things are now; undefined: nobody knows, since the node does not say. */
  doomed: (part: OpenPart) => Promise<Doomed[] | undefined>;
  /** As {@link Step.asksNode}; default: false. */
  asksNode?: boolean;
}

const DECIDED = 'decided';

/** Refusals that say that the file is to stay. */
const STAYS: readonly ErrorKey[] = [
  'file_protected',
  'file_busy',
  'file_not_found',
  'pool_read_only',
  'pool_outside',
];

export class Deletions implements Step {
  readonly asksNode: boolean;
  readonly #dependencies: DeletionsDependencies;
  /** Since when nobody knows what is to go for a part, by its key; in ms of `performance.now`. */
  readonly #unknownSince = new Map<string, number>();

  constructor(dependencies: DeletionsDependencies) {
    this.asksNode = dependencies.asksNode ?? false;
    this.#dependencies = dependencies;
  }

  async plan(part: OpenPart): Promise<Planned | null> {
    const { store, now } = this.#dependencies;
    if (part.row.subject !== DECIDED) {
      const decisions = (await this.#doomed(part)).map(one => decisionOf(one, part, now()));
      await store.decide(part.row, decisions, DECIDED);
    }
    for (const decision of await this.#open(part)) {
      if (await this.#stillHolds(part, decision)) return { taskId: decision.id, subject: DECIDED };
      await this.#settle(decision, 'DROPPED');
    }
    this.#unknownSince.delete(keyOf(part.row));
    return null;
  }

  /** A node that does not say is asked again for as long as one that is away is waited for; then nothing (more) goes for it. */
  async #doomed(part: OpenPart): Promise<Doomed[]> {
    const key = keyOf(part.row);
    const doomed = await this.#dependencies.doomed(part);
    if (doomed !== undefined) {
      this.#unknownSince.delete(key);
      return doomed;
    }
    const nowMs = performance.now();
    const since = this.#unknownSince.get(key) ?? nowMs;
    this.#unknownSince.set(key, since);
    if (nowMs - since < NODE_WAIT_MS) throw new NotKnownYet();
    return [];
  }

  async #open({ row }: OpenPart): Promise<RetentionDecisionRow[]> {
    return (await this.#dependencies.store.decisions(row)).filter(({ status }) => status === 'DECIDED');
  }

  async #stillHolds(part: OpenPart, { file_id }: RetentionDecisionRow): Promise<boolean> {
    return (await this.#doomed(part)).some(({ file }) => file.id === file_id);
  }

  async begin(part: OpenPart, user: Actor, taskId: string): Promise<unknown> {
    const { row } = part;
    const decision = (await this.#dependencies.store.decisions(row)).find(({ id }) => id === taskId)!;
    // days may have passed since it was planned: the controller was away
    if (!(await this.#stillHolds(part, decision)))
      throw new VirtkeepError('file_protected', { file: decision.filename });
    return this.#dependencies.fileActions.remove(decision.file_id, user, taskId);
  }

  /** Its decision stands, under an id that no task has. */
  async unbegun({ row }: OpenPart): Promise<Record<string, never>> {
    await this.#dependencies.store.updateDecision(row.task_id!, { id: newId() });
    return {};
  }

  async ended(part: OpenPart, task: EndedTask): Promise<StepEnd> {
    const decisions = await this.#dependencies.store.decisions(part.row);
    const decision = decisions.find(({ id }) => id === part.row.task_id);
    if (decision === undefined) return { go: 'again' };
    const { error } = task;
    const stays = error !== null && STAYS.includes(error.msgKey);
    // after a crash it may be settled, and the part not know it
    if (decision.status === 'DECIDED')
      await this.#settle(decision, isGood(task) ? 'REMOVED' : stays ? 'DROPPED' : 'FAILED', error);
    if (isGood(task) || stays) return { go: 'again' };
    return goOnAfter('again', task, `The old backup ${decision.filename} was not deleted`);
  }

  async #settle(
    { id }: RetentionDecisionRow,
    status: 'REMOVED' | 'DROPPED' | 'FAILED',
    error: EndedTask['error'] = null,
  ): Promise<void> {
    const finished = this.#dependencies.now().toISOString();
    const error_json = error === null ? null : JSON.stringify(taskError(error));
    await this.#dependencies.store.updateDecision(id, { status, error_json, finished });
  }
}

function decisionOf({ file, reason }: Doomed, { row }: OpenPart, now: Date): NewDecision {
  return {
    id: newId(),
    run_id: row.run_id,
    position: row.position,
    file_id: file.id,
    archive_id: archiveIdOfRow(file),
    filename: file.filename,
    domain_id: file.domain_id ?? '',
    size: file.size,
    reason,
    status: 'DECIDED',
    error_json: null,
    decided: now.toISOString(),
    finished: null,
  };
}
