/** Clusters and resource pools, of which there is one each. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ListedNode } from '../../services/nodes/nodes.ts';
import {
  CLUSTER,
  clusterRecord,
  isWhole,
  RESOURCE_POOL,
  resourcePoolRecord,
} from '../../services/nodes/whole.ts';
import type { Services } from '../../services/services.ts';
import type { App, RouteModule } from '../app.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { filterById, IdParams, listOf, listQuery, ref } from '../schemas/common.ts';
import { ClusterSchema, ResourcePoolSchema } from '../schemas/whole.ts';

interface Whole {
  path: string;
  /** What one is called. */
  noun: string;
  id: string;
  schema: typeof ClusterSchema | typeof ResourcePoolSchema;
  record: (nodes: readonly ListedNode[]) => object;
}

export const wholeRoutes: RouteModule = (app, services) => {
  wholeOf(app, services, {
    path: '/api/clusters/',
    noun: 'cluster',
    id: CLUSTER.id,
    schema: ClusterSchema,
    record: clusterRecord,
  });
  wholeOf(app, services, {
    path: '/api/resource-pools/',
    noun: 'resource pool',
    id: RESOURCE_POOL.id,
    schema: ResourcePoolSchema,
    record: resourcePoolRecord,
  });
};

function wholeOf(app: App, services: Services, { path, noun, id, schema, record }: Whole): void {
  const tags = [`${noun}s`];
  app.get(
    path,
    {
      config: { access: 'node.read' },
      schema: {
        tags,
        summary: `List ${noun}s: there is one, which has everything`,
        querystring: listQuery({ cluster: filterById('of this cluster; there is one') }),
        response: { 200: listOf(schema) },
      },
    },
    async request => {
      const page = parsePage(request.query, schema, ['verbose_name']);
      const all = isWhole({ cluster: request.query.cluster }) ? [record(services.nodes.listed())] : [];
      return listFromArray(request, page, all);
    },
  );

  app.get(
    `${path}:id/`,
    {
      config: { access: 'node.read' },
      schema: { tags, summary: `The one ${noun}`, params: IdParams, response: { 200: ref(schema) } },
    },
    async request => {
      const { id: requestedId } = request.params as { id: string };
      if (requestedId !== id) throw new VirtkeepError('not_found', { path: `${path}${requestedId}/` });
      return record(services.nodes.listed()) as never;
    },
  );
}
