/**
 * How well each VM is protected. What the rules need is held in memory, a few numbers for each VM, and read anew only for a VM whose
 * backup files have changed: a list asks the database for nothing. Ages, and what follows from them, are computed when they are told.
 */
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { inPieces, shareLoop } from '@virtkeep/shared/turns';
import type { Database, TaskRow } from '../../store/schema.ts';
import { GOOD_STATUSES } from '../backup-files/restore-points.ts';
import type { Inventory } from '../inventory/inventory.ts';
import type { DomainEntry } from '../inventory/kept-domain.ts';
import { SeenNodes } from '../inventory/seen-nodes.ts';
import { OrderedThings, type PageRequest } from '../ordered-things.ts';
import { BACKUP, BackupAttempts, type LastBackup } from './attempts.ts';
import { type CoverageSource, NO_COVERAGE } from './coverage.ts';
import {
  type Expectation,
  PROTECTION_STATES,
  type Protection,
  type ProtectionFacts,
  type ProtectionState,
  type ProtectionVerdict,
  protectionOf,
  stateNow,
  stateUntil,
  verdictOf,
} from './rules.ts';

const DAY_MS = 86_400_000;

export interface ProtectionDependencies {
  db: Database;
  inventory: Inventory;
  tags: { has(entityId: string, tagId: string | undefined): boolean };
  /** Called for each VM whose protection has changed otherwise than by the passing of time. */
  tell: (domainId: string) => void;
  maxAgeDays: () => number;
  /** What became of the backups of a VM that is gone is forgotten after so long. */
  keepDays: () => number;
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
  lastBackup: LastBackup | null;
}

type GoodPoints = Pick<ProtectionFacts, 'lastGood' | 'lastPartial'>;

const NO_POINTS: GoodPoints = { lastGood: null, lastPartial: null };

/** @param newest time of the newest restore point in a good file; null: there is none. @param whole the same of one with all disks */
function goodPoints({ newest, whole }: { newest: string | null; whole: string | null }): GoodPoints {
  const instant = (time: string | null) => (time === null ? null : Date.parse(time));
  return { lastGood: instant(whole), lastPartial: newest === whole ? null : instant(newest) };
}

/** What a VM was judged to be, and what that holds for. */
interface Judged {
  state: ProtectionState;
  fromMs: number;
  untilMs: number;
  expectations: readonly Expectation[];
  maxAgeDays: number;
}

/** Lists look so often whether the passing of time has made something of a VM, when it can have. */
const LOOK_MS = 1000;
/** So many VMs are judged at once, or told of. */
const VMS_AT_ONCE = 1000;
/** One that somebody else has begun, and one of all that has changed since that began. */
const MOST_WALKS = 2;

/** What all VMs were judged by when they were last looked at one after the other. */
interface Walked {
  atMs: number;
  coverage: CoverageSource;
  version: unknown;
  maxAgeDays: number;
}

const SEVERITY: readonly ProtectionState[] = ['late', 'never', 'failing', 'protected', 'excluded'];

export class ProtectionService {
  readonly attempts: BackupAttempts;
  readonly #dependencies: ProtectionDependencies;
  readonly #now: () => number;
  readonly #points = new Map<string, GoodPoints>();
  readonly #excluded = new Set<string>();
  readonly #turns = new KeyedQueue();
  readonly #judged = new Map<string, Judged>();
  /** New ones, and those of which something has become known. */
  readonly #unjudged = new Set<string>();
  readonly #counts = noCounts();
  readonly #lists: OrderedThings<DomainEntry>;
  readonly #seenNodes: SeenNodes;
  /** Undefined: they are to be looked at anew. */
  #walked: Walked | undefined;
  #walking: Promise<void> | undefined;
  /** From the latest begin of a verdict to the earliest end of one: the passing of time changes nothing between. */
  #heldFromMs = Number.NEGATIVE_INFINITY;
  #heldUntilMs = Number.POSITIVE_INFINITY;
  #coverage = NO_COVERAGE;
  #stateListener: (domainId: string) => void = () => {};

