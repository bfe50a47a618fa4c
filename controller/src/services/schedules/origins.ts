/** Which scheduled task an archive is of: its rules let go what it made, and nothing else. */
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { archiveIdOf } from '../backup-files/identity.ts';
import type { TaskState } from '../tasks/tasks.ts';
import type { Clock } from './clock.ts';
import type { ScheduleStore } from './store.ts';

export interface OriginsDependencies {
  store: Pick<ScheduleStore, 'run' | 'recordOrigin'>;
  clock: Clock;
}

export class Origins {
  readonly #dependencies: OriginsDependencies;

  constructor(dependencies: OriginsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * A node tells what a backup has made. That the backup is a part's says the run, which is its task's parent: the part may have been given up
   * meanwhile, and its task have failed. May be called again for the same.
   */
  async made(file: BackupFile, { row, entities }: TaskState): Promise<void> {
    // what has more than one restore point was made before, perhaps by somebody else
    if (row.parent === null || file.states.length > 1) return;
    const { store, clock } = this.#dependencies;
    const run = await store.run(row.parent);
    const domain = entities.find(entity => entity.class === 'domain');
    if (run === undefined || domain === undefined) return;
    await store.recordOrigin({
      archiveId: archiveIdOf(file),
      taskId: run.scheduled_task_id,
      domainId: domain.id,
      now: clock.now(),
    });
  }
}
