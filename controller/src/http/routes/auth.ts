/** Logging in and prolonging a login. Both are public: they are how a token is come by. */
import { createHash } from 'node:crypto';
import formbody from '@fastify/formbody';
import { hasKey } from '@virtkeep/shared/errors';
import type { FastifyRequest } from 'fastify';
import Type from 'typebox';
import type { Services } from '../../services/services.ts';
import type { RouteModule } from '../app.ts';
import { tokenOf } from '../auth.ts';
import { LOGIN_ERRORS } from '../document/error-keys.ts';
import { IssuedTokenSchema, Password } from '../schemas/account.ts';
import { body, ref } from '../schemas/common.ts';

const tags = ['auth'];
/** No user's name: it has characters that those have not. */
const UNKNOWN_USER = '(unknown)';
/** Beside the slowing of failures: hashing is work, whoever asks for it. */
const LOGINS_PER_MINUTE = 300;

const LoginBody = body(
  { username: Type.String({ maxLength: 255, description: 'in any case' }), password: Password },
  { username: 'alice', password: 'correct horse battery' },
);

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
    async request => services.tokens.refresh(request.body.token ?? tokenOf(request)),
  );
};

async function login(services: Services, request: FastifyRequest, username: string, password: string) {
  try {
    const issued = await services.tokens.login(username, password, request.ip);
    await auditLogin(services, request, username, { status: 200, errorKey: null });
    return issued;
  } catch (error) {
    if (hasKey(error, 'login_failed', 'too_many_logins')) {
      await auditLogin(services, request, username, {
        status: error.status,
        errorKey: error.msgKey,
      });
    }
    throw error;
  }
}

/** Names nobody has are not written down, but counted apart: people type passwords there. */
async function auditLogin(
  services: Services,
  request: FastifyRequest,
  username: string,
  { status, errorKey }: { status: number; errorKey: string | null },
): Promise<void> {
  const name = username.toLowerCase();
  const user = await services.users.findByName(name);
  await services.audit.record({
    userId: user?.id ?? null,
    username: user?.username ?? UNKNOWN_USER,
    subject: createHash('sha256').update(name).digest('hex'),
    address: request.ip,
    method: 'POST',
    path: '/auth/',
    action: 'POST /auth/',
    entityId: user?.id ?? null,
    status,
    errorKey,
    taskId: null,
    requestId: request.id,
    body: null,
  });
}
