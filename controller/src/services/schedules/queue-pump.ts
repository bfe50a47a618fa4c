/** Begins as many of the waiting parts as the limits allow (`queue.ts` says which), and knows why the others wait. */
import { shareLoop } from '@virtkeep/shared/turns';
import type { AwayNodes } from './away-nodes.ts';
import type { Behind } from './behind.ts';
import type { SchedulerDependencies } from './needs.ts';
import type { OpenParts, PlacedPart } from './open-parts.ts';
import type { PartSteps } from './part-steps.ts';
import { type Choice, type Circumstances, choose, type Load, mayBegin, type WaitReason } from './queue.ts';

export interface QueuePumpDependencies extends Pick<SchedulerDependencies, 'clock' | 'surroundings' | 'log'> {
  parts: OpenParts;
  steps: PartSteps;
  awayNodes: AwayNodes;
  behind: Behind;
}

export interface WaitingPart extends PlacedPart {
  reason: WaitReason;
}

export class QueuePump {
  readonly #dependencies: QueuePumpDependencies;
  /** Those that waited after the last look; put in order when somebody asks, since ten thousand of them take a while. */
  #inOrder: () => Choice['waiting'] = () => [];
  #pumping: Promise<void> | undefined;
  #pumpAgain = false;

  constructor(dependencies: QueuePumpDependencies) {
    this.#dependencies = dependencies;
  }

  /** In the order in which they come as things are. */
  waiting(): WaitingPart[] {
    const { waiting } = this.#dependencies.parts;
    const inOrder = this.#inOrder();
    this.#inOrder = () => inOrder;
    return inOrder.flatMap(({ key, reason }) => {
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
      this.#inOrder = () => [];
      return;
    }
    for (const key of await this.#choose()) {
      await shareLoop();
      await steps.begin(key).catch(error => {
        log.error('a part of a run could not be begun', { part: key, error });
        behind.troubled.add(key.split(' ')[0]!);
      });
    }
  }

  /** @returns the keys of those that begin */
  async #choose(): Promise<string[]> {
    const { parts, surroundings } = this.#dependencies;
    const circumstances = await this.#circumstances();
    const waiting = [...parts.waiting.values()];
    const able = mayBegin(waiting, circumstances);
    if (able.length === 0) {
      this.#inOrder = () => choose(waiting.map(queuedOf), circumstances).waiting;
      return [];
    }
    // two that seem to fit by what their nodes told last would take what is deleted for one of them
    if (await surroundings.askFree(able)) circumstances.load = await this.#load();
    const choice = choose(waiting.map(queuedOf), circumstances);
    this.#inOrder = () => choice.waiting;
    return choice.begin;
  }

  async #circumstances(): Promise<Circumstances> {
    const { parts, surroundings, clock, awayNodes } = this.#dependencies;
    const load = await this.#load();
    const nodes = new Set(Array.from(parts.waiting.values(), ({ queued }) => queued.nodeId));
    return {
      load,
      away: new Set([...nodes].filter(id => awayNodes.waitsFor(id))),
      limits: surroundings.limits(),
      now: clock.now().getTime(),
    };
  }

  async #load(): Promise<Load> {
    const { parts, surroundings } = this.#dependencies;
    const running = [...parts.running.values()];
    const own = new Set(running.flatMap(({ row }) => row.task_id ?? []));
    const { byNode, byPool, freeOfPool } = await surroundings.load(own);
    const [nodes, pools, free] = [new Map(byNode), new Map(byPool), new Map(freeOfPool)];
    const byRun = new Map<string, number>();
    for (const { queued } of running) {
      const { run, nodeId, poolId, estimate } = queued;
      count(byRun, run.id);
      if (nodeId !== null) count(nodes, nodeId);
      if (poolId === null) continue;
      count(pools, poolId);
      if (free.has(poolId)) free.set(poolId, free.get(poolId)! - estimate);
    }
    return { byRun, byNode: nodes, byPool: pools, freeOfPool: free };
  }
}

const queuedOf = ({ queued }: PlacedPart) => queued;

function count(counts: Map<string, number>, id: string): void {
  counts.set(id, (counts.get(id) ?? 0) + 1);
}
