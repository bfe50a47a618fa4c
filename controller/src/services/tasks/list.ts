import { listRows, type RowPage } from '../../store/list-rows.ts';
import type { Database } from '../../store/schema.ts';

export interface TaskFilter {
  parent?: string | undefined;
  /** False: only those that are parts of no other. */
  isPart?: boolean | undefined;
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
export function listTasks(db: Database, filter: TaskFilter): Promise<RowPage<'tasks'>> {
  const { parent, isPart, status, node, name, entity, ordering, limit, offset } = filter;
  return listRows(db, 'tasks', {
    equal: { parent, status, node_id: node },
    containing: { verbose_name: name },
    and: eb => {
      const concerned = eb.selectFrom('task_entities').select('task_id');
      return [
        ...(entity === undefined ? [] : [eb('id', 'in', concerned.where('entity_id', '=', entity))]),
        ...(isPart === undefined ? [] : [eb('parent', isPart ? 'is not' : 'is', null)]),
      ];
    },
    orderBy: [ordering.field, 'id'],
    descending: ordering.descending,
    limit,
    offset,
  });
}
