/** The login of the pages: the token of a login in a cookie that no script can read, in place of the header. */

import { VirtkeepError } from '@virtkeep/shared/errors';
import { permissionsOf } from '@virtkeep/shared/permissions';
import type { FastifyReply } from 'fastify';
import type { Principal } from '../../auth/principal.ts';
import type { IssuedToken } from '../../services/accounts/tokens.ts';
import { principalOf, type RouteModule } from '../app.ts';
import { tokenOf } from '../auth.ts';
import { LOGINS_PER_MINUTE, login } from '../login.ts';
import { VERSION } from '../openapi.ts';
import { LoginBody, SessionSchema } from '../schemas/account.ts';
import { body, Nothing, ref } from '../schemas/common.ts';
import { forgetSession, isFromOwnPage, keepSession, SESSION_COOKIE } from '../session-cookie.ts';

const tags = ['auth'];

const COOKIE_TEXT = `The cookie \`${SESSION_COOKIE}\` counts in requests without an \`Authorization\` header that a page of the controller
itself makes, and in no others.`;

export const sessionRoutes: RouteModule = (app, services) => {
  /** Of a token that was just issued. */
  const begin = async (reply: FastifyReply, { token, expires_on }: IssuedToken) => {
    keepSession(reply, token, expires_on);
    return sessionRecord(await services.tokens.principal(token));
  };

  app.post(
    '/api/session/',
    {
      config: {
        access: 'public',
        secretAnswer: true,
        rateLimit: { max: LOGINS_PER_MINUTE, timeWindow: 60_000 },
        errors: ['login_failed', 'too_many_logins', 'foreign_origin', 'token_revoked'],
      },
      schema: {
        tags,
        summary: 'Log a browser in',
        description: `For pages of the controller itself; programs log in at \`POST /auth/\`. ${COOKIE_TEXT}`,
        body: LoginBody,
        response: { 200: ref(SessionSchema) },
      },
    },
    async (request, reply) => {
      if (!isFromOwnPage(request)) throw new VirtkeepError('foreign_origin');
      const { username, password } = request.body;
      return begin(reply, await login(services, request, username, password));
    },
  );

  app.get(
    '/api/session/',
    {
      config: { access: 'login' },
      schema: {
        tags,
        summary: 'Who is logged in',
        description: `By the cookie or by the header. ${COOKIE_TEXT}`,
        response: { 200: ref(SessionSchema) },
      },
    },
    async request => sessionRecord(principalOf(request)),
  );

  app.post(
    '/api/session/refresh/',
    {
      config: { access: 'login', session: true, ignoresKey: true, unaudited: true },
      schema: {
        tags,
        summary: 'Prolong the login of a browser',
        description: 'Its cookie gets a new token; the password is asked for again after a week.',
        body: body({}, {}),
        response: { 200: ref(SessionSchema) },
      },
    },
    async (request, reply) => begin(reply, await services.tokens.refresh(tokenOf(request))),
  );

  app.delete(
    '/api/session/',
    {
      config: { access: 'login', session: true },
      schema: {
        tags,
        operationId: 'session_end',
        summary: 'Log out',
        description: 'All tokens of this login end, and the browser forgets its cookie.',
        response: { 200: Nothing },
      },
    },
    async (request, reply) => {
      const viewer = principalOf(request);
      await services.tokens.remove(viewer.jti, viewer);
      forgetSession(reply);
      return {};
    },
  );
};

function sessionRecord({ number, username, role, expiresOn }: Principal) {
  return {
    user: { id: number, username },
    role,
    permissions: permissionsOf(role),
    expires_on: expiresOn.toISOString(),
    expires_in: Math.max(0, Math.floor((expiresOn.getTime() - Date.now()) / 1000)),
    version: VERSION,
  };
}
