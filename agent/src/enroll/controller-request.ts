/**
 * One HTTPS request to a controller, verified in full, host name included, before the secret is sent. The controller's own authority is known
 * only by its fingerprint: a bare handshake shows the chain that the server presents, and the certificate of that fingerprint becomes the
 * only root that the second connection trusts. One that shows a certificate of somebody else's, or stands behind a proxy that does, is
 * verified by the authorities that people name.
 */
import { createHash } from 'node:crypto';
import { connect, type DetailedPeerCertificate } from 'node:tls';
import { ConfigError } from '@virtkeep/shared/config';
import { reasonOf } from '@virtkeep/shared/errors';
import { type HttpAnswer, HttpClient } from '@virtkeep/shared/http-client';

const TIMEOUT_MS = 30_000;
const MAX_ANSWER_BYTES = 1024 * 1024;
/** Longest chain looked at; a real one has two or three certificates. */
const MAX_CHAIN = 10;

export interface JsonAnswer {
  status: number;
  body: unknown;
}

/** Who vouches for the server: authorities, PEM, or the one of this SHA-256 fingerprint (lower-case hex) in the chain that it presents. */
export type Voucher = { authorities: string[] } | { fingerprint: string };

/** @throws ConfigError when the server cannot be reached, is not the one that is vouched for, or does not answer JSON. */
export async function postJson(url: URL, voucher: Voucher, body: object): Promise<JsonAnswer> {
  const ca = 'fingerprint' in voucher ? await fetchPinnedCa(url, voucher.fingerprint) : voucher.authorities;
  const { status, text } = await post(url, ca, JSON.stringify(body));
  try {
    return { status, body: JSON.parse(text) as unknown };
  } catch {
    throw new ConfigError(`${url.host} did not answer JSON (HTTP status ${status}). Is it the controller?`);
  }
}

/** The pinned certificate, PEM, out of the chain that the server presents. */
async function fetchPinnedCa(url: URL, fingerprint: string): Promise<string> {
  const chain = await presentedChain(url);
  const pinned = chain.find(der => createHash('sha256').update(der).digest('hex') === fingerprint);
  if (!pinned) {
    throw new ConfigError(
      `the server at ${url.host} is not the controller that made this token: no certificate in its chain has the ` +
        'fingerprint in the token. Nothing was sent to it. If it shows a certificate of another authority (tls.mode files, ' +
        'or a proxy before it), name that: --ca FILE, or --ca system.',
    );
  }
  const base64 = pinned.toString('base64').replace(/.{64}/g, '$&\n').trim();
  return `-----BEGIN CERTIFICATE-----\n${base64}\n-----END CERTIFICATE-----\n`;
}

function presentedChain(url: URL): Promise<Buffer[]> {
  return new Promise((resolve, reject) => {
    const host = url.hostname.replace(/^\[|\]$/g, '');
    const socket = connect({
      host,
      port: Number(url.port || 443),
      rejectUnauthorized: false,
      timeout: TIMEOUT_MS,
    });
    const fail = (reason: string) => {
      socket.destroy();
      reject(new ConfigError(`the controller at ${url.host} cannot be reached: ${reason}`));
    };
    socket.once('timeout', () => fail('it does not answer'));
    socket.once('error', error => fail(error.message));
    socket.once('secureConnect', () => {
      const chain = chainOf(socket.getPeerCertificate(true));
      socket.end();
      resolve(chain);
    });
  });
}

function chainOf(leaf: DetailedPeerCertificate): Buffer[] {
  const chain: Buffer[] = [];
  for (let current: DetailedPeerCertificate | undefined = leaf; current?.raw && chain.length < MAX_CHAIN; ) {
    chain.push(current.raw);
    // A self-signed certificate is its own issuer.
    current = current.issuerCertificate === current ? undefined : current.issuerCertificate;
  }
  return chain;
}

async function post(url: URL, ca: string | string[], payload: string): Promise<HttpAnswer> {
  const client = new HttpClient({
    agent: { ca },
    idleTimeoutMs: TIMEOUT_MS,
    maxAnswerBytes: MAX_ANSWER_BYTES,
  });
  try {
    return await client.send({ method: 'POST', url, payload, signal: AbortSignal.timeout(TIMEOUT_MS) });
  } catch (error) {
    throw new ConfigError(`the request to the controller at ${url.host} failed: ${reasonOf(error)}`);
  } finally {
    client.close();
  }
}
