/** What must be known of guests after a crash of the agent: who was frozen by hand, which files are open. */

/** A table of plain JSON that outlives the process. */
export interface DurableSettings {
  get(key: string): unknown;
  set(key: string, value: unknown): void;
}

const FROZEN = 'guest.frozen';
const FILES = 'guest.files';

export class GuestRecords {
  readonly #settings: DurableSettings;
  /** Since when, Unix ms, by the domain's id. */
  readonly #frozen: Record<string, number>;
  /** When last used, Unix ms, by the domain's id and the file's handle. */
  readonly #files: Record<string, Record<string, number>>;

  constructor(settings: DurableSettings) {
    this.#settings = settings;
    this.#frozen = { ...(settings.get(FROZEN) as Record<string, number> | undefined) };
    this.#files = { ...(settings.get(FILES) as Record<string, Record<string, number>> | undefined) };
  }

  frozen(): Readonly<Record<string, number>> {
    return this.#frozen;
  }

  /** @param sinceMs undefined: it is not frozen any more @throws VirtkeepError journal_failed */
  setFrozen(domainId: string, sinceMs: number | undefined): void {
    if (sinceMs === undefined) delete this.#frozen[domainId];
    else this.#frozen[domainId] = sinceMs;
    this.#settings.set(FROZEN, this.#frozen);
  }

  files(): Readonly<Record<string, Readonly<Record<string, number>>>> {
    return this.#files;
  }

  /** @param usedMs undefined: it is closed @throws VirtkeepError journal_failed */
  setFile(domainId: string, handle: number, usedMs: number | undefined): void {
    const { [handle]: _, ...files } = this.#files[domainId] ?? {};
    if (usedMs !== undefined) files[handle] = usedMs;
    if (Object.keys(files).length > 0) this.#files[domainId] = files;
    else delete this.#files[domainId];
    this.#settings.set(FILES, this.#files);
  }
}
