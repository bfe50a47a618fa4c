/**
 * What an administrator looks at first: which VMs are not protected, what runs, what comes next, where room is short. Everything
 * is bounded: the most urgent of each kind, and how many there are.
 */
import type { Database } from '../../store/schema.ts';
import type { ListedNode, NodeService } from '../nodes/nodes.ts';
import type { Forecast } from '../pools/forecast.ts';
import type { PoolForecasts } from '../pools/forecasts.ts';
import type { PoolService } from '../pools/pools.ts';
import type { ListedPool } from '../pools/record.ts';
import { BACKUP } from '../protection/attempts.ts';
import type { ProtectionCounts, ProtectionRow, ProtectionService } from '../protection/protection.ts';
import type { TaskService, TaskState } from '../tasks/tasks.ts';
import { type DayResult, lastDays, noResults, notAfterBegin, resultsByDay } from './history.ts';

export const HISTORY_DAYS = 14;
export const MAX_HISTORIES = 50;
const MAX_URGENT = 20;
const MAX_TASKS = 20;
const MAX_POOLS = 20;
const MAX_NODES = 20;
const MAX_RUNS = 10;
const URGENT: readonly string[] = ['late', 'never', 'failing'];

export interface OverviewDependencies {
  db: Database;
  protection: ProtectionService;
  tasks: Pick<TaskService, 'list'>;
  pools: Pick<PoolService, 'list'>;
  poolForecasts: Pick<PoolForecasts, 'of'>;
  nodes: Pick<NodeService, 'listed'>;
}

export interface OverviewQuery {
  /** IANA name of the time zone whose days are meant. */
  timeZone: string;
  /** So many VMs with their days, at most `MAX_HISTORIES`. */
  histories: number;
  now: Date;
}

/** Some of a kind, and how many there are. */
interface Some<T> {
  count: number;
  results: T[];
}

export interface Overview {
  domains: { counts: ProtectionCounts; urgent: ProtectionRow[] };
  history: {
    days: string[];
    domains: (Pick<ProtectionRow, 'domain' | 'state'> & { results: DayResult[] })[];
  };
  running: { count: number; tasks: TaskState[] };
  pools: Some<
    Pick<ListedPool, 'id' | 'verbose_name' | 'status' | 'size' | 'used_space' | 'free_space'> & {
      forecast: Forecast;
    }
  >;
  nodes: {
    count: number;
    away_count: number;
    away: Pick<ListedNode, 'id' | 'verbose_name' | 'status' | 'last_seen'>[];
  };
  next_runs: { id: string; verbose_name: string; next_run: string }[];
}

/** @throws RangeError for a time zone that nobody knows. */
export async function overview(services: OverviewDependencies, query: OverviewQuery): Promise<Overview> {
  const { rows, counts } = await services.protection.mostUrgent(Math.max(MAX_URGENT, query.histories));
  const running = await services.tasks.list({
    status: 'IN_PROGRESS',
    ordering: { field: 'created', descending: true },
    limit: MAX_TASKS,
    offset: 0,
  });
  return {
    domains: {
      counts,
      urgent: rows.slice(0, MAX_URGENT).filter(({ state }) => URGENT.includes(state)),
    },
    history: await historyOf(services.db, rows.slice(0, query.histories), query),
    running,
    pools: fullestFirst(await services.pools.list({}), services.poolForecasts),
    nodes: away(services.nodes.listed()),
    next_runs: await nextRuns(services.db),
  };
}

async function historyOf(db: Database, rows: readonly ProtectionRow[], { timeZone, now }: OverviewQuery) {
  const days = lastDays(now, timeZone, HISTORY_DAYS);
  const backups = await endedBackups(
    db,
    rows.map(({ domain }) => domain.id),
    notAfterBegin(days[0]!),
  );
  const results = resultsByDay(backups, days, timeZone);
  return {
    days,
    domains: rows.map(({ domain, state }) => ({
      domain,
      state,
      results: results.get(domain.id) ?? noResults(days),
    })),
  };
}

/** Those that succeeded or failed; what was cancelled says nothing. */
async function endedBackups(db: Database, domainIds: readonly string[], since: string) {
  if (domainIds.length === 0) return [];
  const rows = await db
    .selectFrom('task_entities')
    .innerJoin('tasks', 'tasks.id', 'task_entities.task_id')
    .select(['task_entities.entity_id as domain', 'tasks.finished_time as ended', 'tasks.status as status'])
    .where('task_entities.entity_id', 'in', domainIds)
    .where('tasks.name', '=', BACKUP)
    .where('tasks.finished_time', '>=', since)
    .where('tasks.status', 'in', ['SUCCESS', 'FAILED'])
    .execute();
  return rows.map(({ domain, ended, status }) => ({ domain, ended: ended!, isGood: status === 'SUCCESS' }));
}

function fullestFirst(pools: ListedPool[], forecasts: Pick<PoolForecasts, 'of'>) {
  const freeShare = ({ size, free_space }: ListedPool) => (size === 0 ? 1 : free_space / size);
  const results = [...pools]
    .sort((a, b) => freeShare(a) - freeShare(b))
    .slice(0, MAX_POOLS)
    .map(({ id, verbose_name, status, size, used_space, free_space }) => ({
      id,
      verbose_name,
      status,
      size,
      used_space,
      free_space,
      forecast: forecasts.of({ id, free_space, size, status }),
    }));
  return { count: pools.length, results };
}

function away(nodes: readonly ListedNode[]) {
  const others = nodes.filter(({ status }) => status !== 'ACTIVE');
  return {
    count: nodes.length,
    away_count: others.length,
    away: others
      .slice(0, MAX_NODES)
      .map(({ id, verbose_name, status, last_seen }) => ({ id, verbose_name, status, last_seen })),
  };
}

async function nextRuns(db: Database) {
  const rows = await db
    .selectFrom('scheduled_tasks')
    .select(['id', 'verbose_name', 'next_run'])
    .where('enabled', '=', 1)
    .where('next_run', 'is not', null)
    .orderBy('next_run')
    .limit(MAX_RUNS)
    .execute();
  return rows.map(({ next_run, ...task }) => ({ ...task, next_run: next_run! }));
}
