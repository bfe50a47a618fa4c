import { requirePermission } from '../../auth/principal.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { listFromArray, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import { NewTokenSchema, TokenSchema, tokenBody } from '../schemas/account.ts';
import { IdParams, listOf, listQuery, Nothing, ref } from '../schemas/common.ts';

const tags = ['auth'];
const DEFAULT_DAYS = 90;

export const tokenRoutes: RouteModule = (app, services) => {
  const maxDays = services.config.auth.integration_token_max_days;

  app.get(
    '/api/tokens/',
    {
      config: { access: 'account.own' },
      schema: {
        tags,
        summary: 'List integration tokens: your own, or all for an administrator',
        querystring: listQuery({}),
        response: { 200: listOf(TokenSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, TokenSchema, ['-created', 'name', 'expires_on', 'last_used']);
      const viewer = principalOf(request);
      const tokens = await services.tokens.list(viewer);
      return listFromArray(request, page, tokens, {
        render: token => permitted('token', token, viewer),
        nameOf: token => token.name,
      });
    },
  );

  app.post(
    '/api/tokens/',
    {
      config: {
        access: 'account.own',
        session: true,
        secretAnswer: true,
        errors: ['permission_denied', 'too_many_logins', 'name_taken'],
      },
      schema: {
        tags,
        summary: 'Issue a long-lived integration token; its text is shown this once',
        description:
          'The password is given again. ' +
          `It lasts ${Math.min(DEFAULT_DAYS, maxDays)} days unless \`days\` says otherwise.`,
        body: tokenBody(maxDays),
        response: { 200: ref(NewTokenSchema) },
      },
    },
    async request => {
      const viewer = principalOf(request);
      const { name, days, user, password } = request.body;
      if (user !== undefined && user !== viewer.number) requirePermission(viewer, 'token.manage');
      await services.passwords.confirm(viewer, password, 'password', request.ip);
      const lifetime = days ?? Math.min(DEFAULT_DAYS, maxDays);
      return permitted('token', await services.tokens.create(user ?? viewer.number, name, lifetime), viewer);
    },
  );

  app.post(
    '/api/tokens/:id/remove/',
    {
      config: { access: 'account.own' },
      schema: {
        tags,
        summary:
          'Revoke a token; with the id (jti) of your own login it is a logout, of all tokens refreshed from that login',
        params: IdParams,
        response: { 200: Nothing },
      },
    },
    async request => {
      await services.tokens.remove(request.params.id, principalOf(request));
      return {};
    },
  );
};
