import Type from 'typebox';
import type { Principal } from '../../auth/principal.ts';
import { isWhole } from '../../services/nodes/whole.ts';
import type { PoolRecord } from '../../services/pools/record.ts';
import type { Services } from '../../services/services.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { POOL_MARKED, POOL_READ } from '../node-errors.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import {
  AsyncQuery,
  body,
  described,
  filterById,
  IdParams,
  listOf,
  listQuery,
  ref,
  Text,
  tagFilter,
  truth,
  wholeFilters,
} from '../schemas/common.ts';
import { PoolSchema } from '../schemas/pool.ts';
import { taskAnswers } from '../schemas/task.ts';

const tags = ['data pools'];
const ORDERINGS = [
  'verbose_name',
  'status',
  'type',
  'size',
  'used_space',
  'free_space',
  'file_count',
] as const;

export const poolRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/data-pools/',
    {
      config: { access: 'pool.read' },
      schema: {
        tags,
        summary: 'List data pools; one that several nodes have appears once',
        querystring: listQuery({
          node: filterById('that this node has'),
          type: Type.Optional(Type.String({ maxLength: 64, description: 'of this kind' })),
          ...wholeFilters,
          ...tagFilter,
        }),
        response: { 200: listOf(PoolSchema) },
      },
    },
    async request => {
      const { node, type } = request.query;
      const page = parsePage(request.query, PoolSchema, ORDERINGS);
      const viewer = principalOf(request);
      const pools = isWhole(request.query) ? await services.pools.list({ node, type }) : [];
      const tagged = pools.filter(({ id }) => services.tags.has(id, request.query.tag));
      return listFromArray(request, page, tagged, {
        render: pool => shown(services, services.pools.listed(pool), viewer),
      });
    },
  );

  app.get(
    '/api/data-pools/:id/',
    {
      config: { access: 'pool.read' },
      schema: { tags, summary: 'One data pool', params: IdParams, response: { 200: ref(PoolSchema) } },
    },
    async request => shown(services, await services.pools.get(request.params.id), principalOf(request)),
  );

  app.put(
    '/api/data-pools/:id/',
    {
      config: { access: 'pool.manage', errors: POOL_MARKED },
      schema: {
        tags,
        summary: 'Mark a data pool, on all nodes that have it',
        params: IdParams,
        body: body(
          {
            outside: Type.Optional(truth('true: it belongs to others, nothing is written to it')),
            readonly: Type.Optional(truth('true: nothing is changed in it')),
            description: described(Type.Optional(Text), 'free text'),
            backup_bandwidth: Type.Optional(
              Type.Integer({
                minimum: 0,
                maximum: 1e12,
                description:
                  'bytes per second of all backups that go to it, shared by the nodes that have it; 0: no limit',
              }),
            ),
            latency_target: Type.Optional(
              Type.Integer({
                minimum: 0,
                maximum: 60_000,
                description:
                  'ms that running VMs may wait for its disks, on the average: while those of a node wait longer, its backups that read from it or go to it are slowed down; it holds for backups that begin afterwards; 0: no limit',
              }),
            ),
          },
          { readonly: true },
        ),
        response: { 200: ref(PoolSchema) },
      },
    },
    async request =>
      shown(services, await services.pools.update(request.params.id, request.body), principalOf(request)),
  );

  app.post(
    '/api/data-pools/:id/scan/',
    {
      config: { access: 'pool.scan', ...LONG_ACTION, errors: POOL_READ },
      schema: {
        tags,
        summary: 'Find the backup, OVA, OVF, VMA and XML files of a data pool',
        params: IdParams,
        querystring: AsyncQuery,
        body: body({}, {}),
        response: taskAnswers(ref(PoolSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId => services.pools.scan(request.params.id, principalOf(request), taskId),
        // as it is by then, though what was found be taken over later
        result: async () => services.pools.get(request.params.id),
      }),
  );
};

/** What the controller alone knows of a pool is added for whoever looks. */
function shown(services: Services, pool: PoolRecord, viewer: Principal) {
  return permitted(
    'pool',
    { ...pool, forecast: services.poolForecasts.of(pool), tags: services.tags.borneBy(pool.id) },
    viewer,
  );
}
