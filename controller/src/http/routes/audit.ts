import Type from 'typebox';
import type { RouteModule } from '../app.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import { described, GivenUuid, listOf, listQuery } from '../schemas/common.ts';
import { AuditSchema } from '../schemas/event.ts';

/** Of a user. */
const NumberText = Type.String({ pattern: '^[1-9][0-9]{0,9}$' });

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
          entity: Type.Optional(
            described(Type.Union([GivenUuid, NumberText]), 'about this thing, or this user'),
          ),
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
