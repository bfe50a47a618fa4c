import { hostname } from 'node:os';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { ReloadableCredentials } from './credentials.ts';
import { type Identity, storeIdentity, toIdentity } from './identity.ts';
import type { Revocations } from './revocations.ts';

export interface RenewalDependencies {
  /** The setting `tls.dir`. */
  directory: string;
  identity: Identity;
  credentials: ReloadableCredentials;
  revocations: Pick<Revocations, 'isRevoked'>;
  log: Logger;
}

/**
 * Renewal of the node's certificate, driven by the controller: it asks for a request, signs it, and installs the
 * certificate. The new key is kept in memory until then; a restart in between costs nothing but another request.
 */
export class CertificateRenewal {
  readonly #dependencies: RenewalDependencies;
  #identity: Identity;
  #pendingKeyPem: string | undefined;

  constructor(dependencies: RenewalDependencies) {
    this.#dependencies = dependencies;
    this.#identity = dependencies.identity;
  }

  /** The identity in use. */
  get identity(): Identity {
    return this.#identity;
  }

  /** Makes a new key; answers its certificate request, PEM. A later call replaces the pending key. */
  async request(): Promise<string> {
    // loaded for this alone: it holds 6 MiB, and a renewal is rare
    const { newKeyRequest } = await import('./key-request.ts');
    const { keyPem, csrPem } = await newKeyRequest(this.#identity.nodeId, hostname());
    this.#pendingKeyPem = keyPem;
    return csrPem;
  }

  /**
   * Stores the certificate and takes it into use for new connections.
   * @throws VirtkeepError invalid_field when it is not for the pending key, this node or our authority, or has
   *   expired; io_failed when it cannot be stored. Then the old one stays in use.
   */
  async install(certificatePem: string): Promise<void> {
    const { directory, credentials, log } = this.#dependencies;
    const identity = this.#check(certificatePem);
    try {
      await storeIdentity(directory, identity);
    } catch (error) {
      throw new VirtkeepError(
        'io_failed',
        { operation: 'write', path: directory, reason: reasonOf(error) },
        { cause: error },
      );
    }
    credentials.replace(identity);
    this.#identity = identity;
    this.#pendingKeyPem = undefined;
    log.info('certificate renewed', { expires: identity.expires.toISOString() });
  }

  #check(certificatePem: string): Identity {
    const refuse = (reason: string) =>
      new VirtkeepError('invalid_field', { field: 'certificate_pem', reason });
    if (!this.#pendingKeyPem) throw refuse('answers no request: call RenewCertificate first');
    let identity: Identity;
    try {
      identity = toIdentity({ keyPem: this.#pendingKeyPem, certificatePem, caPem: this.#identity.caPem });
    } catch (error) {
      throw refuse(`cannot be used: ${reasonOf(error)}`);
    }
    if (identity.nodeId !== this.#identity.nodeId) throw refuse(`is for another node, ${identity.nodeId}`);
    if (identity.expires.getTime() <= Date.now()) throw refuse('has expired');
    if (this.#dependencies.revocations.isRevoked(identity.serial)) throw refuse('was revoked');
    return identity;
  }
}
