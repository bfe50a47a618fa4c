/** What the scheduler needs of the rest of the controller; `surroundings.ts` has the answers of a real one. */
import type { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type { Database, ScheduledPartRow, ScheduledRunRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import type { MultiTasks } from '../tasks/multi-tasks.ts';
import type { TaskService } from '../tasks/tasks.ts';
import type { Clock } from './clock.ts';
import type { ScheduleDefinition } from './definition.ts';
import type { DueFacts } from './due-runs.ts';
import type { Limits, Load } from './queue.ts';
import type { OpenPart, Step } from './steps/step.ts';
import type { ScheduleStore } from './store.ts';

export interface SchedulerDependencies {
  store: ScheduleStore;
  clock: Clock;
  /** How much time has passed since any instant, in ms, whatever the clock is put to meanwhile. */
  elapsedMs: () => number;
  tasks: TaskService;
  multiTasks: MultiTasks;
  events: EventService;
  surroundings: Surroundings;
  /** Fires when the controller begins to stop: nothing is begun any more. */
  draining: AbortSignal;
  log: Logger;
}

export interface Surroundings {
  /** What a task of this definition is about, now. */
  targets(definition: ScheduleDefinition): Pick<DueFacts, 'targets' | 'entityClass'>;
  /** Where a part would run, and what it would take. */
  place(part: OpenPart): Promise<Place>;
  decide(part: OpenPart): Promise<Decision>;
  /** What others do on the nodes and pools, and what is free there. */
  load(ownTasks: ReadonlySet<string>): Promise<Pick<Load, 'byNode' | 'byPool' | 'freeOfPool'>>;
  /**
   * Has the nodes say how much is free where something may be deleted for these parts; waits for them for seconds at most.
   * @returns whether any was asked, so that {@link load} may tell something else now
   */
  askFree(parts: readonly Placed[]): Promise<boolean>;
  /** The steps of an action, in order. */
  steps: Readonly<Record<ScheduleDefinition['action'], readonly (readonly [name: string, step: Step])[]>>;
  limits(): Limits;
  /** Whether work may begin on a node now; null: on any. */
  isReady(nodeId: string | null): boolean;
  /** A run has an outcome; called before that is written, and again when it could not be. */
  ended(run: ScheduledRunRow, parts: readonly ScheduledPartRow[]): Promise<void>;
  /**
   * A run did not happen.
   * @param former id of the run that goes on, when it was skipped for that
   * @param db the transaction that writes so
   */
  notRun(run: ScheduledRunRow, former: string | undefined, db: Database): Promise<void>;
}

/** A part that waits. */
export interface Placed {
  definition: ScheduleDefinition;
  queued: Pick<Place, 'nodeId' | 'poolId'>;
}

export interface Place {
  nodeId: string | null;
  poolId: string | null;
  /** Bytes that it is expected to take of the pool. */
  estimate: number;
  /** It cannot be done: what it is about is gone. */
  gone?: VirtkeepError;
}

/** What is decided right before a part begins. */
export interface Decision {
  mode: string;
  /** The file that is to be extended, when the task names it. */
  extend: string | null;
  notes: string[];
}
