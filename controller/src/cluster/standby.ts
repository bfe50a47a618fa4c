/** Listens where the controller will, and forwards, while another one acts. */
import { once } from 'node:events';
import {
  createServer as createHttp,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttps } from 'node:https';
import type { Server as NetServer } from 'node:net';
import type { Logger } from '@virtkeep/shared/log';
import type { ControllerConfig } from '../config.ts';
import { limitBodyTimes, limitConnections, timeLimits } from '../http/connections.ts';
import { answerClientError } from '../http/errors.ts';
import type { CertificateAuthority } from '../pki/index.ts';
import { followCertificate, MIN_TLS, serverTls } from '../tls.ts';
import { type ActingPlace, Forwarder } from './forwarder.ts';
import { type ForwardingAgents, forwardingAgents, PEER_RENEWAL_MS } from './peer-tls.ts';

export interface StandbyOptions {
  config: ControllerConfig;
  log: Logger;
  /** Of the keys in the database, which are there once a controller has acted. */
  authority: () => Promise<CertificateAuthority>;
}

export class Standby {
  readonly #options: StandbyOptions;
  readonly #forwarder: Forwarder;
  #listening: Promise<Server> | undefined;
  #authority: Promise<CertificateAuthority> | undefined;
  #agents: { made: Promise<ForwardingAgents>; madeMs: number } | undefined;

  constructor(options: StandbyOptions) {
    this.#options = options;
    const { config, log } = options;
    this.#forwarder = new Forwarder({ config, log, agents: () => this.#agentsNow() });
  }

  /**
   * Forwards to this place from now on, and listens from the first one on.
   * @param reason why there is none
   * @throws ConfigError when the keys cannot be opened with the file of this controller; the error of the listening socket
   */
  async point(place: ActingPlace | undefined, reason = ''): Promise<void> {
    this.#forwarder.point(place, reason);
    if (!place) return;
    this.#listening ??= this.#listen();
    await this.#listening;
  }

  /** What comes to it goes there from now on. */
  forwardTo(own: ActingPlace): void {
    this.#forwarder.point(own);
  }

  /**
   * Gives the socket at which it listens to the server of this controller itself, whose turn it is: what waits in it and what comes is that
   * one's, and nobody is refused meanwhile. Connections that are open go on, to where this controller takes what is forwarded, and end with
   * their next answer. Both servers have one socket then: the first that closes frees the port, and to close the other does nothing more.
   * @returns false: it has not listened
   */
  async giveSocketTo(server: NetServer): Promise<boolean> {
    const own = await this.#listening;
    if (!own) return false;
    const listening = once(server, 'listening');
    server.listen(own);
    await listening;
    this.#forwarder.closesConnections = true;
    return true;
  }

  /** Takes nothing more, and waits until what has come is answered, but for event streams. */
  async drain(): Promise<void> {
    const server = await this.#listening?.catch(() => undefined);
    server?.close();
    await this.#forwarder.drain();
  }

  /** Ends everything. */
  async stop(): Promise<void> {
    const server = await this.#listening?.catch(() => undefined);
    server?.close();
    server?.closeAllConnections();
    const agents = await this.#agents?.made.catch(() => undefined);
    agents?.reads.destroy();
    agents?.writes.destroy();
  }

  async #listen(): Promise<Server> {
    const { config, log } = this.#options;
    const tlsNow = async () => serverTls(config, await this.authority());
    const tls = await tlsNow();
    const handle = (request: IncomingMessage, response: ServerResponse) =>
      request.url === '/healthz' ? this.#lives(response) : this.#forwarder.handle(request, response);
    const times = timeLimits(config);
    const server = tls
      ? createHttps({ ...tls, ...times, minVersion: MIN_TLS }, handle)
      : createHttp(times, handle);
    followCertificate(server, tls, tlsNow, log);
    server.on('clientError', answerClientError);
    limitConnections(server, config);
    limitBodyTimes(server, config);
    const { host, port } = config.listen;
    await new Promise<void>((resolve, reject) => {
      server.once('error', reject);
      server.listen(port, host, resolve);
    });
    log.info('this controller stands by', { address: server.address() });
    return server;
  }

  /** Of this process: whether any controller acts is another question (`/readyz`). */
  #lives(response: ServerResponse): void {
    const last = this.#forwarder.closesConnections ? { connection: 'close' } : {};
    response.writeHead(200, {
      'content-type': 'application/json; charset=utf-8',
      'cache-control': 'no-store',
      ...last,
    });
    response.end(JSON.stringify({ status: 'ok' }));
  }

  /** That of all controllers. */
  authority(): Promise<CertificateAuthority> {
    this.#authority ??= this.#options.authority().catch((error: unknown) => {
      this.#authority = undefined;
      throw error;
    });
    return this.#authority;
  }

  /** Their certificate is made anew before it ends. */
  #agentsNow(): Promise<ForwardingAgents> {
    if (!this.#agents || performance.now() - this.#agents.madeMs > PEER_RENEWAL_MS) {
      const made = this.authority().then(forwardingAgents);
      this.#agents = { made, madeMs: performance.now() };
    }
    return this.#agents.made;
  }
}
