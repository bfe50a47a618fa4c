/** A TCP load balancer as one stands before several controllers: it looks which of them answer, and takes another one when one does not connect. */
import { connect, createServer, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const LOOK_MS = 500;
const ANSWER_MS = 10_000;

export interface Backend {
  host: string;
  port: number;
  /** Whether it answers. */
  isWell: (signal: AbortSignal) => Promise<boolean>;
}

export class Balancer {
  readonly #backends: readonly Backend[];
  readonly #server: Server;
  readonly #ended = new AbortController();
  /** Open connections of each. */
  readonly #open = new Map<Backend, Set<Socket>>();
  #well: Set<Backend>;
  #next = 0;
  #looking: Promise<unknown>;

  constructor(backends: readonly Backend[]) {
    this.#backends = backends;
    this.#well = new Set(backends);
    this.#server = createServer(client => this.#take(client));
    for (const backend of backends) this.#open.set(backend, new Set());
    this.#looking = Promise.all(backends.map(backend => this.#look(backend)));
  }

  /** @returns the port */
  async listen(host: string): Promise<number> {
    await new Promise<void>(resolve => this.#server.listen(0, host, resolve));
    return (this.#server.address() as { port: number }).port;
  }

  async close(): Promise<void> {
    this.#ended.abort();
    this.#server.close();
    for (const sockets of this.#open.values()) for (const socket of sockets) socket.destroy();
    await this.#looking;
  }

  /** One that does not answer loses its connections. */
  async #look(backend: Backend): Promise<void> {
    while (!this.#ended.signal.aborted) {
      const isWell = await backend.isWell(AbortSignal.timeout(ANSWER_MS)).catch(() => false);
      if (isWell) this.#well.add(backend);
      else if (this.#well.delete(backend)) for (const socket of this.#open.get(backend)!) socket.destroy();
      await sleep(LOOK_MS, undefined, { signal: this.#ended.signal }).catch(() => {});
    }
  }

  #take(client: Socket): void {
    client.on('error', () => {});
    this.#reach(client, this.#candidates());
  }

  /** When none is well all are tried. */
  #candidates(): Backend[] {
    const all = this.#well.size > 0 ? this.#backends.filter(one => this.#well.has(one)) : this.#backends;
    this.#next += 1;
    return all.map((_, index) => all[(index + this.#next) % all.length]!);
  }

  #reach(client: Socket, [first, ...others]: Backend[]): void {
    if (!first) return void client.destroy();
    const upstream = connect(first.port, first.host);
    const fail = () => this.#reach(client, others);
    upstream.once('error', fail);
    upstream.once('connect', () => {
      upstream.off('error', fail);
      upstream.on('error', () => {});
      const sockets = this.#open.get(first)!;
      sockets.add(client);
      client.once('close', () => {
        sockets.delete(client);
        upstream.destroy();
      });
      upstream.once('close', () => client.destroy());
      client.pipe(upstream).pipe(client);
    });
  }
}
