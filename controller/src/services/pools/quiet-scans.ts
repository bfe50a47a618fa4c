/**
 * The scans that nobody asks for: of a node's pools when it returns, and of a pool when its mount does. A pool that many nodes have
 * would be read by each of them, all to the same effect: it is scanned by one at a time, and not again so soon. Whoever returns
 * meanwhile may know of something newer, so it is scanned once more after that.
 */
export interface QuietScanDependencies {
  /** Whether several nodes have it. */
  isShared: (poolId: string) => boolean;
  isConnected: (nodeId: string) => boolean;
  /** One that can scan it now; undefined: none. */
  nodeFor: (poolId: string) => string | undefined;
  /** Starts a scan on a node. @returns its operation; undefined: it could not be started. */
  start: (poolId: string, nodeId: string) => Promise<string | undefined>;
}

interface LastScan {
  nodeId: string;
  /** Undefined until the node has taken it. */
  operation: string | undefined;
  isOver: boolean;
  /** In ms of `performance.now`. */
  beganMs: number;
  /** Begins the next one. */
  timer: NodeJS.Timeout | undefined;
}

const INTERVAL_MS = 300_000;

export class QuietScans {
  readonly #dependencies: QuietScanDependencies;
  readonly #intervalMs: number;
  /** Of shared pools, by their ids. */
  readonly #last = new Map<string, LastScan>();

  constructor(dependencies: QuietScanDependencies, intervalMs = INTERVAL_MS) {
    this.#dependencies = dependencies;
    this.#intervalMs = intervalMs;
  }

  /** A node has returned that has the pool, or the pool on it. */
  async ask(poolId: string, nodeId: string): Promise<void> {
    const { isShared, isConnected, start } = this.#dependencies;
    if (!isShared(poolId)) return void (await start(poolId, nodeId));
    const last = this.#last.get(poolId);
    const leftMs = last ? last.beganMs + this.#intervalMs - performance.now() : 0;
    // one whose node was lost under way tells nothing any more
    if (last && leftMs > 0 && (last.isOver || isConnected(last.nodeId)))
      return this.#later(poolId, last, leftMs);
    await this.#begin(poolId, nodeId);
  }

  /** The result of a scan was taken over. */
  ended(operation: string): void {
    for (const last of this.#last.values()) if (last.operation === operation) last.isOver = true;
  }

  stop(): void {
    for (const { timer } of this.#last.values()) clearTimeout(timer);
    this.#last.clear();
  }

  async #begin(poolId: string, nodeId: string): Promise<void> {
    clearTimeout(this.#last.get(poolId)?.timer);
    const scan: LastScan = {
      nodeId,
      operation: undefined,
      isOver: false,
      beganMs: performance.now(),
      timer: undefined,
    };
    this.#last.set(poolId, scan);
    scan.operation = await this.#dependencies.start(poolId, nodeId);
    if (scan.operation === undefined && this.#last.get(poolId) === scan) this.#last.delete(poolId);
  }

  #later(poolId: string, last: LastScan, delayMs: number): void {
    if (last.timer) return;
    last.timer = setTimeout(() => {
      const nodeId = this.#dependencies.nodeFor(poolId);
      if (nodeId === undefined) this.#last.delete(poolId);
      else void this.#begin(poolId, nodeId);
    }, delayMs);
    last.timer.unref();
  }
}
