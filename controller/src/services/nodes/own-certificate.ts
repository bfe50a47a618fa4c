/** What the controller shows to the agents, kept in memory: a thousand nodes that are reached at once would read and parse it as often. */
import type { Keys } from '../../keys/keys.ts';
import {
  type CertificateAuthority,
  ensureControllerCertificate,
  type IssuedCertificate,
} from '../../pki/index.ts';

/** So often it is looked at whether it is to be renewed, or was by somebody else. */
const LOOK_MS = 60_000;

export class OwnCertificate {
  readonly #keys: Keys;
  readonly #ca: CertificateAuthority;
  #kept: { issued: Promise<IssuedCertificate>; untilMs: number } | undefined;

  constructor(keys: Keys, ca: CertificateAuthority) {
    this.#keys = keys;
    this.#ca = ca;
  }

  get(): Promise<IssuedCertificate> {
    const nowMs = performance.now();
    if (this.#kept && nowMs < this.#kept.untilMs) return this.#kept.issued;
    const issued = ensureControllerCertificate(this.#keys, this.#ca);
    const kept = { issued, untilMs: nowMs + LOOK_MS };
    this.#kept = kept;
    issued.catch(() => {
      if (this.#kept === kept) this.#kept = undefined;
    });
    return issued;
  }
}
