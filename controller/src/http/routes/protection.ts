/** How well VMs are protected: what an administrator looks at every morning. */
import Type from 'typebox';
import type { RouteModule } from '../app.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { filterById, listOf, listQuery, tagFilter } from '../schemas/common.ts';
import { CountsBeside, ProtectionSchema, ProtectionStateText } from '../schemas/protection.ts';

const ORDERINGS = ['severity', 'domain', 'node', 'age', 'last_good'] as const;

export const protectionRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/protection/',
    {
      config: { access: 'domain.read' },
      schema: {
        tags: ['protection'],
        summary: 'List VMs by how well they are protected, the most urgent first',
        querystring: listQuery({
          state: Type.Optional(ProtectionStateText),
          node: filterById('of this node'),
          ...tagFilter,
        }),
        response: { 200: listOf(ProtectionSchema, CountsBeside) },
      },
    },
    async request => {
      const { state, node, tag, ...query } = request.query;
      const page = parsePage(query, ProtectionSchema, ORDERINGS);
      const { rows, counts } = services.protection.list({ state, node, tag, name: page.name });
      const answer = listFromArray(request, page, rows, {
        render: row => services.protection.record(row),
        nameOf: ({ domain }) => domain.verbose_name,
      });
      return { ...answer, counts };
    },
  );
};
