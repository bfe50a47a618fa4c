/** Who may call what: the token of the Authorization header, and the permission the route declares. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyRequest } from 'fastify';
import { requirePermission, requireSession } from '../auth/principal.ts';
import type { Services } from '../services/services.ts';

const HEADER = /^(?:jwt|bearer) +(\S+) *$/i;
const MAX_TOKEN_LENGTH = 4096;

/** The token of `Authorization: jwt <token>` (or Bearer; in any case). @throws login_required, token_invalid. */
export function tokenOf(request: FastifyRequest): string {
  const header = request.headers.authorization;
  if (header === undefined || header.trim() === '') throw new VirtkeepError('login_required');
  const token = HEADER.exec(header)?.[1];
  if (token === undefined || token.length > MAX_TOKEN_LENGTH) throw new VirtkeepError('token_invalid');
  return token;
}

/** Sets `request.principal` and checks the route's permission; runs before the body is read. */
export async function authorize(services: Services, request: FastifyRequest): Promise<void> {
  const { access, session } = request.routeOptions.config;
  if (access === 'public' || access === undefined) return;
  const principal = await services.tokens.principal(tokenOf(request));
  request.principal = principal;
  if (access !== 'login') requirePermission(principal, access);
  if (session === true) requireSession(principal);
}
