/** The scheduled tasks as users see them: made, changed, looked at in advance, run by hand. What makes them run is `scheduler.ts`. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Actor } from '../../auth/principal.ts';
import type { ScheduledRunRow, ScheduledTaskRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { lastPointOf } from '../backup-files/record.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import type { TagService } from '../tags/tags.ts';
import type { TaskService, TaskState } from '../tasks/tasks.ts';
import { coming, MOST_COMING, MOST_OCCURRENCES, type Occurrence, past, type Span } from './calendar.ts';
import type { Clock } from './clock.ts';
import {
  type DefinitionInput,
  definitionIn,
  definitionOf,
  dueTimesOf,
  ENTITY_CLASS_OF,
  type EntityClass,
  incremental,
  modeOn,
  retentionRulesOf,
  type ScheduleDefinition,
  windowEndOf,
} from './definition.ts';
import type { KeptFiles } from './kept-files.ts';
import type { WaitReason } from './queue.ts';
import { type PartRecord, partRecord, type RunStatus } from './run-outcome.ts';
import type { Scheduler } from './scheduler.ts';
import { manualStates } from './states.ts';
import type { ScheduleStore } from './store.ts';
import { forecastOf, targets } from './surroundings.ts';

export interface ScheduleRecord extends Omit<ScheduleDefinition, 'entities' | 'tags' | 'nodes'> {
  id: string;
  entity_class: EntityClass;
  entities: string[];
  tags: string[];
  nodes: string[];
  enabled: boolean;
  next_run: string | null;
  last_run: RunRecord | null;
  /** What may surprise: told when it is made, changed and looked at. */
  warnings: string[];
  user: string;
  created: string;
  modified: string;
}

export interface RunRecord {
  id: string;
  /** The task of many parts; null when it did not run. */
  task: string | null;
  due_time: string | null;
  status: RunStatus;
  missed_count: number;
  reason: string;
  window_end: string | null;
  username: string;
  created: string;
  finished: string | null;
}

/** Beside the settings. */
export interface ScheduleUpdate {
  enabled?: boolean;
  /** As it was when somebody looked at what they change now; undefined: whatever it is. */
  modified?: string;
}

export interface Preview {
  runs: { due_time: string; mode: 'full' | 'increment' | null; window_end: string | null }[];
  targets: { id: string; verbose_name: string; estimate: number; manual_states: string[] }[];
  /** Ids that it names and nobody has. */
  missing: string[];
  warnings: string[];
}

export interface RetentionVerdict {
  file: string;
  filename: string;
  domain: { id: string; verbose_name: string };
  newest: string;
  size: number;
  action: 'keep' | 'delete';
  reason: string;
}

export interface QueueRecord {
  position: number;
  run: string;
  scheduled_task: { id: string; verbose_name: string };
  entity: { id: string; verbose_name: string };
  reason: WaitReason;
  not_before: string | null;
}

export interface ScheduleServiceDependencies {
  store: ScheduleStore;
  scheduler: Scheduler;
  clock: Clock;
  inventory: Inventory;
  tags: TagService;
  pools: PoolService;
  tasks: TaskService;
  backupFiles: Pick<BackupFiles, 'get'>;
  keptFiles: KeptFiles;
  /** Tells the stream that a scheduled task has changed. */
  tell: (id: string, action: 'created' | 'changed' | 'removed') => void;
}

const PREVIEWED_RUNS = 20;
const NETWORK_POOLS = ['nfs', 'cifs', 'glusterfs', 'ceph'];
/** The specification's advice for network file systems. */
const NETWORK_PARALLEL = 2;

export class ScheduleService {
  readonly #dependencies: ScheduleServiceDependencies;

  constructor(dependencies: ScheduleServiceDependencies) {
    this.#dependencies = dependencies;
  }

