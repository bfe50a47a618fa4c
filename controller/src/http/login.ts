/** Logging in with a password, and what the audit has of it. */
import { createHash } from 'node:crypto';
import { hasKey } from '@virtkeep/shared/errors';
import type { FastifyRequest } from 'fastify';
import { clientName } from '../auth/client-name.ts';
import type { Services } from '../services/services.ts';

/** No user's name: it has characters that those have not. */
const UNKNOWN_USER = '(unknown)';
/** Beside the slowing of failures: hashing is work, whoever asks for it. */
export const LOGINS_PER_MINUTE = 300;

/** A token for a name and a password; what became of it is written down. @throws login_failed, too_many_logins. */
export async function login(services: Services, request: FastifyRequest, username: string, password: string) {
  try {
    const issued = await services.tokens.login(
      username,
      password,
      request.ip,
      clientName(request.headers['user-agent'] ?? ''),
    );
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
    path: request.routeOptions.url ?? '',
    action: `POST ${request.routeOptions.url}`,
    entityId: user?.id ?? null,
    status,
    errorKey,
    taskId: null,
    requestId: request.id,
    body: null,
  });
}
