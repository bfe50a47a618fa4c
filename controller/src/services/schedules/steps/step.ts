/**
 * A part of a run goes through steps; each is a row of tasks on the nodes, one after another, whose ids are written down before they are
 * started. So nothing is done twice: after a crash a task that is known is waited for, and one that is not was never begun, and is begun
 * with the id that it has. One that its node does not know was cut off on its way there, and is planned once more, under another id.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Actor } from '../../../auth/principal.ts';
import type { FileRow, ScheduledPartRow, ScheduledRunRow } from '../../../store/schema.ts';
import { archiveIdOfRow } from '../../backup-files/identity.ts';
import { failureOfRow, taskError } from '../../tasks/record.ts';
import type { TaskState } from '../../tasks/tasks.ts';
import type { ScheduleDefinition } from '../definition.ts';

export interface OpenPart {
  row: ScheduledPartRow;
  run: ScheduledRunRow;
  /** As it was when the run began. */
  definition: ScheduleDefinition;
}

/** Archives that a task made of a VM. */
export type ArchivesOf = (taskId: string, domainId: string) => Promise<ReadonlySet<string>>;

/** Whether a task made the archive of a file of this VM. What others made costs it neither restore points nor saved states. */
export async function isOwn(
  archivesOf: ArchivesOf,
  { taskId, domainId }: { taskId: string; domainId: string },
  file: FileRow,
): Promise<boolean> {
  return (await archivesOf(taskId, domainId)).has(archiveIdOfRow(file));
}

/** Task and VM of a part. */
export const aboutOf = ({ row, run }: Pick<OpenPart, 'row' | 'run'>) => ({
  taskId: run.scheduled_task_id,
  domainId: row.entity_id,
});

/** A task that is to be started. */
export interface Planned {
  /** Chosen when absent. */
  taskId?: string;
  /** What it is about, where the step has several. */
  subject?: string;
  /** What users are to know of the choice. */
  note?: string | undefined;
}

/** Thrown by a step that can be planned or begun only later, since its node does not say what it depends on: it is planned anew then. */
export class NotKnownYet extends Error {}

export type StepEnd =
  /** What comes after, in the same step or in the next one. */
  | { go: 'again' | 'next'; columns?: Partial<ScheduledPartRow>; note?: string }
  /** The part has failed. */
  | { go: 'fail'; error: VirtkeepError };

export interface Step {
  /** True: what is planned depends on what the part's node says then; so a node that is away is waited for. */
  readonly asksNode?: boolean;
  /** The step's next task; null: it has nothing (more) to do. @throws NotKnownYet */
  plan(part: OpenPart): Promise<Planned | null>;
  /** Starts the task of this id. @throws what refuses it; NotKnownYet when nothing has begun */
  begin(part: OpenPart, user: Actor, taskId: string): Promise<unknown>;
  /** @param task has an outcome */
  ended(part: OpenPart, task: EndedTask): Promise<StepEnd>;
  /**
   * The part's task was never begun: its start was cut off, and its node does not know of it. What is to be written of the part, so that the
   * step plans the same once more. Absent: the task has failed; before there is a backup its part begins once more as a whole. May be called
   * again for the same.
   */
  unbegun?(part: OpenPart): Promise<Partial<ScheduledPartRow>>;
}

/** A task that has an outcome, or the refusal of one that never was. */
export interface EndedTask {
  status: 'SUCCESS' | 'PARTIAL' | 'FAILED' | 'CANCELED';
  /** Null when it was refused before it was a task. */
  state: TaskState | null;
  /** Of one that did not succeed. */
  error: VirtkeepError | null;
}

/** @param state has an outcome */
export function endedTask(state: TaskState): EndedTask {
  const status = state.row.status as EndedTask['status'];
  return { status, state, error: failureOfRow(state.row) };
}

export const isGood = ({ status }: EndedTask): boolean => status === 'SUCCESS' || status === 'PARTIAL';

/** What a failed task means for a step that the backup is good without: the part goes on, and keeps the error, so that it ends as PARTIAL. */
export const goOnAfter = (go: 'again' | 'next', task: EndedTask, what: string): StepEnd => ({
  go,
  columns: { error_json: JSON.stringify(taskError(task.error ?? new VirtkeepError('canceled'))) },
  note: `${what}: ${task.error?.message ?? 'it was cancelled'}`,
});
