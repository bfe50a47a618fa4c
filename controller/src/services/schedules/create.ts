/** Puts the parts of the scheduled tasks together. */
import type { Logger } from '@virtkeep/shared/log';
import type { ExtensionChooser } from '../backups/extension.ts';
import type { LibraryService } from '../backups/library.ts';
import type { EventService } from '../journal/events.ts';
import type { MultiTasks } from '../tasks/multi-tasks.ts';
import type { TaskService } from '../tasks/tasks.ts';
import { ScheduleCoverage } from './coverage.ts';
import { KeptFiles } from './kept-files.ts';
import { type NoticeDependencies, Notices } from './notices.ts';
import { Scheduler } from './scheduler.ts';
import { ScheduleService, type ScheduleServiceDependencies } from './schedules.ts';
import { ScheduleStore } from './store.ts';
import { isAbout, type SurroundingsDependencies, surroundingsOf, targets } from './surroundings.ts';

export interface ScheduleDependencies
  extends Omit<SurroundingsDependencies, 'store' | 'keptFiles' | 'ended' | 'notRun'>,
    Pick<NoticeDependencies, 'notifications' | 'protection' | 'maxAgeDays' | 'dailyAt'>,
    Pick<ScheduleServiceDependencies, 'tell'> {
  tasks: TaskService;
  events: EventService;
  multiTasks: MultiTasks;
  extensions: ExtensionChooser;
  library: Pick<LibraryService, 'presence'>;
  draining: AbortSignal;
  log: Logger;
  /** How long after a due time its backup may take before the VM counts as late. */
  graceMs: () => number;
}

/** Between two ticks: one with nothing due is one look at an index. */
const TICK_MS = 5_000;

export interface Schedules {
  coverage: ScheduleCoverage;
  scheduler: Scheduler;
  schedules: ScheduleService;
  ticker: Ticker;
}

export function createSchedules(dependencies: ScheduleDependencies): Schedules {
  const { db, clock, tasks, inventory, backupFiles, extensions, tags, pools, tell } = dependencies;
  const log = dependencies.log.child({ part: 'schedules' });
  const store = new ScheduleStore(db);
  const keptFiles = new KeptFiles({
    store,
    backupFiles,
    inventory,
    extensions,
    presence: (files, signal) => dependencies.library.presence(files, signal),
    isAbout: (definition, domainId) => isAbout({ inventory, tags }, definition, domainId),
    draining: dependencies.draining,
  });
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  const notices = new Notices({ ...dependencies, timeZone, log });
  const surroundings = surroundingsOf({
    ...dependencies,
    store,
    keptFiles,
    ended: (run, parts) => notices.ended(run, parts),
    notRun: (run, former, db) => notices.notRun(run, former, db),
  });
  const scheduler = new Scheduler({
    ...dependencies,
    store,
    surroundings,
    log,
  });
  const coverage = new ScheduleCoverage({
    store,
    clock,
    graceMs: dependencies.graceMs,
    log,
    queue: () => scheduler.queueMeasures(),
    targets: definition => targets({ inventory, tags }, definition),
  });
  const schedules = new ScheduleService({
    store,
    scheduler,
    clock,
    inventory,
    tags,
    pools,
    tasks,
    backupFiles,
    keptFiles,
    tell: (id, action) => {
      coverage.changed();
      tell(id, action);
    },
  });
  return { coverage, scheduler, schedules, ticker: new Ticker({ scheduler, coverage, notices, log }) };
}

interface Ticked {
  scheduler: Pick<Scheduler, 'tick' | 'stop'>;
  coverage: Pick<ScheduleCoverage, 'refresh'>;
  notices: Pick<Notices, 'tick'>;
  log: Logger;
}

/** What makes time pass: a timer that no clock is asked for, so that one that is wrong, or is put back for the winter, stops nothing. */
export class Ticker {
  readonly #ticked: Ticked;
  #timer: NodeJS.Timeout | undefined;
  #ticking: Promise<void> | undefined;
  #isStopped = false;

  constructor(ticked: Ticked) {
    this.#ticked = ticked;
  }

  /** What is due is done. Nobody is told of VMs by what tasks promised before: the next tick tries again. Never throws. */
  async tick(): Promise<void> {
    const { scheduler, coverage, notices, log } = this.#ticked;
    await scheduler.tick();
    try {
      await coverage.refresh();
    } catch (error) {
      log.error('what the scheduled tasks promise is not known, and nobody is told of late VMs', { error });
      return;
    }
    await notices.tick();
  }

  /** The first tick comes a while later, and each one as long after the end of the one before. */
  start(): void {
    this.#timer = setTimeout(() => {
      this.#ticking = this.tick()
        .catch((error: unknown) => this.#ticked.log.error('a tick failed', { error }))
        .then(() => {
          if (!this.#isStopped) this.start();
        });
    }, TICK_MS);
  }

  /** Nothing begins any more; what is being written is waited for. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    await this.#ticked.scheduler.stop();
    await this.#ticking;
  }
}
