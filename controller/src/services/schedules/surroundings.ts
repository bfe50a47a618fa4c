/** What the scheduler needs of the rest of the controller: what there is, where it is, what it takes, and how it is done. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Database, FileRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { detailsOf } from '../backup-files/record.ts';
import type { BackupService } from '../backups/backups.ts';
import type { FileActionService } from '../backups/file-actions.ts';
import type { SnapshotService } from '../domains/snapshots.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { PoolService } from '../pools/pools.ts';
import { isUsable } from '../pools/record.ts';
import type { TagService } from '../tags/tags.ts';
import type { TaskService } from '../tasks/tasks.ts';
import type { Clock } from './clock.ts';
import { ENTITY_CLASS_OF, incremental, type ScheduleDefinition, weekdayAt } from './definition.ts';
import type { KeptFiles } from './kept-files.ts';
import type { Decision, Place, Surroundings } from './needs.ts';
import type { Limits } from './queue.ts';
import { isLimitReached } from './states.ts';
import { BackupStep } from './steps/backup-step.ts';
import { Deletions } from './steps/deletions.ts';
import { ScanStep } from './steps/scan-step.ts';
import { BY_LIMIT, StatesStep } from './steps/states-step.ts';
import { type ArchivesOf, isOwn, type OpenPart } from './steps/step.ts';
import { TrimStep } from './steps/trim-step.ts';
import { VerifyStep } from './steps/verify-step.ts';
import { keyOf, type PartInPool, type ScheduleStore } from './store.ts';
import { type Candidate, foundOf, type Targets, targetsOf } from './targets.ts';

export interface SurroundingsDependencies {
  db: Database;
  store: ScheduleStore;
  tasks: Pick<TaskService, 'progressOf'>;
  clock: Clock;
  /** Ms that have passed since some instant, whatever the clock is put to. */
  elapsedMs: () => number;
  inventory: Inventory;
  tags: TagService;
  pools: PoolService;
  backups: BackupService;
  backupFiles: BackupFiles;
  snapshots: SnapshotService;
  fileActions: FileActionService;
  keptFiles: KeptFiles;
  limits: () => Limits;
  isReady: (nodeId: string) => boolean;
  ended: Surroundings['ended'];
  notRun: Surroundings['notRun'];
}

/** A new archive is begun since the one before holds as many restore points as it may. */
const BY_RULE = 'full_by_rule';
/** Backups grow. */
const ESTIMATE_MARGIN = 1.1;
/** So old may be what a node has told of its free space when parts begin: they are many. */
const FREE_MAX_AGE_MS = 2_000;
/** So long a file system may take to give back what was deleted: ZFS, btrfs and some network file systems do it afterwards. */
const GIVEN_BACK_MS = 30_000;
/** They take space and time on a node, whoever began them. */
const HEAVY_TASKS = ['domain_backup', 'domain_restore'];

export function surroundingsOf(dependencies: SurroundingsDependencies): Surroundings {
  const { store, clock, backups, backupFiles, snapshots, fileActions, keptFiles, pools, inventory } =
    dependencies;
  const now = () => clock.now();
  const nodeName = (id: string | null) => inventory.nodes.get(id ?? '')?.row.verbose_name ?? '';
  const poolName = (id: string | null) => inventory.pools.get(id ?? '')?.row.verbose_name ?? '';
  const archivesOf = archivesIn(store);
  const states = new StatesStep({ inventory, backupFiles, snapshots, archivesOf });
  const retention = new Deletions({
    store,
    fileActions,
    now,
    doomed: ({ row, run, definition }) =>
      keptFiles.doomed(run.scheduled_task_id, definition, row.entity_id, {
        now: +now(),
        justMade: row.file_id,
      }),
  });
  const removals = new Removals(dependencies);
  const doomed = (part: OpenPart) => inTheWay(dependencies, part, removals);
  const space = new Deletions({ store, fileActions, now, doomed, asksNode: true });
  const verify = new VerifyStep({ backupFiles, fileActions, inventory });
  return {
    steps: {
      backup: [
        ['clear', states],
        ['space', space],
        ['backup', new BackupStep({ backups, backupFiles, nodeName, poolName, archivesOf })],
        ['verify', verify],
        ['limit', states],
        ['retention', retention],
        ['trim', new TrimStep({ backupFiles, fileActions, archivesOf })],
      ],
      verify: [['verify', verify]],
      scan: [['scan', new ScanStep(pools)]],
    },
    targets: definition => ({
      entityClass: ENTITY_CLASS_OF[definition.action],
      targets: () => targets(dependencies, definition),
    }),
    place: part => placeOf(dependencies, part),
    decide: part => decide(dependencies, part),
    load: own => load(dependencies, own),
    askFree: parts => askFree(dependencies, parts),
    limits: dependencies.limits,
    isReady: nodeId => nodeId === null || dependencies.isReady(nodeId),
    ended: dependencies.ended,
    notRun: dependencies.notRun,
  };
}

