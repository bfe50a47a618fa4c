import Type from 'typebox';
import { AUDIT_OUTCOMES } from '../../services/journal/audit.ts';
import type { RouteModule } from '../app.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import { described, GivenUuid, listOf, listQuery, oneOf, Time } from '../schemas/common.ts';
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
          since: Type.Optional(described(Time, 'asked for, or repeated, at this instant or later')),
          until: Type.Optional(described(Time, 'asked for before this instant')),
          outcome: Type.Optional(
            oneOf(AUDIT_OUTCOMES, {
              description: 'what was done or begun; or what was refused or failed at once',
            }),
          ),
        }),
        response: { 200: listOf(AuditSchema) },
      },
    },
    async request => {
      const { user, entity, name, since, until, outcome } = request.query;
      const page = parsePage(request.query, AuditSchema, ['-created']);
      const { count, records } = await services.audit.list({
        user,
        entity,
        name,
        since: since === undefined ? undefined : new Date(since),
        until: until === undefined ? undefined : new Date(until),
        outcome,
        descending: page.ordering.descending,
        limit: page.limit,
        offset: page.offset,
      });
      return pageAnswer(request, page, count, records);
    },
  );
};
