import { contains } from '../../store/dialect.ts';
import type { Database, TaskRow } from '../../store/schema.ts';

export interface TaskFilter {
  parent?: string | undefined;
  status?: string | undefined;
  entity?: string | undefined;
  node?: string | undefined;
  name?: string | undefined;
  ordering: {
    field: 'created' | 'finished_time' | 'status' | 'name' | 'verbose_name' | 'progress';
    descending: boolean;
  };
  limit: number;
  offset: number;
}

/** One page of tasks and the number of all that match. */
export async function listTasks(
  db: Database,
  filter: TaskFilter,
): Promise<{ count: number; rows: TaskRow[] }> {
  let query = db.selectFrom('tasks');
  if (filter.parent !== undefined) query = query.where('parent', '=', filter.parent);
  if (filter.status !== undefined) query = query.where('status', '=', filter.status);
  if (filter.node !== undefined) query = query.where('node_id', '=', filter.node);
  if (filter.name !== undefined) query = query.where(contains('verbose_name', filter.name));
  if (filter.entity !== undefined) {
    const entity = filter.entity;
    query = query.where('id', 'in', eb =>
      eb.selectFrom('task_entities').select('task_id').where('entity_id', '=', entity),
    );
  }
  const total = await query.select(({ fn }) => fn.countAll<number>().as('number')).executeTakeFirstOrThrow();
  const direction = filter.ordering.descending ? 'desc' : 'asc';
  const rows = await query
    .selectAll()
    .orderBy(filter.ordering.field, direction)
    .orderBy('id', direction)
    .limit(filter.limit)
    .offset(filter.offset)
    .execute();
  return { count: Number(total.number), rows };
}