const archivesIn =
  (store: Pick<ScheduleStore, 'archivesOf'>): ArchivesOf =>
  (taskId, domainId) =>
    store.archivesOf(taskId, domainId);

/** What a task is about, now. */
export function targets(
  { inventory, tags }: Pick<SurroundingsDependencies, 'inventory' | 'tags'>,
  definition: ScheduleDefinition,
): Targets {
  const { action, all, entities, tags: chosenTags, nodes } = definition;
  // most tasks name what they are about: then nothing else is looked at
  const named = !all && chosenTags.length === 0 && nodes.length === 0 ? entities : undefined;
  const chosen = <T>(things: ReadonlyMap<string, T>): T[] =>
    named === undefined ? [...things.values()] : named.flatMap(id => things.get(id) ?? []);
  const pools = () =>
    chosen(inventory.pools)
      .filter(({ views }) => views.size > 0)
      .map(({ row, views }) => candidateOf(tags, row.id, row.verbose_name, [...views.keys()]));
  const domains = () =>
    chosen(inventory.domains).map(({ id, name, nodeId }) => candidateOf(tags, id, name, [nodeId]));
  return targetsOf(definition, {
    candidates: action === 'scan' ? pools() : domains(),
    hasTag: id => tags.isKnown(id),
    hasNode: id => inventory.nodes.has(id),
  });
}

const candidateOf = (
  tags: SurroundingsDependencies['tags'],
  id: string,
  name: string,
  nodeIds: string[],
): Candidate => ({ id, name, nodeIds, tags: tags.borneBy(id).map(tag => tag.id) });

/** Whether the next run of a task is about a VM. */
export function isAbout(
  { inventory, tags }: Pick<SurroundingsDependencies, 'inventory' | 'tags'>,
  definition: ScheduleDefinition,
  domainId: string,
): boolean {
  const entry = inventory.domains.get(domainId);
  if (entry === undefined) return false;
  const one = candidateOf(tags, domainId, entry.name, [entry.nodeId]);
  return foundOf(definition, [one]).length > 0;
}

async function placeOf(dependencies: SurroundingsDependencies, part: OpenPart): Promise<Place> {
  const { row, run, definition } = part;
  const { inventory } = dependencies;
  if (row.entity_class === 'data_pool') return { nodeId: null, poolId: row.entity_id, estimate: 0 };
  const entry = inventory.domains.get(row.entity_id);
  if (!entry) {
    const gone = new VirtkeepError('domain_not_found', { id: row.entity_id });
    return { nodeId: null, poolId: null, estimate: 0, gone };
  }
  const { nodeId } = entry;
  if (definition.action !== 'backup') return { nodeId, poolId: null, estimate: 0 };
  const wish = { taskId: run.scheduled_task_id, due: dueOf(run), domainId: row.entity_id };
  const { poolId: chosen, estimate } = await forecastOf(dependencies, definition, wish);
  return { nodeId, poolId: chosen ?? inventory.basePool(nodeId), estimate };
}

const dueOf = ({ due_time, created }: OpenPart['run']): number => Date.parse(due_time ?? created);

/** The backup of a VM that is due at an instant (ms since 1970). */
interface Wish {
  /** Empty: the task is not made yet. */
  taskId: string;
  due: number;
  domainId: string;
}

export interface Forecast {
  /** Undefined: the base pool of its node. */
  poolId: string | undefined;
  /** Id of the file that it extends; null: it is a file of its own. */
  extends: string | null;
  /** Bytes that it is expected to take: as many as the last one of its kind, and somewhat more. */
  estimate: number;
}

type ForecastDependencies = Pick<SurroundingsDependencies, 'store' | 'inventory' | 'keptFiles'>;

/** Where a backup would go, and what it would take. */
export async function forecastOf(
  dependencies: ForecastDependencies,
  definition: ScheduleDefinition,
  wish: Wish,
): Promise<Forecast> {
  const { store, inventory } = dependencies;
  const { mode, next } = await choiceOf(dependencies, definition, wish);
  const isIncrement = mode === 'increment' && next !== undefined;
  const poolId = isIncrement ? next.pool_id : definition.options.datapool;
  const place = { poolId, extends: isIncrement ? next.id : null };
  const last = await store.lastBytes(wish.domainId, isIncrement ? 'increment' : 'full');
  if (last !== undefined) return { ...place, estimate: last * ESTIMATE_MARGIN };
  const disks = inventory.domains.get(wish.domainId)?.domain.disks ?? [];
  return {
    ...place,
    estimate: isIncrement ? 0 : disks.reduce((sum, disk) => sum + Number(disk.usedSize), 0),
  };
}

