/**
 * The parts without an outcome: those that wait for their turn, and those that run. What becomes of one is written first, and then so here.
 * Who changes a part has the turn of its key.
 */
import type { VirtkeepError } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { ScheduledPartRow, ScheduledRunRow } from '../../store/schema.ts';
import { taskError } from '../tasks/record.ts';
import type { ScheduleDefinition } from './definition.ts';
import type { Place, SchedulerDependencies } from './needs.ts';
import { PartMap } from './part-map.ts';
import type { QueuedPart, QueuedRun } from './queue.ts';
import type { OpenPart } from './steps/step.ts';
import { keyOf, type PartKey } from './store.ts';

export interface OpenRun {
  row: ScheduledRunRow;
  /** As it was when the run began. */
  definition: ScheduleDefinition;
  queued: QueuedRun;
}

/**
 * With what decides when it begins, and what it takes of its node and pool when it runs. Which node, pool and estimate count: while it waits
 * those of `queued`, as things were when it came (its row has those of an attempt before, or none); while it runs those of its row, which
 * `queued` repeats.
 */
export interface PlacedPart extends OpenPart {
  queued: QueuedPart;
}

/** Hears what becomes of the parts of a run; does not keep them waiting. */
export interface PartsListener {
  /** One that ran waits again. */
  waits(runId: string): void;
  /** One has its outcome. */
  ended(runId: string): void;
}

export class OpenParts {
  readonly #dependencies: Pick<SchedulerDependencies, 'store' | 'clock' | 'surroundings'>;
  readonly #listener: PartsListener;
  readonly #waiting = new PartMap();
  readonly #running = new PartMap();
  readonly #turns = new KeyedQueue();

  constructor(
    dependencies: Pick<SchedulerDependencies, 'store' | 'clock' | 'surroundings'>,
    listener: PartsListener,
  ) {
    this.#dependencies = dependencies;
    this.#listener = listener;
  }

  get waiting(): Omit<PartMap, 'set' | 'delete'> {
    return this.#waiting;
  }

  get running(): Omit<PartMap, 'set' | 'delete'> {
    return this.#running;
  }

  /** One word at a time on each part. */
  inTurn<T>(key: string, work: () => Promise<T>): Promise<T> {
    return this.#turns.run(key, work);
  }

  /** Takes over what is written of a part, unless it is known. */
  async adopt(partKey: PartKey, run: OpenRun): Promise<void> {
    const key = keyOf(partKey);
    const isKnown = () => this.#waiting.has(key) || this.#running.has(key);
    // its turn may be that of a call to a node that hangs
    if (isKnown()) return;
    await this.inTurn(key, async () => {
      if (isKnown()) return;
      // what was read before this turn may have its outcome by now
      const row = await this.#dependencies.store.part(partKey);
      if (row !== undefined) await this.add(row, run);
    });
  }

  /** One that is not known yet, as it is written; nothing when it has its outcome. */
  async add(row: ScheduledPartRow, run: OpenRun): Promise<void> {
    const part = { row, run: run.row, definition: run.definition };
    if (row.status === 'WAITING') await this.#wait(part, run.queued);
    if (row.status === 'RUNNING')
      this.#running.set({ ...part, queued: queuedPart(row, run.queued, placeOf(row)) });
  }

  async #wait({ row, run, definition }: OpenPart, queuedRun: QueuedRun): Promise<void> {
    const place = await this.#dependencies.surroundings.place({ row, run, definition });
    this.#waiting.set({ row, run, definition, queued: queuedPart(row, queuedRun, place) });
  }

  /** One that waited runs. @param columns what is to be written of it, with its place */
  async run(part: PlacedPart, columns: Partial<ScheduledPartRow>): Promise<void> {
    const row = { ...part.row, ...columns };
    await this.#dependencies.store.updatePart(row, columns);
    this.#waiting.delete(part.queued.key);
    this.#running.set({ ...part, row, queued: queuedPart(row, part.queued.run, placeOf(row)) });
  }

  async write(key: PartKey, columns: Partial<ScheduledPartRow>): Promise<void> {
    await this.#dependencies.store.updatePart(key, columns);
    const running = this.#running.get(keyOf(key));
    if (!running) return;
    running.row = { ...running.row, ...columns };
    running.queued = queuedPart(running.row, running.queued.run, placeOf(running.row));
  }

  /** Something that its users are to know of it. */
  async note(row: ScheduledPartRow, text: string): Promise<void> {
    const current = this.#running.get(keyOf(row))?.row ?? row;
    const notes = [...(JSON.parse(current.notes_json) as string[]), text];
    await this.write(row, { notes_json: JSON.stringify(notes) });
  }

  /** One that ran is to begin once more. @param notBefore ms since 1970 */
  async waitAgain({ row }: OpenPart, notBefore: number): Promise<void> {
    await this.write(row, {
      status: 'WAITING',
      step: '',
      task_id: null,
      subject: null,
      attempt: row.attempt + 1,
      not_before: new Date(notBefore).toISOString(),
    });
    const again = this.#running.get(keyOf(row))!;
    this.#running.delete(keyOf(row));
    await this.#wait(again, again.queued.run);
    this.#listener.waits(row.run_id);
  }

  /** Gives a part its outcome. */
  close(row: ScheduledPartRow, status: string, error: VirtkeepError): Promise<void> {
    return this.#end(row, { status, error_json: JSON.stringify(taskError(error)) });
  }

  /** Its steps are done: one that the backup is good without may have failed, and has left its error. */
  succeed(row: ScheduledPartRow): Promise<void> {
    const { error_json } = this.#running.get(keyOf(row))?.row ?? row;
    return this.#end(row, { status: error_json === null ? 'SUCCESS' : 'PARTIAL' });
  }

  async #end(row: ScheduledPartRow, columns: Partial<ScheduledPartRow>): Promise<void> {
    const { store, clock } = this.#dependencies;
    await store.updatePart(row, { ...columns, finished: clock.now().toISOString() });
    this.#waiting.delete(keyOf(row));
    this.#running.delete(keyOf(row));
    this.#listener.ended(row.run_id);
  }

  /** Gives all that wait of a run the same outcome. */
  async closeWaiting(runId: string, status: string, error: VirtkeepError): Promise<void> {
    for (const key of this.#waiting.keysOf(runId))
      await this.inTurn(key, async () => {
        const part = this.#waiting.get(key);
        if (part) await this.close(part.row, status, error);
      });
  }

  /** The run is over, or gone with its task. */
  forget(runId: string): void {
    for (const parts of [this.#waiting, this.#running])
      for (const key of parts.keysOf(runId)) parts.delete(key);
  }
}

const placeOf = ({ node_id, pool_id, estimate }: ScheduledPartRow): Place => ({
  nodeId: node_id,
  poolId: pool_id,
  estimate,
});

const queuedPart = (
  row: ScheduledPartRow,
  run: QueuedRun,
  { nodeId, poolId, estimate }: Place,
): QueuedPart => ({
  key: keyOf(row),
  run,
  nodeId,
  poolId,
  estimate,
  notBefore: row.not_before === null ? 0 : Date.parse(row.not_before),
});
