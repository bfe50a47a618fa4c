/**
 * The cookie by which the pages of the controller are logged in: the token of a login, out of reach of scripts. It counts only in
 * requests that a page of this very origin makes. `SameSite` alone does not keep others out: a page on another port of the same
 * host is of the same site, and cookies know no ports.
 */
import type { FastifyReply, FastifyRequest } from 'fastify';

export const SESSION_COOKIE = '__Host-virtkeep';
/** Without `Secure` and `Path=/` no browser takes a cookie of this name; `Strict` keeps it from requests that other sites begin. */
const ATTRIBUTES = 'Path=/; Secure; HttpOnly; SameSite=Strict';

type Asked = Pick<FastifyRequest, 'method' | 'headers'>;

/**
 * Whether a browser says that a page of this origin makes the request, or, for what only reads, that a person does who typed the
 * address. A browser that does not say where a request comes from must send its `Origin`, and that must be this host.
 */
export function isFromOwnPage({ method, headers }: Asked): boolean {
  const site = headers['sec-fetch-site'];
  if (site !== undefined) return site === 'same-origin' || (site === 'none' && isRead(method));
  return headers.origin !== undefined && headers.host !== undefined && isOrigin(headers.origin, headers.host);
}

function isRead(method: string): boolean {
  return method === 'GET' || method === 'HEAD';
}

/** The cookie is sent over TLS only, so a page that is not loaded so is not ours. */
function isOrigin(origin: string, host: string): boolean {
  const url = URL.canParse(origin) ? new URL(origin) : undefined;
  return url?.protocol === 'https:' && url.host === host.toLowerCase();
}

/** The token of the cookie; undefined when there is none that counts in this request. */
export function cookieToken(request: Asked): string | undefined {
  const values = (request.headers.cookie ?? '')
    .split(';')
    .map(pair => pair.trim())
    .filter(pair => pair.startsWith(`${SESSION_COOKIE}=`))
    .map(pair => pair.slice(SESSION_COOKIE.length + 1));
  // browsers keep one of this name: of two, one was put there by something else
  if (values.length !== 1 || values[0] === '' || !isFromOwnPage(request)) return undefined;
  return values[0];
}

/** Has the browser keep a token until it ends. */
export function keepSession(reply: FastifyReply, token: string, expiresOn: string): void {
  const seconds = Math.max(0, Math.floor((Date.parse(expiresOn) - Date.now()) / 1000));
  reply.header('set-cookie', `${SESSION_COOKIE}=${token}; Max-Age=${seconds}; ${ATTRIBUTES}`);
}

/** Has the browser forget it. */
export function forgetSession(reply: FastifyReply): void {
  reply.header('set-cookie', `${SESSION_COOKIE}=; Max-Age=0; ${ATTRIBUTES}`);
}
