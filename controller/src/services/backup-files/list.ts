/** The query behind the list of backup files. */
import type { ExpressionBuilder } from 'kysely';
import { listRows, type RowPage } from '../../store/list-rows.ts';
import type { Database, Schema } from '../../store/schema.ts';
import { EXTENDABLE_STATUSES } from './record.ts';

export const FILE_ORDERINGS = ['created', 'filename', 'verbose_name', 'size', 'status', 'type'] as const;

export interface FileFilter {
  domain?: string | undefined;
  datapool?: string | undefined;
  type?: string | undefined;
  can_be_incremental?: boolean | undefined;
  status?: string | undefined;
  /** Id of a tag that it bears. */
  tag?: string | undefined;
  name?: string | undefined;
  ordering: { field: (typeof FILE_ORDERINGS)[number]; descending: boolean };
  limit: number;
  offset: number;
}

/** One page, and the number of all that match. */
export function listFiles(db: Database, filter: FileFilter): Promise<RowPage<'files'>> {
  const { domain, datapool, type, status, name, ordering, limit, offset } = filter;
  return listRows(db, 'files', {
    equal: { domain_id: domain, pool_id: datapool, type, status },
    containing: { verbose_name: name },
    and: eb => conditions(eb, filter),
    orderBy: [ordering.field, 'id'],
    descending: ordering.descending,
    limit,
    offset,
  });
}

function conditions(eb: ExpressionBuilder<Schema, 'files'>, filter: FileFilter) {
  const { tag, can_be_incremental: isExtendable } = filter;
  const bearing = eb.selectFrom('tag_entities').select('entity_id');
  const can = eb.and([eb('can_be_incremental', '=', 1), eb('status', 'in', [...EXTENDABLE_STATUSES])]);
  return [
    ...(tag === undefined ? [] : [eb('id', 'in', bearing.where('tag_id', '=', tag))]),
    ...(isExtendable === undefined ? [] : [isExtendable ? can : eb.not(can)]),
  ];
}
