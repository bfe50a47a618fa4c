/**
 * How well each VM is protected. What the rules need is held in memory, a few numbers for each VM, and read anew only for a VM whose
 * backup files have changed: a list asks the database for nothing. Ages, and what follows from them, are computed when they are told.
 */
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import type { Database, TaskRow } from '../../store/schema.ts';
import { GOOD_STATUSES } from '../backup-files/restore-points.ts';
import type { DomainEntry, Inventory } from '../inventory/inventory.ts';
import { BACKUP, BackupAttempts, type LastBackup } from './attempts.ts';
import { type CoverageSource, NO_COVERAGE } from './coverage.ts';
import {
  PROTECTION_STATES,
  type Protection,
  type ProtectionFacts,
  type ProtectionState,
  type ProtectionVerdict,
  protectionOf,
  stateNow,
  verdictOf,
} from './rules.ts';

const DAY_MS = 86_400_000;

export interface ProtectionDependencies {
  db: Database;
  inventory: Inventory;
  tags: { has(entityId: string, tagId: string | undefined): boolean };
  /** Called for each VM whose protection has changed otherwise than by the passing of time. */
  tell: (domainId: string) => void;
  maxAgeDays: number;
  /** What became of the backups of a VM that is gone is forgotten after so long. */
  keepDays: number;
  /** ms since 1970. */
  now?: () => number;
}

export interface ProtectionFilter {
  state?: ProtectionState | undefined;
  node?: string | undefined;
  /** Id of a tag that it bears. */
  tag?: string | undefined;
  /** Part of its name. */
  name?: string | undefined;
}

interface Named {
  id: string;
  verbose_name: string;
}

/** A VM in the list of protections, before it is told in full. */
export interface ProtectionRow extends ProtectionVerdict {
  /** Of the VM. */
  id: string;
  /** 0: the most urgent. */
  severity: number;
  domain: Named;
  node: Named;
}

export interface ProtectionRecord extends Omit<ProtectionRow, 'id' | 'severity'>, Protection {
  /** The enabled scheduled tasks that back it up. */
  tasks: Named[];
}

export type ProtectionCounts = Record<ProtectionState, number>;

/** What metrics tell of a VM. */
export interface VmMeasures {
  id: string;
  name: string;
  node: string;
  state: ProtectionState;
  /** As the verdict has it, in ms since 1970. */
  lastGood: number | null;
  lastBackup: LastBackup;
}

type GoodPoints = Pick<ProtectionFacts, 'lastGood' | 'lastPartial'>;

const NO_POINTS: GoodPoints = { lastGood: null, lastPartial: null };

/** @param newest time of the newest restore point in a good file; null: there is none. @param whole the same of one with all disks */
function goodPoints({ newest, whole }: { newest: string | null; whole: string | null }): GoodPoints {
  const instant = (time: string | null) => (time === null ? null : Date.parse(time));
  return { lastGood: instant(whole), lastPartial: newest === whole ? null : instant(newest) };
}

const SEVERITY: readonly ProtectionState[] = ['late', 'never', 'failing', 'protected', 'excluded'];

export class ProtectionService {
  readonly attempts: BackupAttempts;
  readonly #dependencies: ProtectionDependencies;
  readonly #now: () => number;
  readonly #points = new Map<string, GoodPoints>();
  readonly #excluded = new Set<string>();
  readonly #turns = new KeyedQueue();
  #coverage = NO_COVERAGE;

  constructor(dependencies: ProtectionDependencies) {
    this.#dependencies = dependencies;
    this.#now = dependencies.now ?? Date.now;
    this.attempts = new BackupAttempts(dependencies.db);
  }

  /** Set once at start, by what knows the scheduled tasks. */
  setCoverage(source: CoverageSource): void {
    this.#coverage = source;
  }

  /** Reads what was known before the restart; the inventory is loaded already. */
  async load(): Promise<void> {
    const { db, inventory, keepDays } = this.#dependencies;
    const rows = await db
      .selectFrom('files')
      .select(({ fn }) => [
        'domain_id',
        fn.max('newest_point').as('newest'),
        fn.max('newest_whole_point').as('whole'),
      ])
      .where('domain_id', 'is not', null)
      .where('status', 'in', GOOD_STATUSES)
      .groupBy('domain_id')
      .execute();
    for (const { domain_id: id, ...times } of rows)
      if (id !== null && times.newest !== null) this.#points.set(id, goodPoints(times));
    for (const { domain_id: id } of await db.selectFrom('protection_exclusions').selectAll().execute())
      this.#excluded.add(id);
    await this.attempts.load();
    const before = new Date(this.#now() - keepDays * DAY_MS).toISOString();
    await this.attempts.prune(before, id => inventory.domains.has(id));
  }

  /** The backup files of these VMs have changed. */
  async filesChanged(domainIds: ReadonlySet<string>): Promise<void> {
    for (const id of domainIds) await this.#turns.run(id, () => this.#readPoint(id));
  }

  async #readPoint(id: string): Promise<void> {
    const times = await this.#dependencies.db
      .selectFrom('files')
      .select(({ fn }) => [fn.max('newest_point').as('newest'), fn.max('newest_whole_point').as('whole')])
      .where('domain_id', '=', id)
      .where('status', 'in', GOOD_STATUSES)
      .executeTakeFirstOrThrow();
    const before = this.#points.get(id) ?? NO_POINTS;
    const points = goodPoints(times);
    if (before.lastGood === points.lastGood && before.lastPartial === points.lastPartial) return;
    if (times.newest === null) this.#points.delete(id);
    else this.#points.set(id, points);
    this.#dependencies.tell(id);
  }

