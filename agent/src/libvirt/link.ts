import { connect, type Libvirt } from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { Backoff } from '@virtkeep/shared/backoff';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { CALL_TIMES } from './call-times.ts';

export interface LinkDependencies {
  /** libvirt's connection URI, e.g. qemu:///system. */
  uri: string;
  keepAlive: { intervalSec: number; count: number };
  log: Logger;
  /** Delay between attempts to open the first connection: shortest and longest (doubling). */
  retryMs?: { min: number; max: number };
}

/**
 * The agent's one connection to libvirt. The agent serves before libvirt can be reached and while it cannot: `get`
 * then refuses with `libvirt_unreachable`. Once open, the binding restores a lost connection by itself.
 */
export class LibvirtLink {
  readonly #dependencies: LinkDependencies;
  readonly #closing = new AbortController();
  readonly #listeners = new Set<(connected: boolean) => void>();
  #libvirt: Libvirt | undefined;
  #opening: Promise<void> | undefined;
  #lastReason = 'not connected yet';

  constructor(dependencies: LinkDependencies) {
    this.#dependencies = dependencies;
  }

  get uri(): string {
    return this.#dependencies.uri;
  }

  get connected(): boolean {
    return this.#libvirt?.connected ?? false;
  }

  /**
   * The connection; also one that is just lost, since its calls fail by themselves.
   * @throws VirtkeepError libvirt_unreachable before the first connection.
   */
  get(): Libvirt {
    if (this.#libvirt) return this.#libvirt;
    throw new VirtkeepError('libvirt_unreachable', { uri: this.uri, reason: this.#lastReason });
  }

  /** Calls the listener at each change of `connected`, until the returned function is called. */
  onChange(listener: (connected: boolean) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Opens the first connection, trying until it succeeds or the link is closed. Never rejects. */
  open(): Promise<void> {
    this.#opening ??= this.#open();
    return this.#opening;
  }

  /** Ends everything, an attempt under way too: no thread of the binding is left when it resolves. */
  async close(): Promise<void> {
    this.#closing.abort();
    this.#listeners.clear();
    await this.#opening;
    await this.#libvirt?.close();
  }

  async #open(): Promise<void> {
    const { uri, keepAlive, log, retryMs = { min: 500, max: 10_000 } } = this.#dependencies;
    const { signal } = this.#closing;
    const backoff = Backoff.steady(retryMs.min, retryMs.max);
    while (!signal.aborted) {
      try {
        this.#use(await connect(uri, { keepAlive, signal, ...CALL_TIMES }));
        return;
      } catch (error) {
        this.#lastReason = reasonOf(error);
        if (!signal.aborted) log.warn('libvirt is not reachable', { uri, reason: this.#lastReason });
        await sleep(backoff.next(), signal).catch(() => {});
      }
    }
  }

  #use(libvirt: Libvirt): void {
    this.#libvirt = libvirt;
    libvirt.on('closed', ({ reason }) => this.#changed(false, reason));
    libvirt.on('reconnected', () => this.#changed(true, ''));
    this.#changed(true, '');
  }

  #changed(connected: boolean, reason: string): void {
    const { log, uri } = this.#dependencies;
    if (connected) log.info('connected to libvirt', { uri });
    else log.warn('the connection to libvirt is lost', { uri, reason });
    for (const listener of this.#listeners) listener(connected);
  }
}
