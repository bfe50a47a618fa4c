/**
 * The newest record of each task that the stream told of. Fifty running ones change hundreds of times a second: each is drawn by who
 * shows it, a few times a second, and no list is asked for anew.
 */
import { useCallback, useRef, useSyncExternalStore } from 'react';
import type { Task } from '../api/client.ts';

const MAX_KEPT = 500;
/** Between two drawings: to lay a page out and paint it costs more than what changes on it. */
const DRAW_MS = 200;
const newest = new Map<string, Task>();
const listeners = new Map<string, Set<() => void>>();
const changed = new Set<string>();
/** Whether what has changed is about to be drawn. */
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
  setTimeout(() => requestAnimationFrame(flush), DRAW_MS);
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
  const told = useTold(id, () => newest.get(id));
  return told === undefined || isOver(task) ? task : told;
}

/** Whether the task is over now, and what may be done with it; it is the same for as long as that is, however far the task comes. */
export function useTaskState(task: Task): Task {
  const { id } = task;
  const last = useRef(task);
  const told = useTold(id, () => {
    const now = newest.get(id) ?? task;
    if (stateOf(now) !== stateOf(last.current)) last.current = now;
    return last.current;
  });
  return isOver(task) ? task : told;
}

const stateOf = ({ id, status, permissions }: Task): string => JSON.stringify([id, status, permissions]);

/** What `look` finds, whenever the stream has told of the task. */
function useTold<T>(id: string, look: () => T): T {
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
  return useSyncExternalStore(subscribe, look);
}

/** Its outcome stands. */
export function isOver({ status }: Pick<Task, 'status'>): boolean {
  return status !== 'IN_PROGRESS' && status !== 'LOST';
}
