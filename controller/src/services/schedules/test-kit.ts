/** A scheduler on a real database, with VMs that are only names and backups that end when a test says so. */
import { type ErrorKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import type {
  KyselyPlugin,
  PluginTransformQueryArgs,
  PluginTransformResultArgs,
  QueryResult,
  RootOperationNode,
  UnknownRow,
} from 'kysely';
import type { Actor } from '../../auth/principal.ts';
import type { Database, FileRow, ScheduledTaskRow } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { ChangeFeed } from '../journal/changes.ts';
import { EventService } from '../journal/events.ts';
import { MultiTasks } from '../tasks/multi-tasks.ts';
import { TaskService, type TaskState } from '../tasks/tasks.ts';
import { type DefinitionInput, definitionOf, dueTimesOf } from './definition.ts';
import type { Surroundings } from './needs.ts';
import type { Limits } from './queue.ts';
import { Scheduler } from './scheduler.ts';
import { Deletions } from './steps/deletions.ts';
import type { EndedTask, OpenPart, Step, StepEnd } from './steps/step.ts';
import { ScheduleStore } from './store.ts';
import { targetsOf } from './targets.ts';

const quiet = () => SILENT;
export const SILENT = {
  error: quiet,
  warn: quiet,
  info: quiet,
  debug: quiet,
  child: quiet,
} as unknown as Logger;

export const OWNER = { id: 'u1', username: 'owner' };

/** A step with one task; a test ends it, unless it ends by itself. */
export class ScriptedStep implements Step {
  readonly #world: ScheduleWorld;
  readonly #name: string;

  constructor(world: ScheduleWorld, name: string) {
    this.#world = world;
    this.#name = name;
  }

  async plan(): Promise<Record<string, never>> {
    return {};
  }

  async begin({ row }: OpenPart, user: Actor, taskId: string): Promise<void> {
    this.#world.begun.push({ name: this.#name, entity: row.entity_id, taskId });
    const refusal = this.#world.refusals.get(row.entity_id);
    if (refusal !== undefined) throw new VirtkeepError(refusal);
    await this.#world.tasks.create({
      id: taskId,
      name: this.#name,
      verboseName: `${this.#name} ${row.entity_name}`,
      user,
      entities: [{ id: row.entity_id, class: 'domain' }],
    });
    if (this.#world.endsAtOnce) await this.#world.tasks.finish(taskId, { status: 'SUCCESS' });
  }

  async ended(_part: OpenPart, { status, error }: EndedTask): Promise<StepEnd> {
    if (status === 'SUCCESS') return { go: 'next', columns: { file_id: 'made' } };
    return { go: 'fail', error: error ?? new VirtkeepError('canceled') };
  }
}

/** Lets a controller die at a write to its database: that one and all after it do not happen. */
class Mortality implements KyselyPlugin {
  writesLeft = Number.POSITIVE_INFINITY;

  transformQuery({ node }: PluginTransformQueryArgs): RootOperationNode {
    if (node.kind !== 'SelectQueryNode') this.writesLeft -= 1;
    if (this.writesLeft < 0) throw new Error('the controller is dead');
    return node;
  }

  async transformResult({ result }: PluginTransformResultArgs): Promise<QueryResult<UnknownRow>> {
    return result;
  }
}

export class ScheduleWorld {
  /** What lasts. */
  readonly disk: Database;
  /** The same, as the running controller has it. */
  db: Database;
  mortality = new Mortality();
  /** Those of a backup, in order. */
  backupSteps: [name: string, step: Step][] = [];
  readonly files = new Set<string>();
  readonly removed: string[] = [];
  store!: ScheduleStore;
  tasks!: TaskService;
  scheduler!: Scheduler;
  readonly begun: { name: string; entity: string; taskId: string }[] = [];
  /** VMs whose work is refused. */
  readonly refusals = new Map<string, ErrorKey>();
  readonly vms: string[] = ['a', 'b', 'c'];
  readonly nodeOf = new Map<string, string>();
  /** Nodes that are not connected. */
  readonly away = new Set<string>();
  readonly reported: string[] = [];
  readonly reportedReasons: string[] = [];
  readonly toldNotRun: { reason: string; due: string | null; former: string | undefined }[] = [];
  refusesToTell = false;
  limits: Limits = { perNode: 0, perPool: 0 };
  endsAtOnce = false;
  readonly draining = new AbortController();
  now: number;
  /** What has passed while `now` moved forward, but for jumps, and what `now` was then. */
  #elapsed = { ms: 0, at: 0 };

  private constructor(disk: Database, now: number) {
    this.disk = disk;
    this.now = now;
    this.#elapsed.at = now;
    this.db = disk;
    this.#start();
  }

  static async open(now: string): Promise<ScheduleWorld> {
    return new ScheduleWorld(await openTestDatabase(), Date.parse(now));
  }

  /** As after a crash of the controller: another one on the same database. */
  async restart(): Promise<void> {
    await this.scheduler.stop().catch(() => {});
    this.#start();
    await this.scheduler.load();
    await this.scheduler.resume();
    await this.scheduler.settled();
  }

