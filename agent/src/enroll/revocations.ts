/**
 * The certificates that count no more, as the controller told (`revoked.json` in the directory of the setting `tls.dir`). An
 * entry is never taken back, only forgotten when its certificate has ended anyway and nobody else had its key: a controller that lost its database cannot
 * make one count again by not naming it.
 */
import { type KeyObject, X509Certificate } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { writeDurably } from '@virtkeep/shared/durable-file';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { Logger } from '@virtkeep/shared/log';
import { isGenuine, MAX_REVOCATIONS, type Revocation } from '@virtkeep/shared/revocations';
import { z } from 'zod';

export interface RevocationsOptions {
  /** The setting `tls.dir`. */
  directory: string;
  /** The authority that signs entries, PEM. */
  caPem: string;
  log: Logger;
}

const FILE = 'revoked.json';
/** An entry stays for so long after its certificate: clocks differ. */
const MARGIN_MS = 30 * 86_400_000;

const fileSchema = z.array(
  z.object({ serial: z.string(), reason: z.string(), until: z.string(), signature: z.string() }),
);

export class Revocations {
  readonly #path: string;
  readonly #authority: KeyObject;
  readonly #log: Logger;
  readonly #entries = new Map<string, Revocation>();
  readonly #listeners = new Map<string, Set<() => void>>();
  readonly #writing = new KeyedQueue();
  #unreadable = false;
  /** Counts changes, and how many of them are in the file: one that could not be stored is stored with the controller's next report. */
  #changes = 0;
  #stored = 0;

  constructor({ directory, caPem, log }: RevocationsOptions) {
    this.#path = join(directory, FILE);
    this.#authority = new X509Certificate(caPem).publicKey;
    this.#log = log;
    this.#load();
  }

  /** True until the controller has told anew what stood in a file that cannot be read: whom else to believe nobody knows. */
  get unreadable(): boolean {
    return this.#unreadable;
  }

  /** Whether this certificate does not count any more. `serial` is as `serialOf` returns it. */
  isRevoked(serial: string): boolean {
    return this.#entries.has(serial);
  }

  /**
   * True when others may have the key of this certificate, so that what it signed proves nothing. What a node signed that was
   * merely removed still counts.
   */
  isCompromised(serial: string): boolean {
    return this.#entries.get(serial)?.reason === 'compromised';
  }

  /** All entries. */
  list(): Revocation[] {
    return [...this.#entries.values()];
  }

  /** Runs the listener when this certificate is revoked. @returns a function that removes the listener. */
  whenRevoked(serial: string, listener: () => void): () => void {
    const listeners = this.#listeners.get(serial) ?? new Set();
    this.#listeners.set(serial, listeners.add(listener));
    return () => {
      listeners.delete(listener);
      if (listeners.size === 0 && this.#listeners.get(serial) === listeners) this.#listeners.delete(serial);
    };
  }

  /**
   * Takes further entries; they count from now on. Those that the authority has not signed are left out.
   * @throws VirtkeepError invalid_field when there are too many; io_failed when they cannot be stored: they count in this run.
   */
  async add(entries: readonly Revocation[]): Promise<void> {
    if (entries.length > MAX_REVOCATIONS) {
      const reason = `has more than ${MAX_REVOCATIONS} entries`;
      throw new VirtkeepError('invalid_field', { field: 'revocations', reason });
    }
    const fresh = entries.filter(entry => this.#isNews(entry) && isGenuine(entry, this.#authority));
    for (const { serial, reason, until, signature } of fresh)
      this.#entries.set(serial, { serial, reason, until, signature });
    const isOldGone = this.#forgetOld();
    if (fresh.length > 0 || this.#unreadable || isOldGone) this.#changes += 1;
    this.#unreadable = false;
    for (const { serial } of fresh) {
      this.#log.warn('a certificate was revoked', { serial });
      for (const listener of [...(this.#listeners.get(serial) ?? [])]) listener();
    }
    if (this.#stored < this.#changes) await this.#writing.run(FILE, () => this.#store());
  }

  /** Whether an entry says more than the one that is there: a compromised certificate stays compromised. */
  #isNews({ serial, reason, until }: Revocation): boolean {
    const entry = this.#entries.get(serial);
    const isWorse = entry?.reason === 'removed' && reason === 'compromised';
    return (entry === undefined || isWorse) && !isOver({ reason, until });
  }

  #forgetOld(): boolean {
    const old = this.list().filter(isOver);
    for (const { serial } of old) this.#entries.delete(serial);
    return old.length > 0;
  }

  #load(): void {
    try {
      const stored = fileSchema.parse(JSON.parse(readFileSync(this.#path, 'utf8')));
      for (const entry of stored)
        if (!isOver(entry) && isGenuine(entry, this.#authority)) this.#entries.set(entry.serial, entry);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      this.#unreadable = true;
      const reason = reasonOf(error);
      this.#log.error(
        'revoked certificates cannot be read: only the controller may call until it told them',
        {
          path: this.#path,
          reason,
        },
      );
    }
  }

  async #store(): Promise<void> {
    const changes = this.#changes;
    try {
      await writeDurably(this.#path, JSON.stringify(this.list()), 0o600);
      this.#stored = changes;
    } catch (error) {
      const params = { operation: 'write', path: this.#path, reason: reasonOf(error) };
      throw new VirtkeepError('io_failed', params, { cause: error });
    }
  }
}

/** What others may have signed with a stolen key proves nothing, also when the certificate has long ended: archives live longer. */
function isOver({ reason, until }: Pick<Revocation, 'reason' | 'until'>): boolean {
  return reason !== 'compromised' && Date.parse(until) + MARGIN_MS < Date.now();
}
