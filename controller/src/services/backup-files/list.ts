/** The query behind the list of backup files. */
import { contains } from '../../store/dialect.ts';
import type { Database, FileRow } from '../../store/schema.ts';
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
export async function listFiles(
  db: Database,
  filter: FileFilter,
): Promise<{ count: number; rows: FileRow[] }> {
  const query = matching(db, filter);
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

function matching(db: Database, filter: FileFilter) {
  let query = db.selectFrom('files');
  if (filter.domain !== undefined) query = query.where('domain_id', '=', filter.domain);
  if (filter.datapool !== undefined) query = query.where('pool_id', '=', filter.datapool);
  if (filter.type !== undefined) query = query.where('type', '=', filter.type);
  if (filter.status !== undefined) query = query.where('status', '=', filter.status);
  if (filter.name !== undefined) query = query.where(contains('verbose_name', filter.name));
  const { tag } = filter;
  if (tag !== undefined)
    query = query.where('id', 'in', eb =>
      eb.selectFrom('tag_entities').select('entity_id').where('tag_id', '=', tag),
    );
  const isExtendable = filter.can_be_incremental;
  if (isExtendable === undefined) return query;
  return query.where(eb => {
    const can = eb.and([eb('can_be_incremental', '=', 1), eb('status', 'in', [...EXTENDABLE_STATUSES])]);
    return isExtendable ? can : eb.not(can);
  });
}