  /** Its row is written already. */
  async taskEnded({ row }: { row: Pick<TaskRow, 'name'> }): Promise<void> {
    if (row.name === BACKUP) await this.attempts.note(this.#dependencies.tell);
  }

  /** It holds until it is taken back, also while the VM is gone. @throws domain_not_found. */
  setExcluded(id: string, isExcluded: boolean): Promise<void> {
    const { db, inventory, tell } = this.#dependencies;
    inventory.domain(id);
    return this.#turns.run(id, async () => {
      if (this.#excluded.has(id) === isExcluded) return;
      if (isExcluded) {
        const row = { domain_id: id, created: new Date().toISOString() };
        await db.insertInto('protection_exclusions').values(row).execute();
        this.#excluded.add(id);
      } else {
        await db.deleteFrom('protection_exclusions').where('domain_id', '=', id).execute();
        this.#excluded.delete(id);
      }
      tell(id);
    });
  }

  #factsOf(id: string): ProtectionFacts {
    return {
      isExcluded: this.#excluded.has(id),
      ...(this.#points.get(id) ?? NO_POINTS),
      lastAttempt: this.attempts.of(id),
      expectations: this.#coverage.expectationsOf(id),
      maxAgeMs: this.#dependencies.maxAgeDays * DAY_MS,
    };
  }

  /** As the record of a VM tells it. */
  verdict(domainId: string): ProtectionVerdict {
    return verdictOf(this.#factsOf(domainId), this.#now());
  }

  /** The state alone, which a filter asks of all VMs. */
  state(domainId: string): ProtectionState {
    return stateNow(this.#factsOf(domainId), this.#now());
  }

  /** With the reason. */
  whole(domainId: string): Protection {
    return protectionOf(this.#factsOf(domainId), this.#now());
  }

  /** Those that match; `counts` are of all that match the other filters, whatever their state. */
  list({ state, ...filter }: ProtectionFilter): { rows: ProtectionRow[]; counts: ProtectionCounts } {
    const counts = Object.fromEntries(PROTECTION_STATES.map(name => [name, 0])) as ProtectionCounts;
    const rows: ProtectionRow[] = [];
    for (const entry of this.#dependencies.inventory.domains.values()) {
      if (!this.#matches(entry, filter)) continue;
      const row = this.#row(entry);
      counts[row.state] += 1;
      if (state === undefined || state === row.state) rows.push(row);
    }
    return { rows, counts };
  }

  #matches({ domain, nodeId }: DomainEntry, { node, tag, name }: Omit<ProtectionFilter, 'state'>): boolean {
    if (node !== undefined && nodeId !== node) return false;
    if (!this.#dependencies.tags.has(domain.id, tag)) return false;
    return name === undefined || domain.name.toLowerCase().includes(name.toLowerCase());
  }

  #row({ domain, nodeId }: DomainEntry): ProtectionRow {
    const verdict = this.verdict(domain.id);
    return {
      ...verdict,
      id: domain.id,
      severity: SEVERITY.indexOf(verdict.state),
      domain: { id: domain.id, verbose_name: domain.name },
      node: { id: nodeId, verbose_name: this.#nodeName(nodeId) },
    };
  }

  #nodeName(nodeId: string): string {
    return this.#dependencies.inventory.nodes.get(nodeId)?.row.verbose_name ?? '';
  }

  /** A row of the list in full. */
  record({ id, domain, node }: ProtectionRow): ProtectionRecord {
    const tasks = this.#coverage.expectationsOf(id);
    return {
      domain,
      node,
      ...this.whole(id),
      tasks: tasks.map(task => ({ id: task.id, verbose_name: task.verbose_name })),
    };
  }

  *measures(): Generator<VmMeasures> {
    const now = this.#now();
    for (const { domain, nodeId } of this.#dependencies.inventory.domains.values()) {
      const { id, name } = domain;
      yield {
        id,
        name,
        node: this.#nodeName(nodeId),
        state: stateNow(this.#factsOf(id), now),
        lastGood: this.#points.get(id)?.lastGood ?? null,
        lastBackup: this.attempts.lastBackup(id),
      };
    }
  }
}
