/**
 * The programs that were started through the product's interface, and how they ended. The agent in the guest tells the end of
 * a program once, so it is kept here, ten minutes long and for any number of questions.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { orAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import { nameOf } from './failures.ts';
import { askStatus, type ProgramStatus, type StartedProgram } from './programs.ts';

interface Entry {
  program: StartedProgram;
  /** How it ended. */
  ended?: { status: ProgramStatus; atMs: number };
  /** A question on its way, so that two who ask both get the one answer. */
  asking?: Promise<ProgramStatus> | undefined;
}

const KEPT_MS = 600_000;
/** Beyond it the oldest are forgotten. */
const MAX_ENTRIES = 1_000;
/** Outputs kept, of all guests together; beyond it the oldest go early. */
const MAX_KEPT_BYTES = 64 * MiB;

export class ExecTable {
  readonly #entries = new Map<string, Entry>();
  readonly #nowMs: () => number;
  #keptBytes = 0;

  constructor(nowMs: () => number = () => performance.now()) {
    this.#nowMs = nowMs;
  }

  /** A program was started. Guests use numbers again: an older one of that number is forgotten. */
  add(domainId: string, program: StartedProgram): void {
    const key = keyOf(domainId, program.pid);
    this.#forget(key);
    this.#entries.set(key, { program });
    this.#clean();
  }

  /**
   * How a program is. Only programs that were started here are asked about: the output of others may be of any length.
   * @throws VirtkeepError guest_process_unknown; as `guestCommand`
   */
  async status(domain: Domain, pid: number, signal: AbortSignal): Promise<ProgramStatus> {
    this.#clean();
    const key = keyOf(domain.uuid, pid);
    const entry = this.#entries.get(key);
    if (!entry) throw new VirtkeepError('guest_process_unknown', { domain: nameOf(domain), pid });
    if (entry.ended) return entry.ended.status;
    // the question itself goes on when its asker leaves: an answer that nobody takes would be lost
    entry.asking ??= this.#ask(domain, key, entry);
    return orAborted(entry.asking, signal);
  }

  async #ask(domain: Domain, key: string, entry: Entry): Promise<ProgramStatus> {
    try {
      const status = await askStatus(domain, entry.program);
      if (status.exited && this.#entries.get(key) === entry) {
        entry.ended = { status, atMs: this.#nowMs() };
        this.#keptBytes += sizeOf(status);
      }
      return status;
    } finally {
      entry.asking = undefined;
    }
  }

  #clean(): void {
    const oldestMs = this.#nowMs() - KEPT_MS;
    for (const [key, { ended }] of this.#entries) if (ended && ended.atMs < oldestMs) this.#forget(key);
    for (const key of this.#entries.keys()) {
      if (this.#entries.size <= MAX_ENTRIES && this.#keptBytes <= MAX_KEPT_BYTES) return;
      this.#forget(key);
    }
  }

  #forget(key: string): void {
    const entry = this.#entries.get(key);
    if (!entry) return;
    this.#entries.delete(key);
    if (entry.ended) this.#keptBytes -= sizeOf(entry.ended.status);
  }
}

const keyOf = (domainId: string, pid: number): string => `${domainId} ${pid}`;
const sizeOf = ({ out, err }: ProgramStatus): number => out.length + err.length;
