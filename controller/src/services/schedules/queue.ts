/**
 * Which of the waiting parts begin now: a function of the queue, of what runs and of the limits; pure. Runs that somebody asked for come
 * first; among the others the one with the fewest running parts is next, so that a task of a thousand VMs does not keep one of three
 * waiting; among equals the one that was due first. Work by hand does not wait here: what it takes of a node or pool is not given out.
 */

export interface QueuedPart {
  key: string;
  runId: string;
  nodeId: string | null;
  poolId: string | null;
  /** Bytes that it will take on its pool. */
  estimate: number;
  /** ms since 1970: a retry waits until then. */
  notBefore: number;
  /** Its node is away, and may still come back in time. */
  waitsForNode: boolean;
}

export interface QueuedRun {
  id: string;
  isManual: boolean;
  /** ms since 1970. */
  due: number;
  /** Parts at a time; 0: all at once. */
  parallel: number;
}

export interface Limits {
  /** Backups at a time on a node, and into a pool; 0: no limit. */
  perNode: number;
  perPool: number;
}

/** What runs, whoever began it. */
export interface Load {
  byRun: ReadonlyMap<string, number>;
  byNode: ReadonlyMap<string, number>;
  byPool: ReadonlyMap<string, number>;
  /** Bytes of a pool that are free and promised to nobody; a pool that is not named has enough. */
  freeOfPool: ReadonlyMap<string, number>;
}

/** Why a part still waits; the first that holds. */
export const WAIT_REASONS = [
  'retry',
  'node_away',
  'task_limit',
  'node_limit',
  'pool_limit',
  'space',
] as const;
export type WaitReason = (typeof WAIT_REASONS)[number];

export interface Choice {
  begin: string[];
  /** The others, in the order in which they come as things are. */
  waiting: { key: string; reason: WaitReason }[];
}

export function choose(
  queue: { parts: readonly QueuedPart[]; runs: ReadonlyMap<string, QueuedRun> },
  load: Load,
  limits: Limits,
  now: number,
): Choice {
  const counts = {
    run: new Map(load.byRun),
    node: new Map(load.byNode),
    pool: new Map(load.byPool),
    free: new Map(load.freeOfPool),
  };
  const byRun = Map.groupBy(queue.parts, ({ runId }) => runId);
  const lanes = [...byRun].map(([runId, parts]) => ({ run: queue.runs.get(runId)!, parts, next: 0 }));
  const begin: string[] = [];
  const waiting: Choice['waiting'] = [];
  const open = new Lanes(lanes, counts.run);
  for (let lane = open.first(); lane !== undefined; lane = open.first()) {
    const part = lane.parts[lane.next]!;
    lane.next += 1;
    const reason = whyNot(part, lane.run);
    if (reason === undefined) {
      begin.push(part.key);
      take(part);
    } else waiting.push({ key: part.key, reason });
    open.putBack(lane);
  }
  return { begin, waiting };

  function whyNot(part: QueuedPart, run: QueuedRun): WaitReason | undefined {
    if (part.notBefore > now) return 'retry';
    if (part.waitsForNode) return 'node_away';
    if (run.parallel > 0 && (counts.run.get(run.id) ?? 0) >= run.parallel) return 'task_limit';
    if (isFull(counts.node, part.nodeId, limits.perNode)) return 'node_limit';
    if (isFull(counts.pool, part.poolId, limits.perPool)) return 'pool_limit';
    if (
      part.poolId !== null &&
      isTaken(part.poolId) &&
      (counts.free.get(part.poolId) ?? Infinity) < part.estimate
    )
      return 'space';
    return undefined;
  }

  /** Somebody works on the pool whose end may give space back; where nobody does, waiting helps nobody. */
  function isTaken(poolId: string): boolean {
    return (counts.pool.get(poolId) ?? 0) > 0;
  }

  function take({ runId, nodeId, poolId, estimate }: QueuedPart): void {
    add(counts.run, runId, 1);
    if (nodeId !== null) add(counts.node, nodeId, 1);
    if (poolId === null) return;
    add(counts.pool, poolId, 1);
    if (counts.free.has(poolId)) add(counts.free, poolId, -estimate);
  }
}

const isFull = (counts: ReadonlyMap<string, number>, id: string | null, limit: number): boolean =>
  limit > 0 && id !== null && (counts.get(id) ?? 0) >= limit;

function add(counts: Map<string, number>, id: string, by: number): void {
  counts.set(id, (counts.get(id) ?? 0) + by);
}

interface Lane {
  run: QueuedRun;
  parts: readonly QueuedPart[];
  next: number;
}

/** The runs that still have parts to look at, the next one first: sorted once, since only the one that was taken changes its place. */
class Lanes {
  readonly #sorted: Lane[];
  readonly #running: ReadonlyMap<string, number>;

  constructor(lanes: Lane[], running: ReadonlyMap<string, number>) {
    this.#running = running;
    this.#sorted = lanes.sort((a, b) => this.#compare(b, a));
  }

  /** Takes it out. */
  first(): Lane | undefined {
    return this.#sorted.pop();
  }

  putBack(lane: Lane): void {
    if (lane.next >= lane.parts.length) return;
    let [low, high] = [0, this.#sorted.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#compare(this.#sorted[middle]!, lane) > 0) low = middle + 1;
      else high = middle;
    }
    this.#sorted.splice(low, 0, lane);
  }

  #compare({ run: a, next: nextOfA }: Lane, { run: b, next: nextOfB }: Lane): number {
    const of = (id: string) => this.#running.get(id) ?? 0;
    return (
      Number(b.isManual) - Number(a.isManual) ||
      of(a.id) - of(b.id) ||
      nextOfA - nextOfB ||
      a.due - b.due ||
      (a.id < b.id ? -1 : 1)
    );
  }
}
