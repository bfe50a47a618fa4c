/** How well VMs are protected: what an administrator looks at every morning. */
import Type from 'typebox';
import type { RouteModule } from '../app.ts';
import { pageAnswer, parsePage } from '../paging.ts';
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
      const { count, rows, counts } = await services.protection.page(
        { state, node, tag, name: page.name },
        page,
      );
      const answer = pageAnswer(
        request,
        page,
        count,
        rows.map(row => services.protection.record(row)),
      );
      return { ...answer, counts };
    },
  );
};
