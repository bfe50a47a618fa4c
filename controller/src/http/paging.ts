/** Lists: limit, offset, ordering, name, fields, all_content, and full URLs of the pages beside. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyRequest } from 'fastify';
import type { TObject } from 'typebox';
import { inOrder } from '../services/list-order.ts';

/** The common query parameters, as `listQuery` has validated them. */
export interface ListQuery {
  limit?: number;
  offset?: number;
  ordering?: string;
  name?: string;
  fields?: string;
  all_content?: number;
}

export interface Page<F extends string = string> {
  limit: number;
  offset: number;
  ordering: { field: F; descending: boolean };
  name: string | undefined;
  /** Fields to answer; undefined is all. */
  fields: string[] | undefined;
  allContent: boolean;
}

export interface ListAnswer {
  count: number;
  next: string | null;
  previous: string | null;
  results: object[];
}

/**
 * Reads the common list parameters.
 * @param schema the record; its property names are what `fields` may ask for.
 * @param orderings what may be ordered by; the first is the default (a leading "-" makes it descending).
 * @throws unknown_ordering; invalid_field for a field the record does not have.
 */
export function parsePage<const O extends string>(
  query: ListQuery,
  schema: TObject,
  orderings: readonly [O, ...O[]],
): Page<O extends `-${infer F}` ? F : O> {
  type Field = O extends `-${infer F}` ? F : O;
  const names = orderings.map(name => name.replace(/^-/, ''));
  const ordering = query.ordering ?? orderings[0];
  const field = ordering.replace(/^-/, '');
  if (!names.includes(field)) {
    throw new VirtkeepError('unknown_ordering', {
      value: ordering,
      allowed: names.join(', '),
      field: 'ordering',
    });
  }
  return {
    limit: query.limit ?? 100,
    offset: query.offset ?? 0,
    ordering: { field: field as Field, descending: ordering.startsWith('-') },
    name: query.name,
    fields: parseFields(query.fields, schema),
    allContent: query.all_content === 1,
  };
}

function parseFields(text: string | undefined, schema: TObject): string[] | undefined {
  if (text === undefined) return undefined;
  const fields = text
    .split(',')
    .map(field => field.trim())
    .filter(field => field !== '');
  const unknown = fields.filter(field => !Object.hasOwn(schema.properties, field));
  if (unknown.length > 0) {
    throw new VirtkeepError('invalid_field', { field: 'fields', reason: `has no ${unknown.join(', ')}` });
  }
  return fields;
}

/** The answer of a list whose page was already cut out. */
export function pageAnswer(
  request: FastifyRequest,
  page: Page,
  count: number,
  records: readonly object[],
): ListAnswer {
  const end = page.offset + page.limit;
  return {
    count,
    next: end < count ? pageUrl(request, page.limit, end) : null,
    previous: page.offset > 0 ? pageUrl(request, page.limit, Math.max(0, page.offset - page.limit)) : null,
    results: records.map(record => pickFields(record, page.fields)),
  };
}

interface Rendering<T> {
  /** Makes the answered form of a record; called for the page's records only. */
  render?: (record: T) => object;
  /** The same of all records of the page at once. */
  renderAll?: (records: readonly T[]) => object[];
  /** What `name` looks into. */
  nameOf?: (record: T) => string;
}

const verboseNameOf = (record: object): string => String(fieldOf(record, 'verbose_name'));

/**
 * The answer of a list that is in memory: name filter, order, page.
 */
export function listFromArray<T extends object>(
  request: FastifyRequest,
  page: Page,
  records: readonly T[],
  {
    render = record => record,
    renderAll = some => some.map(render),
    nameOf = verboseNameOf,
  }: Rendering<T> = {},
): ListAnswer {
  const part = page.name?.toLowerCase();
  const matching = records.filter(
    record => part === undefined || nameOf(record).toLowerCase().includes(part),
  );
  const { field, descending } = page.ordering;
  const ordered = inOrder(
    matching,
    record => fieldOf(record, field),
    record => fieldOf(record, 'id'),
    descending,
  );
  const cut = renderAll(ordered.slice(page.offset, page.offset + page.limit));
  return pageAnswer(request, page, matching.length, cut);
}

function fieldOf(record: object, field: string): unknown {
  return (record as Record<string, unknown>)[field];
}

function pickFields(record: object, fields: string[] | undefined): object {
  if (fields === undefined) return record;
  return Object.fromEntries(Object.entries(record).filter(([name]) => fields.includes(name)));
}

function pageUrl(request: FastifyRequest, limit: number, offset: number): string {
  const base = request.server.publicUrl ?? `${request.protocol}://${request.host}`;
  if (!URL.canParse(request.originalUrl, base)) {
    throw new VirtkeepError('bad_request', { reason: 'the Host header is not a host' });
  }
  // A request line may name another host ("GET http://…"); only its path and query count.
  const { pathname, search } = new URL(request.originalUrl, base);
  const url = new URL(`${pathname}${search}`, base);
  url.searchParams.set('limit', String(limit));
  url.searchParams.set('offset', String(offset));
  return url.href;
}
