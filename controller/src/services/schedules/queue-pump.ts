/** Begins as many of the waiting parts as the limits allow (`queue.ts` says which), and knows why the others wait. */
import type { Logger } from '@virtkeep/shared/log';
import { Turns } from '@virtkeep/shared/turns';
import type { AwayNodes } from './away-nodes.ts';
import type { Behind } from './behind.ts';
import type { SchedulerDependencies } from './needs.ts';
import type { OpenParts, PlacedPart } from './open-parts.ts';
import type { PartSteps } from './part-steps.ts';
import { choose, type Load, type QueuedPart, type QueuedRun, type WaitReason } from './queue.ts';

export interface QueuePumpDependencies extends Pick<SchedulerDependencies, 'clock' | 'surroundings'> {
  parts: OpenParts;
  steps: PartSteps;
  awayNodes: AwayNodes;
  behind: Behind;
  log: Logger;
}

export interface WaitingPart extends PlacedPart {
  reason: WaitReason;
}

export class QueuePump {
  readonly #dependencies: QueuePumpDependencies;
  readonly #shared = new Turns();
  #reasons = new Map<string, WaitReason>();
  #pumping: Promise<void> | undefined;
  #pumpAgain = false;

  constructor(dependencies: QueuePumpDependencies) {
    this.#dependencies = dependencies;
  }

  /** In the order in which they come as things are. */
  waiting(): WaitingPart[] {
    const { waiting } = this.#dependencies.parts;
    return [...this.#reasons].flatMap(([key, reason]) => {
      const part = waiting.get(key);
      return part ? [{ ...part, reason }] : [];
    });
  }

  /** Begins what may begin. */
  pump(): Promise<void> {
    this.#pumpAgain = true;
    this.#pumping ??= this.#pumpAll().finally(() => {
      this.#pumping = undefined;
    });
    return this.#pumping;
  }

  pumpBehind(runId: string): void {
    this.#dependencies.behind.run('go on after', runId, () => this.pump());
  }

  async settled(): Promise<void> {
    await this.#pumping;
  }

  async #pumpAll(): Promise<void> {
    while (this.#pumpAgain && !this.#dependencies.behind.isStopping) {
      this.#pumpAgain = false;
      await this.#pumpOnce();
    }
  }

  async #pumpOnce(): Promise<void> {
    const { parts, steps, behind, log } = this.#dependencies;
    if (parts.waiting.size === 0) {
      this.#reasons = new Map();
      return;
    }
    for (const key of await this.#choose()) {
      await this.#shared.share();
      await steps.begin(key).catch(error => {
        log.error('a part of a run could not be begun', { part: key, error });
        behind.troubled.add(key.split(' ')[0]!);
      });
    }
  }

  /** @returns the keys of those that begin */
  async #choose(): Promise<string[]> {
    const { parts, surroundings, clock, awayNodes } = this.#dependencies;
    const now = clock.now().getTime();
    const runs = new Map<string, QueuedRun>();
    const queued: QueuedPart[] = [];
    for (const [key, part] of parts.waiting) {
      const { row, place } = part;
      runs.set(row.run_id, queuedRun(part));
      queued.push({
        key,
        runId: row.run_id,
        ...place,
        notBefore: row.not_before === null ? 0 : Date.parse(row.not_before),
        waitsForNode: awayNodes.waitsFor(place.nodeId),
      });
    }
    const load = await this.#load();
    const { begin, waiting } = choose({ parts: queued, runs }, load, surroundings.limits(), now);
    this.#reasons = new Map(waiting.map(({ key, reason }) => [key, reason]));
    return begin;
  }

  async #load(): Promise<Load> {
    const { parts, surroundings } = this.#dependencies;
    const running = [...parts.running.values()];
    const own = new Set(running.flatMap(({ row }) => row.task_id ?? []));
    const { byNode, byPool, freeOfPool } = await surroundings.load(own);
    const [nodes, pools, free] = [new Map(byNode), new Map(byPool), new Map(freeOfPool)];
    const byRun = new Map<string, number>();
    for (const { row, place } of running) {
      count(byRun, row.run_id);
      if (place.nodeId !== null) count(nodes, place.nodeId);
      if (place.poolId === null) continue;
      count(pools, place.poolId);
      const { poolId } = place;
      if (free.has(poolId)) free.set(poolId, free.get(poolId)! - place.estimate);
    }
    return { byRun, byNode: nodes, byPool: pools, freeOfPool: free };
  }
}

const queuedRun = ({ run, definition }: PlacedPart): QueuedRun => ({
  id: run.id,
  isManual: run.due_time === null,
  due: Date.parse(run.due_time ?? run.created),
  parallel: definition.parallel_limit,
});

function count(counts: Map<string, number>, id: string): void {
  counts.set(id, (counts.get(id) ?? 0) + 1);
}