  #start(): void {
    this.mortality = new Mortality();
    this.db = this.disk.withPlugin(this.mortality);
    const events = new EventService(this.db, new ChangeFeed());
    this.store = new ScheduleStore(this.db);
    this.tasks = new TaskService(this.db, new ChangeFeed(), events);
    const multiTasks = new MultiTasks(this.tasks, SILENT);
    this.tasks.setCanceller(async () => {});
    this.scheduler = new Scheduler({
      store: this.store,
      clock: { now: () => new Date(this.now) },
      elapsedMs: () => this.#elapsedMs(),
      tasks: this.tasks,
      multiTasks,
      events,
      surroundings: this.#surroundings(),
      draining: this.draining.signal,
      log: SILENT,
    });
  }

  #surroundings(): Surroundings {
    const backup = new ScriptedStep(this, 'backup');
    this.backupSteps = [
      ['backup', backup],
      ['retention', this.#retention()],
    ];
    return {
      steps: {
        backup: this.backupSteps,
        verify: [['verify', backup]],
        scan: [['scan', backup]],
      },
      targets: definition => ({
        entityClass: 'domain',
        targets: () =>
          targetsOf(definition, {
            candidates: this.vms.map(id => ({
              id,
              name: id,
              nodeIds: [this.nodeOf.get(id) ?? 'n1'],
              tags: [],
            })),
            hasTag: () => true,
            hasNode: () => true,
          }),
      }),
      place: async ({ row: { entity_id } }) =>
        this.vms.includes(entity_id)
          ? { nodeId: this.nodeOf.get(entity_id) ?? 'n1', poolId: null, estimate: 0 }
          : {
              nodeId: null,
              poolId: null,
              estimate: 0,
              gone: new VirtkeepError('domain_not_found', { id: entity_id }),
            },
      decide: async () => ({ mode: 'full', extend: null, notes: [] }),
      load: async () => ({ byNode: new Map(), byPool: new Map(), freeOfPool: new Map() }),
      askFree: async () => false,
      limits: () => this.limits,
      isReady: nodeId => !this.away.has(nodeId ?? ''),
      ended: async ({ id, reason }) => {
        this.reported.push(id);
        if (reason !== '') this.reportedReasons.push(reason);
      },
      notRun: async ({ reason, due_time: due }, former) => {
        if (this.refusesToTell) throw new Error('nobody can be told');
        this.toldNotRun.push({ reason, due, former });
      },
    };
  }

  /** Deletes the files that are there, each as a task that ends when a test says so. */
  #retention(): Deletions {
    const rowOf = (id: string) => ({
      id,
      filename: id,
      domain_id: id.split('-')[0],
      size: 1,
      record_json: '{}',
    });
    return new Deletions({
      store: this.store,
      now: () => new Date(this.now),
      doomed: async ({ row }) =>
        [...this.files]
          .filter(id => id.startsWith(`${row.entity_id}-`))
          .map(id => ({ file: rowOf(id) as FileRow, reason: 'too_old' })),
      fileActions: {
        remove: async (id, user, taskId) => {
          const entities = [{ id, class: 'file' }];
          const task = await this.tasks.create({
            id: taskId,
            name: 'file_remove',
            verboseName: id,
            user,
            entities,
          });
          if (this.endsAtOnce) await this.nodeEnds(task);
          return task;
        },
      },
    });
  }

  /** What a node does of a task that it was told of, whatever becomes of the controller meanwhile. */
  async nodeEnds({ row, entities }: TaskState): Promise<void> {
    const [entity] = entities;
    if (row.name === 'file_remove' && this.files.delete(entity!.id)) this.removed.push(entity!.id);
    await this.tasks.finish(row.id, { status: 'SUCCESS' });
  }

  async add(input: DefinitionInput): Promise<ScheduledTaskRow> {
    const context = { timeZone: 'UTC', now: new Date(this.now) };
    const definition = definitionOf(
      { verbose_name: `task ${Math.random()}`, all: true, ...input },
      undefined,
      context,
    );
    const next = dueTimesOf(definition).next(this.now - 1);
    const now = new Date(this.now).toISOString();
    const row: ScheduledTaskRow = {
      id: crypto.randomUUID(),
      verbose_name: definition.verbose_name,
      definition_json: JSON.stringify(definition),
      enabled: 1,
      next_run: next === null ? null : new Date(next).toISOString(),
      last_run: null,
      last_success: null,
      last_duration_ms: null,
      user_id: OWNER.id,
      username: OWNER.username,
      created: now,
      modified: now,
    };
    await this.store.insertTask(row);
    return row;
  }

  /** One tick, and all that follows from it. */
  async tick(now?: string | number): Promise<void> {
    if (now !== undefined) this.now = typeof now === 'string' ? Date.parse(now) : now;
    await this.scheduler.tick();
    await this.scheduler.settled();
  }

  /** The same, and the clock is put to that time: nothing has passed. */
  async jump(now: string): Promise<void> {
    this.#elapsed = { ms: this.#elapsedMs(), at: Date.parse(now) };
    await this.tick(now);
  }

  #elapsedMs(): number {
    const { ms, at } = this.#elapsed;
    this.#elapsed = { ms: ms + Math.max(0, this.now - at), at: this.now };
    return this.#elapsed.ms;
  }

  /** Gives the running tasks of these VMs an outcome. */
  async end(entity: string, error?: ErrorKey): Promise<void> {
    const { taskId } = this.begun.findLast(one => one.entity === entity)!;
    await this.tasks.finish(
      taskId,
      error === undefined ? { status: 'SUCCESS' } : { status: 'FAILED', error: new VirtkeepError(error) },
    );
    await this.scheduler.settled();
  }

  async runs(task: ScheduledTaskRow): Promise<{ due: string | null; status: string; missed: number }[]> {
    const { rows } = await this.store.runsOf(task.id, { limit: 10_000, offset: 0 });
    return rows.map(row => ({ due: row.due_time, status: row.status, missed: row.missed_count }));
  }

  async parts(task: ScheduledTaskRow): Promise<Record<string, string>> {
    const { rows } = await this.store.runsOf(task.id, { limit: 1, offset: 0 });
    const parts = await this.store.parts(rows[0]!.id);
    return Object.fromEntries(parts.map(part => [part.entity_name, part.status]));
  }

  async close(): Promise<void> {
    await this.scheduler.stop();
    await this.disk.destroy();
  }
}
