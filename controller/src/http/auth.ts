/** Who may call what: the token of the Authorization header or of the pages' cookie, and the permission the route declares. */
import { hasKey, isVirtkeepError, VirtkeepError } from '@virtkeep/shared/errors';
import type { FastifyRequest } from 'fastify';
import { type Principal, requirePermission, requireSession } from '../auth/principal.ts';
import type { Services } from '../services/services.ts';
import { cookieToken } from './session-cookie.ts';

const HEADER = /^(?:jwt|bearer) +(\S+) *$/i;
const MAX_TOKEN_LENGTH = 4096;
/** So long an answer may go on after the right to it. */
const BEAT_MS = 15_000;

/** The token of `Authorization: jwt <token>` (or Bearer; in any case). @throws login_required, token_invalid. */
export function headerTokenOf(request: FastifyRequest): string {
  const header = request.headers.authorization;
  if (header === undefined || header.trim() === '') throw new VirtkeepError('login_required');
  return checked(HEADER.exec(header)?.[1]);
}

/** The token of the header; without a header that of the cookie. @throws login_required, token_invalid. */
export function tokenOf(request: FastifyRequest): string {
  const cookie = request.headers.authorization === undefined ? cookieToken(request) : undefined;
  return cookie === undefined ? headerTokenOf(request) : checked(cookie);
}

function checked(token: string | undefined): string {
  if (token === undefined || token.length > MAX_TOKEN_LENGTH) throw new VirtkeepError('token_invalid');
  return token;
}

/** Sets `request.principal` and checks the route's permission; runs before the body is read. */
export async function authorize(services: Services, request: FastifyRequest): Promise<void> {
  const { access } = request.routeOptions.config;
  if (access === 'public' || access === undefined) return;
  request.principal = await services.tokens.principal(tokenOf(request));
  requireRight(request, request.principal);
}

function requireRight(request: FastifyRequest, principal: Principal): void {
  const { access, session } = request.routeOptions.config;
  if (access !== 'public' && access !== 'login' && access !== undefined) requirePermission(principal, access);
  if (session === true) requireSession(principal);
}

/**
 * For an answer that lasts: asks again and again whether who opened it may still do so, as the same role, since what is shown
 * depends on it. What cannot be asked just now is asked at the next beat.
 * @param lost the right has gone or changed; called once
 * @param beat called after each time that it has not
 * @returns ends it
 */
export function watchRight(
  services: Services,
  request: FastifyRequest,
  lost: () => void,
  beat: () => void = () => {},
): () => void {
  const token = tokenOf(request);
  const { role } = request.principal!;
  const ask = async () => {
    try {
      const present = await services.tokens.principal(token);
      requireRight(request, present);
      if (present.role === role) return beat();
    } catch (error) {
      if (!isVirtkeepError(error) || hasKey(error, 'database_unavailable')) return beat();
    }
    end();
    lost();
  };
  const timer = setInterval(() => void ask(), BEAT_MS);
  const end = () => clearInterval(timer);
  return end;
}