interface Choice {
  mode: string;
  /** The file that an increment extends; undefined: there is none. */
  next: FileRow | undefined;
  notes: string[];
}

/** A full backup or an increment: by the weekday, the limit of increments, the rule for restore points, and what can be extended. */
async function choiceOf(
  { store, keptFiles }: ForecastDependencies,
  definition: ScheduleDefinition,
  { taskId, due, domainId }: Wish,
): Promise<Choice> {
  if (!incremental(definition)) return { mode: 'full', next: undefined, notes: [] };
  const next = await keptFiles.nextOfTask(taskId, domainId, definition.options);
  if (next !== undefined && isLimitReached(definition, next)) {
    const isOfTask = await isOwn(archivesIn(store), { taskId, domainId }, next);
    const notes = ['The limit of increments is reached: a full backup follows'];
    return { mode: isOfTask ? BY_LIMIT : 'full', next, notes };
  }
  if (definition.full_weekdays.includes(weekdayAt(due, definition.time_zone)))
    return { mode: 'full', next, notes: [] };
  const { keep_states, keep_states_by } = definition;
  const restorePoints = next === undefined ? 0 : detailsOf(next).states.length;
  if (keep_states_by === 'new_archive' && keep_states > 0 && restorePoints >= keep_states) {
    const notes = [`The archive before holds ${restorePoints} restore points: a new one begins`];
    return { mode: BY_RULE, next, notes };
  }
  return { mode: 'increment', next, notes: [] };
}

async function decide(dependencies: SurroundingsDependencies, part: OpenPart): Promise<Decision> {
  const { row, run, definition } = part;
  if (definition.action !== 'backup') return { mode: 'full', extend: null, notes: [] };
  const wish = { taskId: run.scheduled_task_id, due: dueOf(run), domainId: row.entity_id };
  const { mode, next, notes } = await choiceOf(dependencies, definition, wish);
  if (mode !== 'increment') return { mode, extend: null, notes };
  if (next !== undefined) return { mode, extend: next.id, notes };
  // with nothing of its own to extend, an increment would extend what another task made
  const isOthers = (await dependencies.keptFiles.nextOf(row.entity_id)) !== undefined;
  return { mode: isOthers ? 'full' : mode, extend: null, notes };
}

async function load(
  { db, inventory, isReady }: SurroundingsDependencies,
  ownTasks: ReadonlySet<string>,
): ReturnType<Surroundings['load']> {
  const open = await db
    .selectFrom('tasks')
    .select(['id', 'node_id'])
    .where('status', '=', 'IN_PROGRESS')
    .where('name', 'in', HEAVY_TASKS)
    .execute();
  const byNode = new Map<string, number>();
  for (const { id, node_id: nodeId } of open)
    if (nodeId !== null && !ownTasks.has(id)) byNode.set(nodeId, (byNode.get(nodeId) ?? 0) + 1);
  const freeOfPool = new Map<string, number>();
  for (const [id, { views }] of inventory.pools) {
    // what a node that is away has told last may be of another year
    const free = [...views]
      .filter(([nodeId, view]) => isReady(nodeId) && isUsable(view))
      .map(([, view]) => Number(view.available));
    if (free.length > 0) freeOfPool.set(id, Math.min(...free));
  }
  return { byNode, byPool: new Map(), freeOfPool };
}

/** The answers are where {@link load} finds them. Each node is asked once for each pool, and all of them at the same time. */
async function askFree(
  { pools, isReady }: SurroundingsDependencies,
  parts: Parameters<Surroundings['askFree']>[0],
): Promise<boolean> {
  const asked = new Map<string, Promise<unknown>>();
  for (const { definition, queued } of parts) {
    const { nodeId, poolId } = queued;
    if (!definition.free_space_cleanup || nodeId === null || poolId === null || !isReady(nodeId)) continue;
    const key = `${poolId} ${nodeId}`;
    if (!asked.has(key)) asked.set(key, pools.freeNow(poolId, nodeId, FREE_MAX_AGE_MS));
  }
  await Promise.all(asked.values());
  return asked.size > 0;
}

