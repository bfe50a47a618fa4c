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
  #frozen: Record<string, number>;
  /** When last used, Unix ms, by the domain's id and the file's handle. */
  #files: Record<string, Record<string, number>>;

  constructor(settings: DurableSettings) {
    this.#settings = settings;
    this.#frozen = { ...(settings.get(FROZEN) as Record<string, number> | undefined) };
    this.#files = { ...(settings.get(FILES) as Record<string, Record<string, number>> | undefined) };
  }

  frozen(): Readonly<Record<string, number>> {
    return this.#frozen;
  }

  /**
   * @param sinceMs undefined: it is not frozen any more
   * @throws VirtkeepError journal_failed: then all is known as before
   */
  setFrozen(domainId: string, sinceMs: number | undefined): void {
    const { [domainId]: _, ...others } = this.#frozen;
    const frozen = sinceMs === undefined ? others : { ...others, [domainId]: sinceMs };
    this.#settings.set(FROZEN, frozen);
    this.#frozen = frozen;
  }

  files(): Readonly<Record<string, Readonly<Record<string, number>>>> {
    return this.#files;
  }

  /** @param usedMs undefined: it is closed @throws VirtkeepError journal_failed: then all is known as before */
  setFile(domainId: string, handle: number, usedMs: number | undefined): void {
    const { [domainId]: own = {}, ...others } = this.#files;
    const { [handle]: _, ...rest } = own;
    const files = usedMs === undefined ? rest : { ...rest, [handle]: usedMs };
    const all = Object.keys(files).length > 0 ? { ...others, [domainId]: files } : others;
    this.#settings.set(FILES, all);
    this.#files = all;
  }
}
