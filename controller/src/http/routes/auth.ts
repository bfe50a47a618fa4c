/** Logging in and prolonging a login. Both are public: they are how a token is come by. */
import formbody from '@fastify/formbody';
import Type from 'typebox';
import type { RouteModule } from '../app.ts';
import { headerTokenOf } from '../auth.ts';
import { LOGIN_ERRORS } from '../document/error-keys.ts';
import { LOGINS_PER_MINUTE, login } from '../login.ts';
import { IssuedTokenSchema, LoginBody } from '../schemas/account.ts';
import { body, ref } from '../schemas/common.ts';

const tags = ['auth'];

const RefreshBody = body(
  { token: Type.Optional(Type.String({ maxLength: 4096, description: 'when it is not in the header' })) },
  {},
);

export const authRoutes: RouteModule = (app, services) => {
  app.register(formbody);
  app.post(
    '/auth/',
    {
      config: {
        access: 'public',
        secretAnswer: true,
        rateLimit: { max: LOGINS_PER_MINUTE, timeWindow: 60_000 },
        errors: ['login_failed', 'too_many_logins'],
      },
      schema: {
        tags,
        summary: 'Log in',
        consumes: ['application/json', 'application/x-www-form-urlencoded'],
        body: LoginBody,
        response: { 200: ref(IssuedTokenSchema) },
      },
    },
    async request => {
      const { username, password } = request.body;
      return login(services, request, username, password);
    },
  );

  app.post(
    '/auth/refresh/',
    {
      config: {
        access: 'public',
        secretAnswer: true,
        errors: LOGIN_ERRORS,
      },
      schema: {
        tags,
        summary: 'A new token for a login token that is still valid',
        description: 'The token is the one of the header, or the field `token`.',
        body: RefreshBody,
        response: { 200: ref(IssuedTokenSchema) },
      },
    },
    async request => services.tokens.refresh(request.body.token ?? headerTokenOf(request)),
  );
};
