import Type from 'typebox';
import type { RouteModule } from '../app.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import { filterById, listOf, listQuery } from '../schemas/common.ts';
import { AuditSchema } from '../schemas/event.ts';

export const auditRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/audit/',
    {
      config: { access: 'audit.read' },
      schema: {
        tags: ['audit'],
        summary: 'Who changed what, newest first; `name` looks into the action',
        querystring: listQuery({
          user: Type.Optional(Type.String({ maxLength: 255, description: 'user name' })),
          entity: filterById('about this thing'),
        }),
        response: { 200: listOf(AuditSchema) },
      },
    },
    async request => {
      const { user, entity, name } = request.query;
      const page = parsePage(request.query, AuditSchema, ['-created']);
      const { count, records } = await services.audit.list({
        user,
        entity,
        name,
        descending: page.ordering.descending,
        limit: page.limit,
        offset: page.offset,
      });
      return pageAnswer(request, page, count, records);
    },
  );
};
