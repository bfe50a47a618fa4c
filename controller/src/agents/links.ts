/** All nodes' connections: the only way by which the services reach an agent. */
import { sleep } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { AgentClients, AgentTarget, AgentTls, PeerValidity } from './clients.ts';
import { LINK_TIMES, type LinkObserver, LinkPlaces, type LinkTimes, NodeLink } from './link.ts';

const LOOK_MS = 50;
/** A node that was silent for so long is not just restarted: who misses most of them may be the one that is cut off. */
const LONG_SILENT_MS = 60_000;

export class NodeLinks {
  readonly #tls: () => Promise<AgentTls>;
  readonly #observer: LinkObserver;
  readonly #log: Logger;
  readonly #times: LinkTimes;
  readonly #places = new LinkPlaces();
  readonly #links = new Map<string, NodeLink>();
  #isStopped = false;
  #isComplete = false;

  constructor(
    tls: () => Promise<AgentTls>,
    observer: LinkObserver,
    log: Logger,
    times: LinkTimes = LINK_TIMES,
  ) {
    this.#tls = tls;
    this.#observer = observer;
    this.#log = log;
    this.#times = times;
  }

  /** Every node that is known was added. Before that one without a link is none that is unknown. */
  complete(): void {
    this.#isComplete = true;
  }

  /** Begins to keep a node connected; one whose address or name has changed is connected anew. */
  async add(target: AgentTarget): Promise<void> {
    const present = this.#links.get(target.id);
    if (present?.target.address === target.address && present.target.name === target.name) return;
    await this.#replace(target, 'its address or name was changed');
  }

  /**
   * Ends the connection to a node, if there is one, and begins another: what the node shows is judged anew. It may not be taken
   * again, so it counts as lost until it is.
   */
  async reconnect(nodeId: string, reason: string): Promise<void> {
    const target = this.#links.get(nodeId)?.target;
    if (target) await this.#replace(target, reason);
  }

  /** The new link is there before the former one has ended: whoever removes the node meanwhile ends both. */
  async #replace(target: AgentTarget, lostBecause: string): Promise<void> {
    if (this.#isStopped) return;
    const former = this.#links.get(target.id);
    const link = new NodeLink(target, {
      tls: this.#tls,
      observer: this.#observer,
      log: this.#log,
      times: this.#times,
      places: this.#places,
    });
    this.#links.set(target.id, link);
    const ended = former?.stop(lostBecause);
    link.start(ended);
    await ended;
  }

  /** Ends the connection to a node that is none of ours any more. */
  async remove(nodeId: string): Promise<void> {
    const link = this.#links.get(nodeId);
    this.#links.delete(nodeId);
    await link?.stop();
  }

  isConnected(nodeId: string): boolean {
    return this.#links.get(nodeId)?.isConnected ?? false;
  }

  /** @throws VirtkeepError node_not_found, node_unreachable. */
  clients(nodeId: string): AgentClients {
    return this.#link(nodeId).clients();
  }

  /** The same, also while what ended in its absence is taken over: for what belongs to that. @throws as `clients`. */
  reached(nodeId: string): AgentClients {
    return this.#link(nodeId).reached();
  }

  #link(nodeId: string): NodeLink {
    const link = this.#links.get(nodeId);
    if (!link && !this.#isComplete)
      throw new VirtkeepError('node_unreachable', { node: nodeId, reason: 'the controller is starting' });
    if (!link) throw new VirtkeepError('node_not_found', { id: nodeId });
    return link;
  }

  /** The connected nodes, with the life of their certificates. */
  connected(): { nodeId: string; clients: AgentClients; peer: PeerValidity | undefined }[] {
    return [...this.#links.values()]
      .filter(link => link.isConnected)
      .map(link => ({ nodeId: link.target.id, clients: link.clients(), peer: link.peer() }));
  }

  /** Whether a node that is away may be back in a moment (`NodeLink.isExpected`), or is not known yet. */
  isExpected(nodeId: string): boolean {
    return this.#links.get(nodeId)?.isExpected ?? !(this.#isComplete || this.#isStopped);
  }

  /** Waits for a node that is expected. @returns whether it is connected */
  async untilBack(nodeId: string, signal: AbortSignal): Promise<boolean> {
    while (!this.isConnected(nodeId) && this.isExpected(nodeId) && !signal.aborted) await sleep(LOOK_MS);
    return this.isConnected(nodeId);
  }

  /** How many nodes there are, and the addresses of those of which nothing was seen for a minute. */
  reach(): { all: number; away: string[] } {
    const away = [...this.#links.values()].filter(({ silentMs }) => silentMs >= LONG_SILENT_MS);
    return { all: this.#links.size, away: away.map(({ target }) => target.address) };
  }

  /** Waits until all nodes are connected, or for so long: some may be off; not when it has been stopped. */
  async settled(mostMs: number): Promise<void> {
    const untilMs = performance.now() + mostMs;
    const isDone = () => this.#isStopped || [...this.#links.values()].every(link => link.isConnected);
    while (!isDone() && performance.now() < untilMs) await sleep(LOOK_MS);
  }

  /** Ends all connections; the nodes keep working, and count as away. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    await Promise.all([...this.#links.values()].map(link => link.stop()));
  }
}