  async list(): Promise<ScheduleRecord[]> {
    const rows = await this.#dependencies.store.tasks();
    const last = await this.#dependencies.store.lastRuns(rows);
    return rows.map(row => this.#record(row, last.get(row.id)));
  }

  /** @throws schedule_not_found */
  async get(id: string): Promise<ScheduleRecord> {
    const row = await this.#row(id);
    return this.#record(row, (await this.#dependencies.store.lastRuns([row])).get(id));
  }

  /** @throws schedule_not_found */
  async definition(id: string): Promise<ScheduleDefinition> {
    return definitionIn(await this.#row(id));
  }

  /**
   * @throws invalid_field, missing_field, conflicting_fields, name_taken, domain_not_found, pool_not_found, node_not_found, tag_not_found,
   *   file_not_found
   */
  async create(input: DefinitionInput, enabled: boolean, user: Actor): Promise<ScheduleRecord> {
    const { clock, store, tell } = this.#dependencies;
    const now = clock.now();
    const definition = await this.#define(input, undefined);
    const row: ScheduledTaskRow = {
      id: newId(),
      verbose_name: definition.verbose_name,
      definition_json: JSON.stringify(definition),
      enabled: Number(enabled),
      next_run: nextRun(definition, enabled, now),
      last_run: null,
      last_success: null,
      last_duration_ms: null,
      user_id: user.id,
      username: user.username,
      created: now.toISOString(),
      modified: now.toISOString(),
    };
    if (!(await store.insertTask(row))) throw taken(definition);
    tell(row.id, 'created');
    return this.get(row.id);
  }

  /** What is not named stays; a run that has begun goes on as it was. @throws as `create`, schedule_not_found, schedule_changed */
  update(id: string, input: DefinitionInput & ScheduleUpdate): Promise<ScheduleRecord> {
    const { scheduler, store, clock, tell } = this.#dependencies;
    // one at a time, and no due time of it is taken between what is read and what is written
    return scheduler.exclusively(id, async () => {
      const { enabled: wanted, modified: known, ...changes } = input;
      const row = await this.#row(id);
      if (known !== undefined && Date.parse(known) !== Date.parse(row.modified))
        throw new VirtkeepError('schedule_changed', { name: row.verbose_name, modified: row.modified });
      const before = definitionIn(row);
      const definition = await this.#define(changes, before);
      const enabled = wanted ?? row.enabled === 1;
      const now = clock.now();
      const sameTimes = enabled && row.enabled === 1 && timingOf(definition) === timingOf(before);
      const columns = {
        verbose_name: definition.verbose_name,
        definition_json: JSON.stringify(definition),
        enabled: Number(enabled),
        // what is due already stays due
        next_run: sameTimes ? row.next_run : nextRun(definition, enabled, now),
        modified: otherThan(row.modified, now),
      };
      if (!(await store.updateTask(id, columns))) throw taken(definition);
      tell(id, 'changed');
      return this.get(id);
    });
  }

  /** Its files stay, and are nobody's then. @throws schedule_not_found, schedule_running */
  remove(id: string): Promise<void> {
    const { store, tell, scheduler } = this.#dependencies;
    // no run of it begins meanwhile
    return scheduler.exclusively(id, async () => {
      const row = await this.#row(id);
      if (await store.isRunning(id)) throw new VirtkeepError('schedule_running', { name: row.verbose_name });
      await store.removeTask(id);
      tell(id, 'removed');
    });
  }

  /** A task with the same settings, which is not enabled. @throws schedule_not_found, name_taken */
  async copy(id: string, name: string | undefined, user: Actor): Promise<ScheduleRecord> {
    const definition = await this.definition(id);
    const verbose_name = name ?? (await this.#freeName(definition.verbose_name));
    return this.create({ ...definition, verbose_name }, false, user);
  }

  async #freeName(name: string): Promise<string> {
    const names = new Set((await this.#dependencies.store.tasks()).map(task => task.verbose_name));
    for (let number = 2; ; number += 1) {
      const candidate = `${name} (${number})`;
      if (!names.has(candidate)) return candidate;
    }
  }

  /** @returns the task of the run @throws schedule_not_found, schedule_running */
  async run(id: string, { id: userId, username }: Actor, taskId: string): Promise<TaskState> {
    await this.#dependencies.scheduler.runNow(await this.#row(id), { id: userId, username }, taskId);
    this.#dependencies.tell(id, 'changed');
    return this.#dependencies.tasks.get(taskId);
  }

  /** The newest first. @throws schedule_not_found */
  async runs(
    id: string,
    page: { limit: number; offset: number },
  ): Promise<{ count: number; runs: (RunRecord & { parts: PartRecord[] })[] }> {
    await this.#row(id);
    const { store } = this.#dependencies;
    const { count, rows } = await store.runsOf(id, page);
    const runs = [];
    for (const row of rows)
      runs.push({ ...runRecord(row), parts: (await store.parts(row.id)).map(partRecord) });
    return { count, runs };
  }

  /** Forgets runs that ended before. */
  prune(before: Date): Promise<number> {
    return this.#dependencies.store.prune(before);
  }

  /** Parts of all runs that wait, in the order in which they come as things are. */
  queue(): QueueRecord[] {
    return this.#dependencies.scheduler.queue().map(({ run, row, reason }, index) => {
      const { verbose_name } = definitionIn(run);
      return {
        position: index + 1,
        run: run.id,
        scheduled_task: { id: run.scheduled_task_id, verbose_name },
        entity: { id: row.entity_id, verbose_name: row.entity_name },
        reason,
        not_before: row.not_before,
      };
    });
  }

  /** What a task will do. @throws schedule_not_found */
  async previewOf(id: string): Promise<Preview> {
    return this.#preview(await this.definition(id), id);
  }

  /** What one with these settings would do. @throws as `create` */
  async preview(input: DefinitionInput): Promise<Preview> {
    return this.#preview(await this.#define({ verbose_name: 'preview', ...input }, undefined), '');
  }

  /** The runs that were, and those that will be, of all tasks; of too many those nearest to now. */
  async calendar({ from, to }: Span): Promise<Occurrence[]> {
    const { store } = this.#dependencies;
    const tasks = await store.tasks();
    const due = coming(tasks, { from, to }, MOST_COMING);
    const runs = await store.newestBetween(new Date(from), new Date(to), MOST_OCCURRENCES - due.length);
    return [...past(tasks, runs.toReversed()), ...due];
  }

  async #estimate(definition: ScheduleDefinition, wish: Parameters<typeof forecastOf>[2]): Promise<number> {
    return Math.round((await forecastOf(this.#dependencies, definition, wish)).estimate);
  }

  async #preview(definition: ScheduleDefinition, taskId: string): Promise<Preview> {
    const { clock, inventory } = this.#dependencies;
    const due = dueTimesOf(definition).following(clock.now().getTime(), PREVIEWED_RUNS);
    const { found, missing } = targets(this.#dependencies, definition);
    const previewed = [];
    for (const { id, name } of found) {
      const domain = inventory.domains.get(id)?.domain;
      const isBackup = definition.action === 'backup';
      previewed.push({
        id,
        verbose_name: name,
        estimate: isBackup
          ? await this.#estimate(definition, { taskId, due: due[0] ?? +clock.now(), domainId: id })
          : 0,
        manual_states:
          domain && deletesManual(definition) ? manualStates(domain).map(state => state.name) : [],
      });
    }
    const runs = due.map(time => {
      const windowEnd = windowEndOf(definition, time);
      return {
        due_time: new Date(time).toISOString(),
        mode: modeOn(definition, time),
        window_end: windowEnd === null ? null : new Date(windowEnd).toISOString(),
      };
    });
    return { runs, targets: previewed, missing, warnings: this.#warnings(definition) };
  }

  /**
   * What the rules will delete after the next backup when that is good, with the reason of each file.
   * @param changes settings that the task does not have yet
   * @throws schedule_not_found; with changes as `create`
   */
  async retentionPreview(id: string, changes?: DefinitionInput): Promise<RetentionVerdict[]> {
    const before = await this.definition(id);
    const definition = changes === undefined ? before : await this.#define(changes, before);
    const { keptFiles, clock, store } = this.#dependencies;
    if (retentionRulesOf(definition) === null) return [];
    const domains = await store.domainsOf(id);
    const now = dueTimesOf(definition).next(+clock.now()) ?? +clock.now();
    const verdicts = [];
    for (const domainId of domains) {
      const wish = { taskId: id, due: now, domainId };
      const coming = await forecastOf(this.#dependencies, definition, wish);
      verdicts.push(...(await keptFiles.verdicts(id, definition, domainId, { now, coming })));
    }
    return verdicts.map(({ file, action, reason }) => ({
      file: file.id,
      filename: file.filename,
      domain: { id: file.domain_id ?? '', verbose_name: file.domain_name ?? '' },
      newest: lastPointOf(file),
      size: file.size,
      action,
      reason,
    }));
  }

  async #define(input: DefinitionInput, before: ScheduleDefinition | undefined): Promise<ScheduleDefinition> {
    const { clock } = this.#dependencies;
    const timeZone = Intl.DateTimeFormat().resolvedOptions().timeZone;
    const definition = definitionOf(input, before, { timeZone, now: clock.now() });
    this.#checkReferences(definition, before);
    await this.#checkBackup(definition, before);
    return definition;
  }

  /** What it names must be there when it is named; what was named before may be gone. */
  #checkReferences(definition: ScheduleDefinition, before: ScheduleDefinition | undefined): void {
    const { inventory, tags } = this.#dependencies;
    const isScan = definition.action === 'scan';
    const fresh = (ids: readonly string[], known: readonly string[] = []) =>
      ids.filter(id => !known.includes(id));
    for (const id of fresh(definition.entities, before?.entities))
      if (isScan) inventory.pool(id);
      else inventory.domain(id);
    for (const id of fresh(definition.nodes, before?.nodes)) inventory.node(id);
    for (const id of fresh(
      [...definition.tags, ...definition.exclude_tags],
      [...(before?.tags ?? []), ...(before?.exclude_tags ?? [])],
    ))
      tags.get(id);
    const { datapool } = definition.options;
    if (datapool !== undefined && datapool !== before?.options.datapool) inventory.pool(datapool);
  }

  /** The backup that is extended is of the one VM that the task is about. */
  async #checkBackup(
    { options: { backup }, entities: [domain] }: ScheduleDefinition,
    before: ScheduleDefinition | undefined,
  ): Promise<void> {
    if (backup === undefined) return;
    if (backup === before?.options.backup && domain === before.entities[0]) return;
    const file = await this.#dependencies.backupFiles.get(backup);
    if (file.domain_id === domain) return;
    const reason = `names ${file.filename}, which is a backup of another VM`;
    throw new VirtkeepError('invalid_field', { field: 'options.backup', reason });
  }

  #warnings(definition: ScheduleDefinition): string[] {
    const { inventory, tags } = this.#dependencies;
    const warnings: string[] = [];
    const { found, missing } = targets(this.#dependencies, definition);
    if (found.length === 0) warnings.push('Nothing matches it at present.');
    if (missing.length > 0)
      warnings.push(`${missing.length} of what it names is gone: ${missing.join(', ')}.`);
    const gone = definition.exclude_tags.filter(id => !tags.isKnown(id));
    if (gone.length > 0)
      warnings.push(`Tags that it excludes are gone, and exclude nothing: ${gone.join(', ')}.`);
    if (definition.action !== 'backup') return warnings;
    const pools = poolsOf(definition, found, inventory);
    const network = pools.filter(pool => NETWORK_POOLS.includes(inventory.pools.get(pool)?.row.type ?? ''));
    const parallel = definition.parallel_limit;
    if (network.length > 0 && (parallel === 0 || parallel > NETWORK_PARALLEL))
      warnings.push(
        `Its backups go to a network file system, where at most ${NETWORK_PARALLEL} at a time are advised: set parallel_limit to ${NETWORK_PARALLEL}.`,
      );
    if (definition.options.compress && incremental(definition))
      warnings.push(
        'Each increment of a compressed backup takes as long as compressing it: compress full backups only.',
      );
    if (growsForEver(definition))
      warnings.push(
        'Each VM has one backup that grows for ever: full_weekdays, increment_limit or keep_states bound it, and the other rules count whole backups.',
      );
    if (deletesManual(definition)) warnings.push(...this.#manualWarnings(definition, found));
    return warnings;
  }

  #manualWarnings(definition: ScheduleDefinition, found: readonly { id: string; name: string }[]): string[] {
    const general = `After ${definition.increment_limit} increments all saved states of a VM are deleted, also those made by hand; keep_manual_states keeps these.`;
    const named = found.flatMap(({ id, name }) => {
      const domain = this.#dependencies.inventory.domains.get(id)?.domain;
      const states = domain ? manualStates(domain).map(state => state.name) : [];
      return states.length === 0 ? [] : [`${name} has such states: ${states.join(', ')}.`];
    });
    return [general, ...named];
  }

  async #row(id: string): Promise<ScheduledTaskRow> {
    const row = await this.#dependencies.store.task(id);
    if (!row) throw new VirtkeepError('schedule_not_found', { id });
    return row;
  }

  #record(row: ScheduledTaskRow, last: ScheduledRunRow | undefined): ScheduleRecord {
    const definition = definitionIn(row);
    return {
      id: row.id,
      ...definition,
      entity_class: ENTITY_CLASS_OF[definition.action],
      enabled: row.enabled === 1,
      next_run: row.enabled === 1 ? row.next_run : null,
      last_run: last === undefined ? null : runRecord(last),
      warnings: [
        ...(row.enabled === 1 && row.next_run === null
          ? ['It is not due any more: its start has passed.']
          : []),
        ...this.#warnings(definition),
      ],
      user: row.username,
      created: row.created,
      modified: row.modified,
    };
  }
}

/** Two changes of one instant differ, too: who looked between them did not see the second one. */
function otherThan(modified: string, now: Date): string {
  const time = now.toISOString();
  return time === modified ? new Date(now.getTime() + 1).toISOString() : time;
}

function nextRun(definition: ScheduleDefinition, enabled: boolean, now: Date): string | null {
  const next = enabled ? dueTimesOf(definition).next(now.getTime() - 1) : null;
  return next === null ? null : new Date(next).toISOString();
}

/** All that decides when it is due. */
function timingOf(definition: ScheduleDefinition): string {
  const { periodicity, every, weekdays, month_day, week, cron, time_zone, start_date } = definition;
  return JSON.stringify([periodicity, every, weekdays, month_day, week, cron, time_zone, start_date]);
}

const taken = ({ verbose_name: name }: ScheduleDefinition) =>
  new VirtkeepError('name_taken', { name, field: 'verbose_name' });

const deletesManual = ({ increment_limit, keep_manual_states }: ScheduleDefinition): boolean =>
  increment_limit > 0 && !keep_manual_states;

/** Nothing begins another archive, and nothing takes restore points out of this one. */
const growsForEver = (definition: ScheduleDefinition): boolean =>
  incremental(definition) &&
  definition.full_weekdays.length === 0 &&
  definition.increment_limit === 0 &&
  definition.keep_states === 0;

function poolsOf(
  { options }: ScheduleDefinition,
  found: readonly { nodeIds: readonly string[] }[],
  inventory: Inventory,
): string[] {
  if (options.datapool !== undefined) return [options.datapool];
  const nodes = new Set(found.flatMap(({ nodeIds }) => nodeIds));
  return [...new Set([...nodes].flatMap(id => inventory.basePool(id) ?? []))];
}

export function runRecord(row: ScheduledRunRow): RunRecord {
  const ran = !['SKIPPED', 'MISSED'].includes(row.status);
  return {
    id: row.id,
    task: ran ? row.id : null,
    due_time: row.due_time,
    status: row.status as RunStatus,
    missed_count: row.missed_count,
    reason: row.reason,
    window_end: row.window_end,
    username: row.username,
    created: row.created,
    finished: row.finished,
  };
}
