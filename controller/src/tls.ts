import { readFile } from 'node:fs/promises';
import type { Server as HttpServer } from 'node:http';
import { Server as HttpsServer } from 'node:https';
import { hostname, networkInterfaces } from 'node:os';
import { ConfigError } from '@virtkeep/shared/config';
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { ControllerConfig } from './config.ts';
import { type CertificateAuthority, ensureServerCertificate, isHost } from './pki/index.ts';

export interface ServerTls {
  key: string;
  cert: string;
}

export const MIN_TLS = 'TLSv1.2';
/** So often it is looked whether the certificate has been renewed. */
const LOOK_MS = 3_600_000;

/**
 * Key and certificate of the HTTPS server as the settings say; undefined for plain HTTP.
 * @throws ConfigError when the configured files cannot be read.
 */
export async function serverTls(
  config: ControllerConfig,
  ca: CertificateAuthority,
): Promise<ServerTls | undefined> {
  const { mode, certificate, key, names } = config.tls;
  if (mode === 'off') return undefined;
  if (mode === 'self_signed') {
    const issued = await ensureServerCertificate(config.state_dir, ca, machineNames(names));
    return { key: issued.privateKeyPem, cert: issued.chainPem };
  }
  try {
    return { key: await readFile(key!, 'utf8'), cert: await readFile(certificate!, 'utf8') };
  } catch (error) {
    throw new ConfigError(`the TLS files cannot be read: ${reasonOf(error)}`);
  }
}

/**
 * Has a server of HTTPS show the certificate that is there by then, until it closes: files that somebody renews, or its own that comes to its
 * end. What cannot be read, or does not belong together, leaves the one before.
 * @param shown what it shows now; undefined: it serves plain HTTP
 */
export function followCertificate(
  server: HttpServer | HttpsServer,
  shown: ServerTls | undefined,
  renewed: () => Promise<ServerTls | undefined>,
  log: Logger,
): void {
  if (shown === undefined || !(server instanceof HttpsServer)) return;
  let last = shown;
  const look = async () => {
    const now = await renewed();
    if (now === undefined || (now.key === last.key && now.cert === last.cert)) return;
    server.setSecureContext({ ...now, minVersion: MIN_TLS });
    last = now;
    log.info('the certificate for clients was renewed');
  };
  const looking = setInterval(
    () => void look().catch(error => log.error('the certificate for clients was not renewed', { error })),
    LOOK_MS,
  );
  looking.unref();
  server.once('close', () => clearInterval(looking));
}

/** By what clients may call this machine. Link-local addresses carry an interface and cannot stand in a certificate. */
function machineNames(configured: readonly string[]): string[] {
  const addresses = Object.values(networkInterfaces())
    .flatMap(list => list ?? [])
    .filter(address => !address.internal && !address.address.startsWith('fe80:'))
    .map(address => address.address);
  const names = ['localhost', '127.0.0.1', '::1', hostname().toLowerCase(), ...addresses, ...configured];
  return [...new Set(names)].filter(isHost);
}
