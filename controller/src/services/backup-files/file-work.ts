/** Which task changes or removes a busy file. */
import type { FileRow } from '../../store/schema.ts';
import type { TaskService, TaskState } from '../tasks/tasks.ts';
import { detailsOf } from './record.ts';

/** Undefined: unknown. A record of an earlier version does not name its task: then it is the newest task that names the file. */
export async function workOf(file: FileRow, tasks: TaskService): Promise<TaskState | undefined> {
  const { work } = detailsOf(file);
  if (work !== null) return tasks.find(work.operation);
  const ordering = { field: 'created', descending: true } as const;
  const { tasks: newest } = await tasks.list({ entity: file.id, ordering, limit: 1, offset: 0 });
  return newest[0];
}
