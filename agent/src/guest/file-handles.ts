/**
 * Files that were opened in guests through the product's interface. A client that opens a file and goes away would leave it
 * open in the guest until the guest's agent ends. So each file is closed when nobody has used it for a while. The list of
 * open files is durable: a crash of the agent changes nothing.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { orAborted } from '@virtkeep/shared/abort';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { KiB } from '@virtkeep/shared/units';
import { isAbsent, nameOf } from './failures.ts';
import { nonsense } from './programs.ts';
import type { GuestRecords } from './records.ts';
import { type CommandOptions, guestCommand } from './session.ts';

export interface FileHandleDependencies {
  /** @throws VirtkeepError libvirt_unreachable */
  domain(id: string): Domain;
  records: GuestRecords;
  log: Logger;
  /** A file that nobody uses for so long is closed, ms. */
  idleMs: number;
}

/** Written by one command of the guest; in base64 it is within what a request may have. */
const WRITE_BYTES = 64 * KiB;
/** Files open at a time in one guest, by this interface. */
const MAX_OPEN = 16;
/** How long files of a guest that does not answer stay on the list before they are given up, ms. */
const GIVEN_UP_MS = 86_400_000;
const SWEEP_MS = 15_000;

export class FileHandles {
  readonly #dependencies: FileHandleDependencies;
  #timer: NodeJS.Timeout | undefined;

  constructor(dependencies: FileHandleDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    this.#timer = setInterval(() => void this.sweep(Date.now()), SWEEP_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
  }

  /** Runs one of the guest-file commands. @throws VirtkeepError as `guestCommand` */
  async run(
    domain: Domain,
    command: string,
    args: Record<string, unknown>,
    options: CommandOptions,
  ): Promise<unknown> {
    if (command === 'guest-file-open') return this.#open(domain, args, options);
    const handle = args.handle as number;
    this.#used(domain.uuid, handle);
    try {
      if (command === 'guest-file-write') return await write(domain, args, options);
      const result = await guestCommand(domain, command, args, options);
      if (command === 'guest-file-close') this.#closed(domain.uuid, handle);
      return result;
    } catch (error) {
      if (isGone(error)) this.#closed(domain.uuid, handle);
      throw error;
    }
  }

  /** Closes what nobody uses any more. Never rejects. */
  async sweep(nowMs: number): Promise<void> {
    const { records, idleMs } = this.#dependencies;
    for (const [id, files] of Object.entries(records.files())) {
      for (const [handle, usedMs] of Object.entries(files)) {
        if (nowMs - usedMs > idleMs) await this.#abandon(id, Number(handle), nowMs - usedMs > GIVEN_UP_MS);
      }
    }
  }

  async #open(domain: Domain, args: Record<string, unknown>, options: CommandOptions): Promise<unknown> {
    const { records } = this.#dependencies;
    if (Object.keys(records.files()[domain.uuid] ?? {}).length >= MAX_OPEN) {
      const reason = `${MAX_OPEN} files are open in it already; close one`;
      const command = 'guest-file-open';
      throw new VirtkeepError('guest_agent_failed', { domain: nameOf(domain), command, reason });
    }
    const { signal = NEVER, ...limits } = options;
    // who leaves while it is opened would leave it open, unknown to all: it goes on, and is closed again
    const opening = this.#opened(domain, args, limits);
    void opening.then(
      async handle => {
        if (signal.aborted) await this.#abandon(domain.uuid, handle, false);
      },
      () => {},
    );
    return orAborted(opening, signal);
  }

  async #opened(domain: Domain, args: Record<string, unknown>, options: CommandOptions): Promise<number> {
    const handle = await guestCommand(domain, 'guest-file-open', args, options);
    if (typeof handle !== 'number') throw nonsense(domain, 'guest-file-open');
    try {
      this.#dependencies.records.setFile(domain.uuid, handle, Date.now());
    } catch (error) {
      await this.#abandon(domain.uuid, handle, false);
      throw error;
    }
    return handle;
  }

  #used(id: string, handle: number): void {
    const { records } = this.#dependencies;
    // a minute more or less does not matter, a write for each piece would
    const usedMs = records.files()[id]?.[handle];
    if (usedMs !== undefined && Date.now() - usedMs > this.#dependencies.idleMs / 10)
      this.#note(id, handle, Date.now());
  }

  #closed(id: string, handle: number): void {
    const { records } = this.#dependencies;
    if (records.files()[id]?.[handle] !== undefined) this.#note(id, handle, undefined);
  }

  /** What cannot be noted now is done again by a later sweep, which finds the file closed. */
  #note(id: string, handle: number, usedMs: number | undefined): void {
    const { records, log } = this.#dependencies;
    try {
      records.setFile(id, handle, usedMs);
    } catch (error) {
      log.error('the files that are open in a guest cannot be noted', {
        domain: id,
        reason: reasonOf(error),
      });
    }
  }

  async #abandon(id: string, handle: number, isGivenUp: boolean): Promise<void> {
    const { domain, log } = this.#dependencies;
    try {
      await guestCommand(domain(id), 'guest-file-close', { handle });
      log.info('an abandoned file of a guest was closed', { domain: id, handle });
    } catch (error) {
      // its agent does not know it any more, or there is no guest
      const isOver = isGivenUp || isAbsent(error) || hasKey(error, 'guest_agent_failed');
      if (!isOver) {
        log.debug('an abandoned file of a guest is not closed yet', { domain: id, reason: reasonOf(error) });
        return;
      }
    }
    this.#closed(id, handle);
  }
}

const NEVER = new AbortController().signal;

/** The agent in the guest was started anew, and with it its files are gone. */
function isGone(error: unknown): boolean {
  return hasKey(error, 'guest_agent_failed') && /has not been found/.test(error.params.reason ?? '');
}

/** Writes in pieces that a request may have; the reply is that of one write. */
async function write(
  domain: Domain,
  args: Record<string, unknown>,
  options: CommandOptions,
): Promise<unknown> {
  const {
    handle,
    'buf-b64': text,
    count: requestedBytes,
  } = args as { handle: number; 'buf-b64': string; count?: number };
  const all = Buffer.from(text, 'base64');
  if (requestedBytes !== undefined && requestedBytes > all.length) {
    const reason = `is more than buf-b64 holds (${all.length} bytes)`;
    throw new VirtkeepError('guest_argument_invalid', {
      command: 'guest-file-write',
      field: 'count',
      reason,
    });
  }
  const bytes = all.subarray(0, requestedBytes ?? all.length);
  let written = 0;
  do {
    const piece = bytes.subarray(written, written + WRITE_BYTES);
    const request = { handle, 'buf-b64': piece.toString('base64') };
    const answer = (await guestCommand(domain, 'guest-file-write', request, options)) as { count?: number };
    written += answer.count ?? 0;
    if (!answer.count || answer.count < piece.length) break;
  } while (written < bytes.length);
  return { count: written, eof: false };
}
