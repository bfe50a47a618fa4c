import type { FastifyRequest } from 'fastify';
import { requirePermission } from '../../auth/principal.ts';
import type { UserPatch } from '../../services/accounts/users.ts';
import type { Services } from '../../services/services.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import { UserBody, UserPatchBody, UserSchema, UserSessionSchema } from '../schemas/account.ts';
import { listOf, listQuery, Nothing, ref, UserParams, UserSessionParams } from '../schemas/common.ts';

const tags = ['users'];
/** What everybody may change of themselves. */
const OWN_FIELDS = new Set(['password', 'end_sessions', 'end_tokens']);

export const userRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/users/',
    {
      config: { access: 'user.read' },
      schema: {
        tags,
        summary: 'List users',
        querystring: listQuery({}),
        response: { 200: listOf(UserSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, UserSchema, ['username', 'role', 'created', 'last_login']);
      const users = await services.users.list();
      const viewer = principalOf(request);
      return listFromArray(request, page, users, {
        render: user => permitted('user', user, viewer),
        nameOf: user => user.username,
      });
    },
  );

  app.post(
    '/api/users/',
    {
      config: { access: 'user.manage', session: true, errors: ['name_taken'] },
      schema: { tags, summary: 'Add a user', body: UserBody, response: { 200: ref(UserSchema) } },
    },
    async request => {
      return permitted('user', await services.users.create(request.body), principalOf(request));
    },
  );

  app.get(
    '/api/users/:id/',
    {
      config: { access: 'account.own', errors: ['permission_denied'] },
      schema: {
        tags,
        summary: 'One user; everybody may see themselves',
        params: UserParams,
        response: { 200: ref(UserSchema) },
      },
    },
    async request => {
      const viewer = principalOf(request);
      if (request.params.id !== viewer.number) requirePermission(viewer, 'user.read');
      return permitted('user', await services.users.get(request.params.id), viewer);
    },
  );

  app.put(
    '/api/users/:id/',
    {
      config: {
        access: 'account.own',
        session: true,
        errors: ['permission_denied', 'missing_field', 'too_many_logins', 'last_administrator'],
      },
      schema: {
        tags,
        summary: 'Change a user',
        description:
          'Everybody may set their own password, with `old_password`, and end their own logins and tokens; the rest is ' +
          'for administrators. A new password, another role or disabling ends the logins of before; integration ' +
          'tokens go on unless `end_tokens` says otherwise.',
        params: UserParams,
        body: UserPatchBody,
        response: { 200: ref(UserSchema) },
      },
    },
    async request => changeUser(services, request, request.params.id, request.body),
  );

  app.post(
    '/api/users/:id/remove/',
    {
      config: { access: 'user.manage', session: true, errors: ['own_user', 'last_administrator'] },
      schema: {
        tags,
        summary: 'Remove a user, with their logins and tokens',
        description:
          'What they did keeps their name, and so do the scheduled tasks that they made, which go on. A new user of the ' +
          'same name is another one: the number is not given again.',
        params: UserParams,
        response: { 200: Nothing },
      },
    },
    async request => {
      await services.users.remove(request.params.id, principalOf(request));
      return {};
    },
  );

  sessionsOfUsers(app, services);
};

function sessionsOfUsers(app: App, services: Services): void {
  app.get(
    '/api/users/:id/sessions/',
    {
      config: { access: 'account.own', errors: ['permission_denied'] },
      schema: {
        tags,
        summary: 'The logins of a user; everybody may see their own',
        description: 'The newest 1000 of those that count. `name` looks into the client.',
        params: UserParams,
        querystring: listQuery({}),
        response: { 200: listOf(UserSessionSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, UserSessionSchema, ['-created', 'last_used', 'expires_on']);
      const viewer = principalOf(request);
      const { id } = request.params;
      if (id !== viewer.number) requirePermission(viewer, 'user.read');
      const sessions = await services.sessions.list(await services.users.row(id), viewer);
      return listFromArray(request, page, sessions, {
        render: one => permitted('session', one, viewer),
        nameOf: ({ client }) => client,
      });
    },
  );

  app.delete(
    '/api/users/:id/sessions/:session/',
    {
      config: { access: 'account.own', session: true, errors: ['permission_denied'] },
      schema: {
        tags,
        summary: 'End one login of a user, with all tokens refreshed from it; everybody may end their own',
        params: UserSessionParams,
        response: { 200: Nothing },
      },
    },
    async request => {
      const viewer = principalOf(request);
      const { id, session } = request.params;
      if (id !== viewer.number) requirePermission(viewer, 'user.manage');
      await services.sessions.end(session, await services.users.row(id));
      return {};
    },
  );
}

async function changeUser(
  services: Services,
  request: FastifyRequest,
  id: number,
  body: UserPatch & { old_password?: string },
) {
  const viewer = principalOf(request);
  const { old_password: oldPassword, ...patch } = body;
  const own = id === viewer.number;
  if (!own || !Object.keys(patch).every(field => OWN_FIELDS.has(field)))
    requirePermission(viewer, 'user.manage');
  if (own && patch.password !== undefined)
    await services.passwords.confirm(viewer, oldPassword, 'old_password', request.ip);
  return permitted('user', await services.users.change(id, patch), viewer);
}
