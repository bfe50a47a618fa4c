/** Which lists are asked for anew after a change, and how often at most. */
import type { QueryClient } from '@tanstack/react-query';
import type { Task } from '../api/client.ts';
import type { Change } from './stream.ts';
import { forgetTasks, isOver, putTask } from './tasks.ts';

/**
 * First part of the keys of queries that a kind of thing is shown by: the first part of a key decides when it is asked for anew. One that is
 * not here is so only after a gap in the stream, and `shown`, what was read out of an archive, never.
 */
const SHOWN_BY: Readonly<Record<string, readonly string[]>> = {
  task: ['tasks'],
  event: ['events'],
  domain: ['domains', 'overview'],
  vdisk: ['domains'],
  node: ['nodes', 'overview'],
  data_pool: ['pools', 'overview'],
  file: ['files', 'overview'],
  scheduled_task: ['schedules', 'overview'],
};
const SOON_MS = 1000;
/** It is made of everything. */
const OVERVIEW_MS = 3000;

/** Takes changes, and has what shows them asked for again: soon, and once for many. */
export function throttledRefresh(client: QueryClient) {
  const timers = new Map<string, ReturnType<typeof setTimeout>>();
  const soon = (key: string) => {
    if (timers.has(key)) return;
    const refresh = () => {
      timers.delete(key);
      void client.invalidateQueries({ queryKey: [key] });
    };
    timers.set(key, setTimeout(refresh, key === 'overview' ? OVERVIEW_MS : SOON_MS));
  };
  return {
    take: ({ kind, action, record }: Change) => {
      if (kind === 'reset') {
        forgetTasks();
        return void client.invalidateQueries({ predicate: ({ queryKey }) => queryKey[0] !== 'shown' });
      }
      const task = kind === 'task' ? (record as Task | null) : null;
      if (task !== null) putTask(task);
      // how far a task is shows by itself
      if (task !== null && action === 'changed' && !isOver(task)) return;
      for (const key of SHOWN_BY[kind] ?? []) soon(key);
      // a run of a schedule tells of itself only
      if (task?.is_multitask) soon('schedules');
      if (kind === 'task') soon('overview');
    },
    stop: () => {
      for (const timer of timers.values()) clearTimeout(timer);
    },
  };
}
