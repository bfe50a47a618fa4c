import type { SecureContextOptions } from 'node:tls';
import { ServerCredentials } from '@grpc/grpc-js';

export interface TlsMaterial {
  /** Private key, PEM. */
  keyPem: string;
  /** The server's certificate, PEM, followed by intermediates when there are any. */
  certificatePem: string;
  /** The only authority whose client certificates are accepted, PEM. */
  caPem: string;
}

/**
 * Mutual TLS, at least 1.2, no connection without a client certificate of our CA. `replace` takes a renewed
 * certificate into use for new connections; those that are open go on.
 */
export class ReloadableCredentials extends ServerCredentials {
  constructor(material: TlsMaterial) {
    const context = contextOf(material);
    super({ requestCert: true, rejectUnauthorized: true, minVersion: 'TLSv1.2' }, context);
  }

  replace(material: TlsMaterial): void {
    this.updateSecureContextOptions(contextOf(material));
  }

  override _equals(other: ServerCredentials): boolean {
    return this === other;
  }
}

function contextOf(material: TlsMaterial): SecureContextOptions {
  return {
    key: material.keyPem,
    cert: material.certificatePem,
    ca: material.caPem,
    minVersion: 'TLSv1.2',
  };
}
