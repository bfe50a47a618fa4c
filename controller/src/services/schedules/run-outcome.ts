/** What became of a run, by what became of its parts; pure. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ScheduledPartRow } from '../../store/schema.ts';
import type { TaskError } from '../tasks/record.ts';
import type { TaskOutcome } from '../tasks/tasks.ts';
import type { ScheduleDefinition } from './definition.ts';

export const RUN_STATUSES = [
  'RUNNING',
  'SUCCESS',
  'PARTIAL',
  'FAILED',
  'CANCELED',
  'SKIPPED',
  'MISSED',
] as const;
export type RunStatus = (typeof RUN_STATUSES)[number];
export const PART_STATUSES = [
  'WAITING',
  'RUNNING',
  'SUCCESS',
  'PARTIAL',
  'FAILED',
  'CANCELED',
  'SKIPPED',
] as const;
export type PartStatus = (typeof PART_STATUSES)[number];

/** It has no outcome yet; once it has one, it keeps it. */
export const isOpen = ({ status }: Pick<ScheduledPartRow, 'status'>): boolean =>
  status === 'WAITING' || status === 'RUNNING';

export interface PartRecord {
  entity: string;
  entity_class: string;
  verbose_name: string;
  status: PartStatus;
  /** Empty before it begins. */
  mode: 'full' | 'increment' | '';
  task: string | null;
  file: string | null;
  attempts: number;
  /** Bytes that it took; null: unknown. */
  bytes: number | null;
  estimate: number;
  started: string | null;
  finished: string | null;
  error: TaskError | null;
  notes: string[];
}

export function partRecord(row: ScheduledPartRow): PartRecord {
  return {
    entity: row.entity_id,
    entity_class: row.entity_class,
    verbose_name: row.entity_name,
    status: row.status as PartStatus,
    mode: row.mode === '' || row.mode === 'increment' ? row.mode : 'full',
    task: row.task_id,
    file: row.file_id,
    attempts: row.attempt,
    bytes: row.bytes,
    estimate: row.estimate,
    started: row.started,
    finished: row.finished,
    error: row.error_json === null ? null : (JSON.parse(row.error_json) as TaskError),
    notes: JSON.parse(row.notes_json) as string[],
  };
}

export interface EndedParts {
  parts: readonly ScheduledPartRow[];
  /** Ids that the task names and nobody has: they are told as parts that did not succeed. */
  missing: readonly string[];
  /** Somebody asked for the end of the run. */
  canceled: boolean;
}

/** A backup that is one of nothing has failed: people believe that there is one. */
export function outcomeOfRun(
  { action, verbose_name: name }: Pick<ScheduleDefinition, 'action' | 'verbose_name'>,
  { parts, missing, canceled }: EndedParts,
): TaskOutcome {
  const count = parts.length + missing.length;
  const good = parts.filter(({ status }) => status === 'SUCCESS').length;
  const result = { parts: parts.map(partRecord), missing };
  const gone = missing.map(id => `${id} is gone`).join(', ');
  if (count === 0 && action === 'backup')
    return { status: 'FAILED', error: new VirtkeepError('nothing_selected', { name }) };
  if (count === 0) return { status: 'SUCCESS', result, message: 'Nothing matches the task at present.' };
  if (good === count) return { status: 'SUCCESS', result };
  if (good > 0 || parts.some(({ status }) => status === 'PARTIAL'))
    return { status: 'PARTIAL', result, ...(gone !== '' && { message: `${gone}.` }) };
  if (canceled) return { status: 'CANCELED' };
  const first = parts.find(({ error_json }) => error_json !== null);
  const reason = first ? (JSON.parse(first.error_json!) as TaskError).detail : `${gone}.`;
  return { status: 'FAILED', error: new VirtkeepError('parts_failed', { count, reason }) };
}
