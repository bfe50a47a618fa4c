/** What texts say, remembered: who proves that nobody uses a file reads those of all domains, each time, and nearly all are as they were. */
import { createHash } from 'node:crypto';
import { ExpiringMap } from '@virtkeep/shared/expiring-map';

/** The removals of a night come one after another. */
const LIFE_MS = 600_000;
/** Those of a thousand VMs, live and persistent, with some saved states. What is kept of one is some KiB. */
const MAX_TEXTS = 10_000;

export class KnownTexts<T extends object> {
  readonly #read: (xml: string, subject: string) => T;
  readonly #known = new ExpiringMap<T>({ lifeMs: LIFE_MS, maxEntries: MAX_TEXTS });

  /** @param read makes plain data of a text, and of nothing besides; `subject` names the text in its errors */
  constructor(read: (xml: string, subject: string) => T) {
    this.#read = read;
  }

  /** What this text says; it cannot be changed. @throws as `read`: what cannot be read is read again */
  of(xml: string, subject: string): T {
    const digest = createHash('sha256').update(xml).digest('base64');
    // a piece of a text keeps all of it in memory for as long as it is kept itself
    const said = this.#known.get(digest) ?? frozen(structuredClone(this.#read(xml, subject)));
    this.#known.set(digest, said);
    return said;
  }
}

function frozen<T extends object>(data: T): T {
  for (const value of Object.values(data)) if (typeof value === 'object' && value !== null) frozen(value);
  return Object.freeze(data);
}
