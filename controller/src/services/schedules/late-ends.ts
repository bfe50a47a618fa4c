/** Tasks that end well after their part was given up, since their node had stayed away: what was made is the scheduled task's all the same. */
import type { ScheduledPartRow } from '../../store/schema.ts';
import type { TaskState } from '../tasks/tasks.ts';
import type { Behind } from './behind.ts';
import { definitionIn } from './definition.ts';
import type { SchedulerDependencies } from './needs.ts';
import type { OpenParts } from './open-parts.ts';
import { endedTask, isGood } from './steps/step.ts';
import { keyOf } from './store.ts';

export interface LateEndsDependencies
  extends Pick<SchedulerDependencies, 'store' | 'tasks' | 'surroundings'> {
  parts: OpenParts;
  behind: Behind;
}

export class LateEnds {
  readonly #dependencies: LateEndsDependencies;

  constructor(dependencies: LateEndsDependencies) {
    this.#dependencies = dependencies;
    const { tasks, behind } = dependencies;
    tasks.onEnd(async task => {
      const { parent } = task.row;
      if (parent !== null && isGood(endedTask(task)))
        behind.run('take a late end of', parent, () => this.#look(task, parent));
    });
  }

  /** After a start: the controller may have died between an end and what follows from it. */
  async resume(): Promise<void> {
    const { store, tasks } = this.#dependencies;
    for (const row of await store.failedPartsOfGoodTasks()) {
      const task = await tasks.find(row.task_id!);
      if (task !== undefined) await this.#take(row, task);
    }
  }

  async #look(task: TaskState, runId: string): Promise<void> {
    const { store, parts } = this.#dependencies;
    const found = await store.partOfTask(runId, task.row.id);
    if (found === undefined) return;
    // who gives it up has its turn: afterwards it is written as failed, or its step takes the end
    await parts.inTurn(keyOf(found), async () => {
      const row = await store.part(found);
      if (row?.status === 'FAILED' && row.task_id === task.row.id) await this.#take(row, task);
    });
  }

  async #take(row: ScheduledPartRow, task: TaskState): Promise<void> {
    const { store, surroundings } = this.#dependencies;
    const run = await store.run(row.run_id);
    if (run === undefined) return;
    const part = { row, run, definition: definitionIn(run) };
    const found = surroundings.steps[part.definition.action].find(([name]) => name === row.step);
    await found?.[1].endedLate?.(part, endedTask(task));
  }
}