/**
 * The oldest backups that make space for the part's; undefined: nobody knows, since its node does not say what is free, or since what others
 * delete is not given back yet. That is asked each time: others write to the pool, too. A node that cannot use the pool, or is away, makes
 * no backup either, so nothing is deleted for it. What is promised to other running parts is not free, also when they began before its node
 * wanted more than was thought; so all of them find the same missing, and the same files. When so much cannot be had, the part has room made
 * for itself alone. Not all file systems give back at once what is deleted: of those that were decided on no more is asked than they hold.
 */
async function inTheWay(
  dependencies: SurroundingsDependencies,
  { row, definition }: OpenPart,
  removals: Removals,
) {
  const { store, pools, keptFiles, isReady, inventory, clock } = dependencies;
  const { pool_id: poolId, node_id: nodeId, estimate } = row;
  if (!definition.free_space_cleanup || poolId === null || nodeId === null || !isReady(nodeId)) return [];
  const free = await pools.freeNow(poolId, nodeId);
  if (free === undefined) {
    const view = inventory.pools.get(poolId)?.views.get(nodeId);
    return view !== undefined && isUsable(view) ? undefined : [];
  }
  const decided = (await store.decisions(row)).filter(({ status }) => status === 'DECIDED');
  const held = decided.reduce((sum, { size }) => sum + size, 0);
  const bound = decided.length > 0 ? held : Number.POSITIVE_INFINITY;
  const missingAlone = Math.min(estimate - free, bound);
  const missing = Math.min(estimate + (await promisedToOthers(dependencies, row, poolId)) - free, bound);
  if (missing <= 0) return [];
  if (await removals.areUnderWay(row, poolId)) return undefined;
  const doomed = await keptFiles.doomedForSpace(poolId, missing, +clock.now());
  if (doomed === undefined || doomed.length > 0 || missingAlone <= 0) return doomed;
  return keptFiles.doomedForSpace(poolId, missingAlone, +clock.now());
}

/** What others delete, and have just deleted. */
class Removals {
  readonly #dependencies: Pick<SurroundingsDependencies, 'store' | 'backupFiles' | 'elapsedMs'>;
  /** When each removal for a part that runs was first seen, by the pool: the clock of who wrote it may have been another one. */
  readonly #seenMs = new Map<string, Map<string, number>>();

  constructor(dependencies: Pick<SurroundingsDependencies, 'store' | 'backupFiles' | 'elapsedMs'>) {
    this.#dependencies = dependencies;
  }

  /**
   * Whether somebody deletes from the pool, or another running part just has: what that gives is not free yet, and would be missed once more.
   * After a while nothing comes any more.
   */
  async areUnderWay(row: OpenPart['row'], poolId: string): Promise<boolean> {
    const { store, backupFiles, elapsedMs } = this.#dependencies;
    if (await backupFiles.isDeletedFrom(poolId)) return true;
    const removed = await store.removedFrom(poolId);
    const nowMs = elapsedMs();
    const before = this.#seenMs.get(poolId);
    const seenMs = new Map(removed.map(({ id }) => [id, before?.get(id) ?? nowMs]));
    this.#seenMs.set(poolId, seenMs);
    return removed.some(
      decision => keyOf(decision) !== keyOf(row) && nowMs - seenMs.get(decision.id)! < GIVEN_BACK_MS,
    );
  }
}

/** Bytes that the other running parts will still write into the pool; what has not begun on a node that is away is not asked for. */
async function promisedToOthers(
  { store, tasks, isReady }: SurroundingsDependencies,
  row: OpenPart['row'],
  poolId: string,
): Promise<number> {
  let bytes = 0;
  for (const other of await store.runningInto(poolId)) {
    const hasBegun = other.step === 'backup' && other.task_status !== null;
    const isAway = other.node_id === null || !isReady(other.node_id);
    if (keyOf(other) === keyOf(row) || (isAway && !hasBegun)) continue;
    // how far it is may not be written yet
    const progress = Math.max(other.progress ?? 0, tasks.progressOf(other.task_id ?? ''));
    bytes += other.estimate * unwritten({ ...other, progress });
  }
  return bytes;
}

/** The steps of a backup's part before it is written. */
const BEFORE_BACKUP: readonly string[] = ['clear', 'space'];

/**
 * What a part has still to write, as a share of its estimate. They are asked for after what is free, and a percent that has begun counts as
 * written: else what was written in between counted twice, and more than need be were deleted.
 */
function unwritten({ step, task_status: status, progress }: PartInPool): number {
  if (BEFORE_BACKUP.includes(step)) return 1;
  if (step !== 'backup') return 0;
  if (status === null) return 1;
  // a node that is away may still write what is lost to us
  if (status !== 'IN_PROGRESS' && status !== 'LOST') return 0;
  const begun = (progress ?? 0) + 1;
  return Math.max(0, 100 - begun) / 100;
}
