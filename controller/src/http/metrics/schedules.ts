/** Of each scheduled task: when it runs next, and how its last run went; and the queue of what waits to begin. */
import type { ScheduleMeasures, ScheduleMetricsSource } from '../../services/monitoring/sources.ts';
import { type Family, familyText, labelText } from './families.ts';

const seconds = (ms: number | null): number | null => (ms === null ? null : ms / 1000);

export const SCHEDULE_FAMILIES: readonly Family<ScheduleMeasures>[] = [
  {
    name: 'virtkeep_schedule_next_run_timestamp_seconds',
    help: 'When the scheduled task is due next; absent: not again',
    value: ({ nextRun }) => seconds(nextRun),
  },
  {
    name: 'virtkeep_schedule_last_success_timestamp_seconds',
    help: 'When the last run of the scheduled task ended that succeeded',
    value: ({ lastSuccess }) => seconds(lastSuccess),
  },
  {
    name: 'virtkeep_schedule_last_duration_seconds',
    help: 'How long the last run of the scheduled task took',
    value: ({ lastDurationMs }) => seconds(lastDurationMs),
  },
];

interface Queue {
  length: number;
  oldest: number | null;
}

const QUEUE_FAMILIES: readonly Family<Queue>[] = [
  {
    name: 'virtkeep_queue_length',
    help: 'Backups of scheduled tasks that wait to begin',
    value: ({ length }) => length,
  },
  {
    name: 'virtkeep_queue_oldest_timestamp_seconds',
    help: 'Since when the one waits that has waited longest; absent: none does',
    value: ({ oldest }) => seconds(oldest),
  },
];

export function* scheduleText(source: ScheduleMetricsSource): Generator<string> {
  const tasks = [...source.tasks()].map(thing => ({
    thing,
    labels: labelText({ id: thing.id, schedule: thing.name }),
  }));
  for (const family of SCHEDULE_FAMILIES) yield* familyText(family, tasks);
  const queue = [{ thing: source.queue(), labels: '' }];
  for (const family of QUEUE_FAMILIES) yield* familyText(family, queue);
}
