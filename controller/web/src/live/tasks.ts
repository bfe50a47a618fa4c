/**
 * The newest record of each task that the stream told of. Fifty running ones change hundreds of times a second: each is drawn by who
 * shows it, at most once a frame, and no list is asked for anew.
 */
import { useCallback, useSyncExternalStore } from 'react';
import type { Task } from '../api/client.ts';

const MAX_KEPT = 500;
const newest = new Map<string, Task>();
const listeners = new Map<string, Set<() => void>>();
const changed = new Set<string>();
/** Whether the next frame draws what has changed. */
let isDue = false;

/** Keeps what the stream told. */
export function putTask(task: Task): void {
  newest.delete(task.id);
  newest.set(task.id, task);
  for (const id of newest.keys()) {
    if (newest.size <= MAX_KEPT) break;
    newest.delete(id);
  }
  changed.add(task.id);
  drawSoon();
}

function drawSoon(): void {
  if (isDue) return;
  isDue = true;
  requestAnimationFrame(flush);
}

function flush(): void {
  isDue = false;
  const ids = [...changed];
  changed.clear();
  for (const id of ids) for (const listener of listeners.get(id) ?? []) listener();
}

/** Forgets everything: somebody else may look now, or what lists tell from now on is newer. */
export function forgetTasks(): void {
  for (const id of newest.keys()) changed.add(id);
  newest.clear();
  drawSoon();
}

/** The task as it is now, given how a list told it. */
export function useTask(task: Task): Task {
  const { id } = task;
  const subscribe = useCallback(
    (listener: () => void) => {
      const all = listeners.get(id) ?? new Set();
      listeners.set(id, all.add(listener));
      return () => {
        all.delete(listener);
        if (all.size === 0) listeners.delete(id);
      };
    },
    [id],
  );
  const told = useSyncExternalStore(subscribe, () => newest.get(id));
  return told === undefined || isOver(task) ? task : told;
}

/** Its outcome stands. */
export function isOver({ status }: Pick<Task, 'status'>): boolean {
  return status !== 'IN_PROGRESS' && status !== 'LOST';
}
