/**
 * Which of the waiting parts begin now: a function of the queue, of what runs and of the limits; pure. Runs that somebody asked for come
 * first; among the others the one with the fewest running parts is next, so that a task of a thousand VMs does not keep one of three
 * waiting; among equals the one that was due first. Work by hand does not wait here: what it takes of a node or pool is not given out.
 */

export interface QueuedPart {
  key: string;
  run: QueuedRun;
  nodeId: string | null;
  poolId: string | null;
  /** Bytes that it will take on its pool. */
  estimate: number;
  /** ms since 1970: a retry waits until then. */
  notBefore: number;
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

/** Longest time before another attempt: a run that waits for one keeps the next run from beginning. */
export const LONGEST_DELAY_MS = 3_600_000;

/** What runs, whoever began it. */
export interface Load {
  byRun: ReadonlyMap<string, number>;
  byNode: ReadonlyMap<string, number>;
  byPool: ReadonlyMap<string, number>;
  /** Bytes of a pool that are free and promised to nobody; a pool that is not named has enough. */
  freeOfPool: ReadonlyMap<string, number>;
}

/** What the queue is looked at with. */
export interface Circumstances {
  load: Load;
  /** Nodes that are away, and may still come back in time. */
  away: ReadonlySet<string | null>;
  limits: Limits;
  /** ms since 1970. */
  now: number;
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

/** Those among which {@link choose} finds what begins: what it begins only takes from the others, so this asks each for itself. */
export function mayBegin<T extends { queued: QueuedPart }>(
  parts: readonly T[],
  circumstances: Circumstances,
): T[] {
  const room = new Room(circumstances);
  return parts.filter(({ queued }) => room.whyNot(queued) === undefined);
}

export function choose(parts: readonly QueuedPart[], circumstances: Circumstances): Choice {
  const room = new Room(circumstances);
  const { byRun } = circumstances.load;
  const lanes = [...Map.groupBy(parts, ({ run }) => run)].map(([run, parts]) => ({
    run,
    parts,
    next: 0,
    running: byRun.get(run.id) ?? 0,
  }));
  const begin: string[] = [];
  const waiting: Choice['waiting'] = [];
  const open = new Lanes(lanes);
  for (let lane = open.first(); lane !== undefined; lane = open.first()) {
    const part = lane.parts[lane.next]!;
    lane.next += 1;
    const reason = room.whyNot(part);
    if (reason === undefined) {
      begin.push(part.key);
      lane.running += 1;
      room.take(part);
    } else waiting.push({ key: part.key, reason });
    open.putBack(lane);
  }
  return { begin, waiting };
}

/** What may still be begun, and what keeps a part from it. */
class Room {
  readonly #circumstances: Circumstances;
  readonly #run: Map<string, number>;
  readonly #node: Map<string, number>;
  readonly #pool: Map<string, number>;
  readonly #free: Map<string, number>;

  constructor(circumstances: Circumstances) {
    const { byRun, byNode, byPool, freeOfPool } = circumstances.load;
    this.#circumstances = circumstances;
    this.#run = new Map(byRun);
    this.#node = new Map(byNode);
    this.#pool = new Map(byPool);
    this.#free = new Map(freeOfPool);
  }

  whyNot({ run, nodeId, poolId, estimate, notBefore }: QueuedPart): WaitReason | undefined {
    const { away, limits, now } = this.#circumstances;
    // an attempt that is further away was put off by a clock that was ahead
    if (notBefore > now && notBefore - now <= LONGEST_DELAY_MS) return 'retry';
    if (away.has(nodeId)) return 'node_away';
    if (isFull(this.#run, run.id, run.parallel)) return 'task_limit';
    if (isFull(this.#node, nodeId, limits.perNode)) return 'node_limit';
    if (isFull(this.#pool, poolId, limits.perPool)) return 'pool_limit';
    if (poolId !== null && this.#isTaken(poolId) && (this.#free.get(poolId) ?? Infinity) < estimate)
      return 'space';
    return undefined;
  }

  /** Somebody works on the pool whose end may give space back; where nobody does, waiting helps nobody. */
  #isTaken(poolId: string): boolean {
    return (this.#pool.get(poolId) ?? 0) > 0;
  }

  take({ run, nodeId, poolId, estimate }: QueuedPart): void {
    add(this.#run, run.id, 1);
    if (nodeId !== null) add(this.#node, nodeId, 1);
    if (poolId === null) return;
    add(this.#pool, poolId, 1);
    if (this.#free.has(poolId)) add(this.#free, poolId, -estimate);
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
  /** How many of its parts run. */
  running: number;
}

/** The runs that still have parts to look at, the next one first: sorted once, since only the one that was taken changes its place. */
class Lanes {
  readonly #sorted: Lane[];

  constructor(lanes: Lane[]) {
    this.#sorted = lanes.sort((a, b) => compare(b, a));
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
      if (compare(this.#sorted[middle]!, lane) > 0) low = middle + 1;
      else high = middle;
    }
    this.#sorted.splice(low, 0, lane);
  }
}

function compare(a: Lane, b: Lane): number {
  return (
    Number(b.run.isManual) - Number(a.run.isManual) ||
    a.running - b.running ||
    a.next - b.next ||
    a.run.due - b.run.due ||
    (a.run.id < b.run.id ? -1 : 1)
  );
}
