/**
 * The controller's connection to one node: kept up for ever, with bounded waits between attempts. A session is: the
 * node proves who it is, its streams run (inventory, questions, and operations once open tasks were compared with its journal)
 * until one of them ends. Dropping a session cancels nothing on the node.
 */
import { setTimeout as pause } from 'node:timers/promises';
import { orAborted, throwIfAborted } from '@virtkeep/shared/abort';
import { Backoff } from '@virtkeep/shared/backoff';
import { isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type {
  InventoryEvent,
  NodeInfo,
  Question,
  UseAnswer,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import type { OperationEvent } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { isUnimplemented } from '@virtkeep/shared/grpc-status';
import type { Logger } from '@virtkeep/shared/log';
import { onceAt } from '@virtkeep/shared/once-at';
import {
  type AgentChannel,
  type AgentClients,
  type AgentTarget,
  type AgentTls,
  openAgentChannel,
  type PeerValidity,
} from './clients.ts';
import { Places } from './places.ts';

/** What the services do with a node's life; calls for one node never overlap within a stream. */
export interface LinkObserver {
  /** The first attempt to reach the node begins: from now on it has its time. */
  begins?(nodeId: string): void;
  /** It has answered; what comes next may wait until the inventories of others are taken over. */
  answered?(nodeId: string): void;
  /**
   * The node has proven its identity; nothing has been read from its streams yet. Its inventory comes meanwhile: the ends of
   * operations wait for it.
   * @param signal fires with the end of the session
   * @returns where to resume the stream of operations
   */
  reattach(nodeId: string, clients: AgentClients, signal: AbortSignal): Promise<{ afterSequence: bigint }>;
  inventory(nodeId: string, event: InventoryEvent): Promise<void>;
  operation(nodeId: string, event: OperationEvent): Promise<void>;
  /** What the node asks about the others. Does not reject. */
  question(nodeId: string, question: Question): Promise<UseAnswer[]>;
  /** Its open tasks were compared and its first inventory has been taken over; from now on the node counts as connected. */
  connected(nodeId: string, clients: AgentClients, signal: AbortSignal): void;
  /** The node was connected and is no more. */
  lost(nodeId: string, reason: string): Promise<void>;
}

export interface LinkTimes {
  firstRetryMs: number;
  maxRetryMs: number;
  /** For the first inventory. */
  connectTimeoutMs: number;
  /** For the first answer; as long as for the inventory when absent. */
  greetTimeoutMs?: number;
  /** So long after its loss, or after the first attempt to reach it, it is expected back; not at all when absent. */
  returnMs?: number;
}

/** Questions of one node that are answered at a time; further ones wait in the stream. */
const MAX_QUESTIONS = 32;

export const LINK_TIMES: LinkTimes = {
  firstRetryMs: 500,
  maxRetryMs: 15_000,
  connectTimeoutMs: 30_000,
  greetTimeoutMs: 10_000,
  // a silent network is noticed after 15 s and tried again after as long at most
  returnMs: 30_000,
};

/** What a thousand links may do at a time: all at once would keep the loop so long that each of them is late. */
export class LinkPlaces {
  /** The handshake and the first answer. */
  readonly greeting = new Places({ count: 32, holdMs: 1000 });
  /** Comparing the tasks and taking the inventory over, which is in memory meanwhile. */
  readonly taking = new Places({ count: 16, holdMs: 10_000 });
}

export interface NodeLinkDependencies {
  tls: () => Promise<AgentTls>;
  observer: LinkObserver;
  log: Logger;
  times?: LinkTimes | undefined;
  /** Shared with the other links. */
  places?: LinkPlaces | undefined;
}

export class NodeLink {
  readonly target: AgentTarget;
  readonly #tls: () => Promise<AgentTls>;
  readonly #observer: LinkObserver;
  readonly #log: Logger;
  readonly #times: LinkTimes;
  readonly #places: LinkPlaces;
  readonly #stop = new AbortController();
  #running: Promise<void> | undefined;
  #channel: AgentChannel | undefined;
  /** Told as connected; until `lost` has been told. */
  #connected = false;
  /** Both streams are up. */
  #usable = false;
  /** When the first attempt to reach it began, or when it was lost, by the steady clock; undefined: nobody has tried yet. */
  #awaySinceMs: number | undefined;
  /** It gave no answer the last time. */
  #isDoubtful = false;
  /** It gave none, and showed no certificate either. */
  #isSilent = true;
  /** It answered, and gave no inventory, the last time. */
  #isEmptyHanded = false;
  #reason = 'not connected yet';
  /** Why the connection is ended though the node stays; undefined: the end of it is nobody's loss. */
  #endedBecause: string | undefined;

  constructor(target: AgentTarget, dependencies: NodeLinkDependencies) {
    const { tls, observer, log, times = LINK_TIMES, places = new LinkPlaces() } = dependencies;
    this.target = target;
    this.#places = places;
    this.#tls = tls;
    this.#observer = observer;
    this.#log = log.child({ node: target.id });
    this.#times = times;
  }

  get isConnected(): boolean {
    return this.#usable;
  }

  /** It is away, and may be back in a moment: it was there a moment ago, or nobody has had the time to reach it. */
  get isExpected(): boolean {
    const { returnMs = 0 } = this.#times;
    if (this.#usable || this.#stop.signal.aborted || returnMs === 0) return false;
    return this.#awaySinceMs === undefined || performance.now() < this.#awaySinceMs + returnMs;
  }

  /** How long it has been away and nothing of it was seen, ms; 0: it shows itself, if it is usable or not, or nobody has tried to reach it. */
  get silentMs(): number {
    if (this.#usable || !this.#isSilent || this.#awaySinceMs === undefined) return 0;
    return performance.now() - this.#awaySinceMs;
  }

  /** Why the node is not connected; for people. */
  get reason(): string {
    return this.#reason;
  }

  /** @param after what is waited for: the end of the link before this one to the same node */
  start(after: Promise<void> = Promise.resolve()): void {
    this.#running ??= after.then(() => this.#run());
  }

  /**
   * Ends the connection, and every call over it; the node keeps working.
   * @param lostBecause the node stays one of ours: who observes it is told that it was lost, if it was connected
   */
  async stop(lostBecause?: string): Promise<void> {
    this.#endedBecause = lostBecause;
    this.#stop.abort(new VirtkeepError('draining'));
    await this.#running;
  }

  /** The clients of a connected node. @throws VirtkeepError node_unreachable. */
  clients(): AgentClients {
    if (this.#usable && this.#channel) return this.#channel.clients;
    throw new VirtkeepError('node_unreachable', { node: this.target.name, reason: this.#reason });
  }

  /** The same, also while what ended in its absence is taken over. @throws VirtkeepError node_unreachable. */
  reached(): AgentClients {
    return this.#channel?.clients ?? this.clients();
  }

  /** Life of the certificate the node shows. */
  peer(): PeerValidity | undefined {
    return this.#channel?.peer();
  }

  async #run(): Promise<void> {
    const backoff = new Backoff(this.#times.firstRetryMs, this.#times.maxRetryMs);
    while (!this.#stop.signal.aborted) {
      const wasConnected = await this.#attempt();
      if (wasConnected) backoff.reset();
      await pause(backoff.next(), undefined, { signal: this.#stop.signal, ref: false }).catch(() => {});
    }
  }

  /** One session from connecting to its end; never throws. @returns whether the node was connected in it. */
  async #attempt(): Promise<boolean> {
    let leave = () => {};
    try {
      leave = await this.#places.greeting.take(this.#isDoubtful, this.#stop.signal);
      if (this.#awaySinceMs === undefined) this.#observer.begins?.(this.target.id);
      this.#awaySinceMs ??= performance.now();
      this.#isDoubtful = true;
      this.#channel = openAgentChannel(this.target, await this.#tls(), this.#stop.signal);
      await this.#session(this.#channel, leave);
      this.#reason = 'the connection was closed';
    } catch (error) {
      this.#reason = isVirtkeepError(error) ? (error.params.reason ?? error.message) : reasonOf(error);
      const level = isVirtkeepError(error) || this.#stop.signal.aborted ? 'debug' : 'error';
      this.#log[level]('session with the node ended', { error });
    }
    leave();
    this.#isSilent = this.#isDoubtful && this.#channel?.peer() === undefined;
    this.#channel?.close();
    this.#channel = undefined;
    const wasConnected = this.#connected;
    this.#connected = false;
    if (this.#stop.signal.aborted) this.#reason = this.#endedBecause ?? this.#reason;
    const isLoss = !this.#stop.signal.aborted || this.#endedBecause !== undefined;
    if (wasConnected && isLoss) await this.#tellLost();
    return wasConnected;
  }

  async #tellLost(): Promise<void> {
    this.#log.warn('node lost', { reason: this.#reason });
    await this.#observer
      .lost(this.target.id, this.#reason)
      .catch(error => this.#log.error('could not record the loss of the node', { error }));
  }

  /** @param greeted called when it has answered */
  async #session(channel: AgentChannel, greeted: () => void): Promise<void> {
    const session = new AbortController();
    const signal = AbortSignal.any([session.signal, this.#stop.signal]);
    let late: { stop: () => void } | undefined;
    let taken = () => {};
    try {
      await this.#greet(channel.clients, signal);
      this.#isDoubtful = false;
      this.#isSilent = false;
      greeted();
      this.#observer.answered?.(this.target.id);
      taken = await this.#places.taking.take(this.#isEmptyHanded, signal);
      this.#isEmptyHanded = true;
      // TLS looks once: a node that refuses its renewal would be believed for as long as it holds the connection
      late = onceAt(channel.peer()?.notAfter ?? Number.POSITIVE_INFINITY, () => session.abort(this.#ended()));
      throwIfAborted(session.signal);
      const inventory = Promise.withResolvers<void>();
      const end = () => {
        if (this.#usable) this.#awaySinceMs = performance.now();
        this.#usable = false;
        session.abort(new VirtkeepError('canceled'));
      };
      // Whichever ends first ends the other; the next session begins when both are done.
      const streams = [
        // the first to be called: it tells the observer of the session before the inventory's first event
        this.#watchOperations(channel.clients, inventory.promise.finally(taken), signal).finally(end),
        this.#watchInventory(channel.clients, inventory.resolve, signal).finally(end),
        this.#watchQuestions(channel.clients, signal).finally(end),
      ];
      await Promise.race(streams).finally(() => Promise.allSettled(streams));
    } finally {
      taken();
      late?.stop();
      session.abort(new VirtkeepError('canceled'));
    }
  }

  #ended(): VirtkeepError {
    return new VirtkeepError('node_unreachable', {
      node: this.target.name,
      reason: 'its certificate has ended',
    });
  }

  async #greet(clients: AgentClients, signal: AbortSignal): Promise<NodeInfo> {
    const { greetTimeoutMs = this.#times.connectTimeoutMs } = this.#times;
    const limit = AbortSignal.any([signal, AbortSignal.timeout(greetTimeoutMs)]);
    const info = await clients.node.getInfo({}, { signal: limit });
    if (info.id === this.target.id) return info;
    const reason = `the agent at ${this.target.address} says it is node ${info.id}`;
    throw new VirtkeepError('node_unreachable', { node: this.target.name, reason });
  }

  /** @param taken called when the whole inventory has been taken over */
  async #watchInventory(clients: AgentClients, taken: () => void, signal: AbortSignal): Promise<void> {
    const first = new AbortController();
    const timer = setTimeout(() => first.abort(), this.#times.connectTimeoutMs);
    timer.unref();
    try {
      const stream = clients.node.watchInventory({}, { signal: AbortSignal.any([signal, first.signal]) });
      for await (const event of stream) {
        clearTimeout(timer);
        await this.#observer.inventory(this.target.id, event);
        if (event.event?.$case === 'full') {
          this.#isEmptyHanded = false;
          taken();
        }
        letGo(event, 'event');
      }
    } finally {
      clearTimeout(timer);
    }
  }

  #nowConnected(clients: AgentClients, signal: AbortSignal): void {
    if (signal.aborted) return;
    this.#connected = true;
    this.#usable = true;
    this.#reason = '';
    this.#log.info('node connected', { address: this.target.address });
    this.#observer.connected(this.target.id, clients, signal);
  }

  /** What ended while the node was away is taken over before it counts as connected. */
  async #watchOperations(
    clients: AgentClients,
    inventory: Promise<void>,
    signal: AbortSignal,
  ): Promise<void> {
    const { afterSequence } = await this.#observer.reattach(this.target.id, clients, signal);
    await orAborted(inventory, signal);
    this.#nowConnected(clients, signal);
    const stream = clients.operations.watch({ afterSequence, operationId: '' }, { signal });
    for await (const event of stream) {
      await this.#observer.operation(this.target.id, event);
      letGo(event, 'operation');
    }
  }

  /** An agent of an earlier version asks nothing: its session stands without. */
  async #watchQuestions(clients: AgentClients, signal: AbortSignal): Promise<void> {
    const pendingAnswers = new Set<Promise<void>>();
    try {
      for await (const question of clients.node.watchQuestions({}, { signal })) {
        const answered = this.#answer(clients, question, signal).finally(() =>
          pendingAnswers.delete(answered),
        );
        pendingAnswers.add(answered);
        if (pendingAnswers.size >= MAX_QUESTIONS) await Promise.race(pendingAnswers);
      }
    } catch (error) {
      if (!isUnimplemented(error)) throw error;
      await orAborted(new Promise<never>(() => {}), signal);
    }
  }

  /** Never throws: a question without an answer counts as unknown after a while. */
  async #answer(clients: AgentClients, question: Question, signal: AbortSignal): Promise<void> {
    try {
      const answers = await this.#observer.question(this.target.id, question);
      await clients.node.answerQuestion({ questionId: question.id, answers }, { signal });
    } catch (error) {
      if (!signal.aborted) this.#log.warn('a question of the node was not answered', { error });
    }
  }
}

/**
 * A stream that is waited for holds its last message, which may be all that a node has: half a MiB for each of a thousand nodes.
 */
function letGo<K extends string>(message: { [key in K]: unknown }, field: K): void {
  message[field] = undefined;
}