  constructor(dependencies: ProtectionDependencies) {
    this.#dependencies = dependencies;
    this.#now = dependencies.now ?? Date.now;
    const { domains, nodes } = dependencies.inventory;
    this.attempts = new BackupAttempts(dependencies.db, id => domains.ownId(id));
    const lastGood = (entry: DomainEntry) => this.#points.get(entry.id)?.lastGood ?? null;
    const severity = (entry: DomainEntry) => SEVERITY.indexOf(this.state(entry.id));
    this.#lists = new OrderedThings({
      all: () => domains.keys(),
      find: id => domains.get(id),
      fields: {
        severity,
        domain: ({ name }) => name,
        node: ({ nodeId }) => this.#nodeName(nodeId),
        age: entry => negative(lastGood(entry)),
        last_good: lastGood,
        urgency: entry => `${severity(entry)}-${digitsOf(lastGood(entry))}-${entry.name}`,
      },
      nodeFields: ['node'],
      refresh: () => this.#refresh(),
    });
    domains.onChange((id, before, after) => {
      if (!before) this.#unjudged.add(id);
      if (!after) this.#unjudged.delete(id);
      if (!after) this.#forget(id);
      this.#lists.touch(id);
    });
    this.#seenNodes = new SeenNodes(
      () => nodes.keys(),
      id => this.#nodeName(id),
    );
  }

  /** Set once at start, by what keeps lists of VMs by their states; hears of each whose state may be another one since, at the next `look`. */
  setStateListener(listener: (domainId: string) => void): void {
    this.#stateListener = listener;
  }

  /** Set once at start, by what knows the scheduled tasks. */
  setCoverage(source: CoverageSource): void {
    this.#coverage = source;
  }

  /** Reads what was known before the restart; the inventory is loaded already. */
  async load(): Promise<void> {
    const { db, inventory, keepDays } = this.#dependencies;
    const { domains } = inventory;
    const rows = await this.#goodFiles(inventory.orphanedPools)
      .select(({ fn }) => [
        'domain_id',
        fn.max('newest_point').as('newest'),
        fn.max('newest_whole_point').as('whole'),
      ])
      .where('domain_id', 'is not', null)
      .groupBy('domain_id')
      .execute();
    for (const { domain_id: id, ...times } of rows)
      if (id !== null && times.newest !== null) this.#points.set(domains.ownId(id), goodPoints(times));
    for (const { domain_id: id } of await db.selectFrom('protection_exclusions').selectAll().execute())
      this.#excluded.add(id);
    await this.attempts.load();
    await this.attempts.prune(this.#now() - keepDays() * DAY_MS, id => domains.has(id));
  }

  /** The backup files of these VMs have changed. */
  async filesChanged(domainIds: ReadonlySet<string>): Promise<void> {
    for (const id of domainIds) {
      // a pool that comes or goes has files of thousands
      await shareLoop();
      await this.#turns.run(id, () => this.#readPoint(this.#dependencies.inventory.domains.ownId(id)));
    }
  }

  async #readPoint(id: string): Promise<void> {
    const times = await this.#goodFiles(this.#dependencies.inventory.orphanedPools)
      .select(({ fn }) => [fn.max('newest_point').as('newest'), fn.max('newest_whole_point').as('whole')])
      .where('domain_id', '=', id)
      .executeTakeFirstOrThrow();
    const before = this.#points.get(id) ?? NO_POINTS;
    const points = goodPoints(times);
    if (before.lastGood === points.lastGood && before.lastPartial === points.lastPartial) return;
    if (times.newest === null) this.#points.delete(id);
    else this.#points.set(id, points);
    this.#tell(id);
  }

  /** @param orphaned the pools that no node has any more: nobody can say that a file is still there */
  #goodFiles(orphaned: ReadonlySet<string>) {
    const files = this.#dependencies.db.selectFrom('files').where('status', 'in', GOOD_STATUSES);
    // without that the index alone answers
    return orphaned.size === 0 ? files : files.where('pool_id', 'not in', [...orphaned]);
  }

  /** Its row is written already. */
  async taskEnded({ row }: { row: Pick<TaskRow, 'name'> }): Promise<void> {
    if (row.name === BACKUP)
      await this.attempts.note(id => this.#tell(this.#dependencies.inventory.domains.ownId(id)));
  }

  /** Something has become known of a VM. */
  #tell(id: string): void {
    this.#forget(id);
    this.#unjudged.add(id);
    this.#touch(id);
    this.#dependencies.tell(id);
  }

  /** It holds until it is taken back, also while the VM is gone. @throws domain_not_found. */
  setExcluded(id: string, isExcluded: boolean): Promise<void> {
    const { db, inventory } = this.#dependencies;
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
      this.#tell(id);
    });
  }

  #factsOf(id: string): ProtectionFacts {
    return {
      isExcluded: this.#excluded.has(id),
      ...(this.#points.get(id) ?? NO_POINTS),
      lastAttempt: this.attempts.of(id),
      expectations: this.#coverage.expectationsOf(id),
      maxAgeMs: this.#dependencies.maxAgeDays() * DAY_MS,
    };
  }

  /** As the record of a VM tells it. */
  verdict(domainId: string): ProtectionVerdict {
    return verdictOf(this.#factsOf(domainId), this.#now());
  }

  /** The state alone, which a filter asks of all VMs; as of the last `look`, so that nothing is otherwise than lists were told. */
  state(domainId: string): ProtectionState {
    return this.#judged.get(domainId)?.state ?? this.#judge(domainId).state;
  }

  /** Judges a VM only when something of it may have changed since it was. */
  #judge(id: string): Judged {
    const now = this.#now();
    const before = this.#judged.get(id);
    const expectations = this.#coverage.expectationsOf(id);
    const maxAgeDays = this.#dependencies.maxAgeDays();
    const isSame = before?.expectations === expectations && before.maxAgeDays === maxAgeDays;
    if (before && isSame && now >= before.fromMs && now < before.untilMs) return before;
    const { state, untilMs } = stateUntil(this.#factsOf(id), now);
    // each with the same fields from its beginning: what is put together of two parts takes a second object
    const judged = { state, fromMs: now, untilMs, expectations, maxAgeDays };
    // somebody who goes through many may come to one that has just gone
    if (!this.#dependencies.inventory.domains.has(id)) return judged;
    this.#forget(id);
    this.#judged.set(id, judged);
    this.#counts[judged.state] += 1;
    this.#hold(judged);
    if (before && before.state !== judged.state) this.#touch(id);
    return judged;
  }

  #hold({ fromMs, untilMs }: Judged): void {
    this.#heldFromMs = Math.max(this.#heldFromMs, fromMs);
    this.#heldUntilMs = Math.min(this.#heldUntilMs, untilMs);
  }

  #forget(id: string): void {
    const before = this.#judged.get(id);
    if (before) this.#counts[before.state] -= 1;
    this.#judged.delete(id);
  }

  /** Before a list by states: puts in its place what has changed by the passing of time, or by what scheduled tasks promise. */
  async look(): Promise<void> {
    await this.#judgeNew();
    for (let walks = 0; walks < MOST_WALKS && this.#isToWalk(); walks += 1) {
      this.#walking ??= this.#walk().finally(() => {
        this.#walking = undefined;
      });
      await this.#walking;
    }
  }

  async #judgeNew(): Promise<void> {
    const { domains } = this.#dependencies.inventory;
    for await (const ids of inPieces(this.#unjudged, VMS_AT_ONCE))
      for (const id of ids) {
        this.#unjudged.delete(id);
        if (domains.has(id)) this.#judge(id);
      }
  }

  /** Whether a verdict may be another one, although nothing has become known of its VM. */
  #isToWalk(): boolean {
    const now = this.#now();
    const walked = this.#walked;
    if (!walked || walked.maxAgeDays !== this.#dependencies.maxAgeDays()) return true;
    if (walked.coverage !== this.#coverage || walked.version !== this.#coverage.version) return true;
    if (now < this.#heldFromMs) return true;
    return now >= this.#heldUntilMs && Math.abs(now - walked.atMs) >= LOOK_MS;
  }

  /** Judges all VMs. By what changes meanwhile another one goes. */
  async #walk(): Promise<void> {
    const { inventory, maxAgeDays } = this.#dependencies;
    const coverage = this.#coverage;
    const walked = {
      atMs: this.#now(),
      coverage,
      version: coverage.version,
      maxAgeDays: maxAgeDays(),
    };
    this.#walked = undefined;
    this.#heldFromMs = Number.NEGATIVE_INFINITY;
    this.#heldUntilMs = Number.POSITIVE_INFINITY;
    for await (const ids of inPieces(inventory.domains.keys(), VMS_AT_ONCE))
      for (const id of ids) {
        // also a verdict that stands: the bounds are found anew
        if (inventory.domains.has(id)) this.#hold(this.#judge(id));
      }
    this.#walked = walked;
  }

  #touch(id: string): void {
    this.#lists.touch(id);
    this.#stateListener(id);
  }

  /** The name of a node may have changed. */
  #refresh(): void {
    const { domains } = this.#dependencies.inventory;
    this.#lists.nodesChanged(this.#seenNodes.changed(), id => domains.ofNode(id));
  }

  /** A page of those that match; `counts` are of all that match the other filters, whatever their state. */
  async page(
    { state, ...filter }: ProtectionFilter,
    request: PageRequest,
  ): Promise<{ count: number; rows: ProtectionRow[]; counts: ProtectionCounts }> {
    await this.look();
    const { node, tag, name } = filter;
    const { domains } = this.#dependencies.inventory;
    const isAny = [state, node, tag, name].every(value => value === undefined);
    const { count, things } = await this.#lists.page(request, {
      among: node === undefined ? undefined : domains.ofNode(node),
      matches: isAny
        ? undefined
        : entry => this.#matches(entry, filter) && (state === undefined || this.state(entry.id) === state),
      // who bears a tag changes without a word
      name: tag === undefined ? JSON.stringify([state, name]) : undefined,
    });
    const rows = things.map(entry => this.#row(entry));
    return { count, rows, counts: await this.#countsOf(filter) };
  }

  /** Where it goes through all of them, each as it is when it is its turn. */
  async #countsOf(filter: Omit<ProtectionFilter, 'state'>): Promise<ProtectionCounts> {
    const { node, tag, name } = filter;
    if (node === undefined && tag === undefined && name === undefined) {
      await this.#judgeNew();
      return { ...this.#counts };
    }
    const { domains } = this.#dependencies.inventory;
    const counts = noCounts();
    const ids = node === undefined ? domains.keys() : domains.ofNode(node);
    for await (const entries of this.#inPieces(ids))
      for (const entry of entries) if (this.#matches(entry, filter)) counts[this.state(entry.id)] += 1;
    return counts;
  }

  /** Each once, as it is when it is its turn, unless it is gone then. */
  async *#inPieces(ids: Iterable<string>): AsyncGenerator<readonly DomainEntry[]> {
    const { domains } = this.#dependencies.inventory;
    for await (const piece of inPieces([...ids], VMS_AT_ONCE))
      yield piece.flatMap(id => domains.get(id) ?? []);
  }

  /** Those that need somebody most: the worst state first, of one state whoever waits longest. */
  mostUrgent(limit: number): Promise<{ rows: ProtectionRow[]; counts: ProtectionCounts }> {
    return this.page({}, { ordering: { field: 'urgency', descending: false }, limit, offset: 0 });
  }

  /** With the reason. */
  whole(domainId: string): Protection {
    return protectionOf(this.#factsOf(domainId), this.#now());
  }

  /** Those that match; `counts` are of all that match the other filters, whatever their state. */
  async list({
    state,
    ...filter
  }: ProtectionFilter): Promise<{ rows: ProtectionRow[]; counts: ProtectionCounts }> {
    const counts = noCounts();
    const rows: ProtectionRow[] = [];
    for await (const entries of this.#inPieces(this.#dependencies.inventory.domains.keys()))
      for (const entry of entries) {
        if (!this.#matches(entry, filter)) continue;
        const row = this.#row(entry);
        counts[row.state] += 1;
        if (state === undefined || state === row.state) rows.push(row);
      }
    return { rows, counts };
  }

  /** Of all VMs, in full. */
  async records(): Promise<ProtectionRecord[]> {
    const records: ProtectionRecord[] = [];
    const { rows } = await this.list({});
    for await (const piece of inPieces(rows, VMS_AT_ONCE))
      for (const row of piece) records.push(this.record(row));
    return records;
  }

  #matches(entry: DomainEntry, { node, tag, name }: Omit<ProtectionFilter, 'state'>): boolean {
    if (node !== undefined && entry.nodeId !== node) return false;
    if (!this.#dependencies.tags.has(entry.id, tag)) return false;
    return name === undefined || entry.name.toLowerCase().includes(name.toLowerCase());
  }

  #row({ id, name, nodeId }: DomainEntry): ProtectionRow {
    const verdict = this.verdict(id);
    return {
      ...verdict,
      id,
      severity: SEVERITY.indexOf(verdict.state),
      domain: { id, verbose_name: name },
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
    for (const { id, name, nodeId } of this.#dependencies.inventory.domains.values()) {
      yield {
        id,
        name,
        node: this.#nodeName(nodeId),
        state: stateNow(this.#factsOf(id), now),
        lastGood: this.#points.get(id)?.lastGood ?? null,
        lastBackup: this.attempts.of(id),
      };
    }
  }
}

const noCounts = (): ProtectionCounts =>
  Object.fromEntries(PROTECTION_STATES.map(name => [name, 0])) as ProtectionCounts;

const negative = (time: number | null): number | null => (time === null ? null : -time);

/** In the order of the times; of none comes first. */
const digitsOf = (time: number | null): string => String(Math.max(0, (time ?? -1) + 1)).padStart(16, '0');
