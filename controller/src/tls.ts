import { readFile } from 'node:fs/promises';
import { hostname, networkInterfaces } from 'node:os';
import { ConfigError } from '@virtkeep/shared/config';
import { reasonOf } from '@virtkeep/shared/errors';
import type { ControllerConfig } from './config.ts';
import { type CertificateAuthority, ensureServerCertificate, isHost } from './pki/index.ts';

export interface ServerTls {
  key: string;
  cert: string;
}

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

/** By what clients may call this machine. Link-local addresses carry an interface and cannot stand in a certificate. */
function machineNames(configured: readonly string[]): string[] {
  const addresses = Object.values(networkInterfaces())
    .flatMap(list => list ?? [])
    .filter(address => !address.internal && !address.address.startsWith('fe80:'))
    .map(address => address.address);
  const names = ['localhost', '127.0.0.1', '::1', hostname().toLowerCase(), ...addresses, ...configured];
  return [...new Set(names)].filter(isHost);
}
