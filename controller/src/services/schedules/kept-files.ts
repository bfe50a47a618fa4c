/** What the retention plan is made of: the files that scheduled tasks made, and what is known of each; and the plans for them. */
import { ExpiringMap } from '@virtkeep/shared/expiring-map';
import type { FileRow } from '../../store/schema.ts';
import type { BackupFiles } from '../backup-files/backup-files.ts';
import { archiveIdOfRow } from '../backup-files/identity.ts';
import { detailsOf, lastPointOf, lastWholePointOf } from '../backup-files/record.ts';
import { isArchive, isBusy } from '../backup-files/usable.ts';
import type { ExtensionChooser } from '../backups/extension.ts';
import type { Inventory } from '../inventory/inventory.ts';
import { AHEAD_MS } from '../protection/rules.ts';
import { planRetention, planSpace, type RetentionFile, type Verdict } from '../retention/plan.ts';
import { definitionIn, incremental, retentionRulesOf, type ScheduleDefinition } from './definition.ts';
import type { Doomed } from './steps/deletions.ts';
import type { ScheduleStore } from './store.ts';

const DAY_MS = 86_400_000;
/** So long the nodes may take to say of all that stays that it is there. */
const LOOK_MS = 60_000;
/** What was there counts as there for the next plans: of a part each deletion is planned anew. */
const SEEN_MS = 60_000;

export interface KeptFilesDependencies {
  store: ScheduleStore;
  backupFiles: BackupFiles;
  inventory: Inventory;
  extensions: ExtensionChooser;
  /** As `LibraryService.presence`. */
  presence: (
    files: readonly FileRow[],
    signal: AbortSignal,
  ) => Promise<ReadonlyMap<string, boolean> | undefined>;
  /** Whether the next run of a task is about a VM. */
  isAbout: (definition: ScheduleDefinition, domainId: string) => boolean;
  draining: AbortSignal;
}

/** Stands for the backup that is still to be made. */
const COMING = 'coming';

/** When a plan is made. */
export interface PlanMoment {
  /** In ms since 1970. */
  now: number;
  /** The newest one, whatever the clock of its node says; null or absent: none was made. */
  justMade?: string | null;
  /** A good backup of that moment is reckoned with: it extends this file, or is one of its own (null). */
  coming?: { extends: string | null };
  /** Ids of files that are not there, though nobody was told. */
  without?: ReadonlySet<string>;
}

/** A verdict with the file that it is about. */
export type FileVerdict = Verdict & { file: FileRow };

/** A task that has made archives. */
interface Maker {
  id: string;
  definition: ScheduleDefinition;
  /** It has a next run. */
  isEnabled: boolean;
}

/** By the archive's id. */
type Makers = ReadonlyMap<string, Maker>;

/** What is to go, of all the files that were looked at. */
interface Plan {
  doomed: Doomed[];
  files: readonly FileRow[];
}

export class KeptFiles {
  readonly #dependencies: KeptFilesDependencies;
  /** The files that were there lately, as their nodes have said. */
  readonly #seen = new ExpiringMap<true>({ lifeMs: SEEN_MS, maxEntries: 10_000 });

  constructor(dependencies: KeptFilesDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * What the task's rules say of each file that it made of this VM; none when it has no rules. Ages count from the newest good backup, a
   * day later at most: a clock that is ahead for a moment makes nothing old.
   */
  async verdicts(
    taskId: string,
    definition: ScheduleDefinition,
    domainId: string,
    { now, justMade, coming, without }: PlanMoment,
  ): Promise<FileVerdict[]> {
    const rules = retentionRulesOf(definition);
    if (rules === null) return [];
    const archives = await this.#dependencies.store.archivesOf(taskId, domainId);
    const files = await this.#dependencies.backupFiles.filesOf({ domain: domainId });
    // whose rules are asked for is about it
    const maker = { id: taskId, definition, isEnabled: true };
    const makers = new Map([...archives].map(archiveId => [archiveId, maker]));
    const rows = this.#originals(files, makers, without);
    const facts = withComing(await this.#facts(rows, makers), domainId, now, coming);
    const newest = Math.max(...facts.filter(file => file.isGood).map(file => file.newest));
    const until = Math.min(now, newest + DAY_MS);
    // after any other good one: of two of one instant their ids would decide which is the newest
    const last = Math.max(until, newest + 1);
    // and at a time that is believed
    const justNow = { newest: last, newestWhole: Math.min(last, until + AHEAD_MS) };
    const dated = facts.map(file => (file.id === justMade ? { ...file, ...justNow } : file));
    const verdicts = planRetention(dated, rules, until).filter(({ id }) => id !== COMING);
    return withFiles(verdicts, rows);
  }

  /** What the rules let go, as `verdicts` says it, of what is there; undefined: a node does not say what is. */
  doomed(
    taskId: string,
    definition: ScheduleDefinition,
    domainId: string,
    moment: PlanMoment,
  ): Promise<Doomed[] | undefined> {
    return this.#ofThoseThere(async without => {
      const verdicts = await this.verdicts(taskId, definition, domainId, { ...moment, without });
      return { doomed: doomedOf(verdicts), files: verdicts.map(({ file }) => file) };
    });
  }

  /**
   * The oldest files of a pool that make space for so many bytes: of tasks that allow it, and of what is there; undefined: a node does not
   * say what is.
   * @param now ms since 1970
   */
  doomedForSpace(poolId: string, missing: number, now: number): Promise<Doomed[] | undefined> {
    return this.#ofThoseThere(without => this.#forSpace(poolId, { missing, now, without }));
  }

  /** A file goes since others of its VM stay, so these are looked for: one that somebody took away since the last scan counts for nothing. */
  async #ofThoseThere(plan: (without: ReadonlySet<string>) => Promise<Plan>): Promise<Doomed[] | undefined> {
    const signal = AbortSignal.any([this.#dependencies.draining, AbortSignal.timeout(LOOK_MS)]);
    const without = new Set<string>();
    for (;;) {
      const { doomed, files } = await plan(without);
      const going = new Set(doomed.map(({ file }) => file.id));
      const domains = new Set(doomed.map(({ file }) => file.domain_id));
      const staying = files.filter(({ id, domain_id }) => domains.has(domain_id) && !going.has(id));
      const unseen = staying.filter(({ id }) => this.#seen.get(id) === undefined);
      const presence = await this.#dependencies.presence(unseen, signal);
      if (presence === undefined) return undefined;
      const before = without.size;
      for (const [id, isThere] of presence) {
        if (isThere) this.#seen.set(id, true);
        else without.add(id);
      }
      if (without.size === before) return doomed;
    }
  }

  async #forSpace(
    poolId: string,
    { missing, now, without }: { missing: number; now: number; without: ReadonlySet<string> },
  ): Promise<Plan> {
    const rows = await this.#dependencies.backupFiles.filesOf({ pool: poolId });
    const makers = await this.#makersForSpace(rows);
    const files = this.#originals(rows, makers, without);
    // the last good one of a VM may lie elsewhere: only this pool's are deleted, and each VM keeps one of them
    const verdicts = planSpace(await this.#facts(files, makers), missing, now);
    return { doomed: doomedOf(withFiles(verdicts, files)), files };
  }

  /** Of these files, those that tasks made whose old backups may go for space: asked of what is there, and not of all that was ever made. */
  async #makersForSpace(rows: readonly FileRow[]): Promise<Makers> {
    const { store } = this.#dependencies;
    const tasks = new Map<string, Maker>();
    for (const task of await store.tasks()) {
      const definition = definitionIn(task);
      if (definition.free_space_cleanup)
        tasks.set(task.id, { id: task.id, definition, isEnabled: task.enabled === 1 });
    }
    const makers = new Map<string, Maker>();
    for (const [archiveId, taskId] of await store.makersOf(rows.map(archiveIdOfRow))) {
      const maker = tasks.get(taskId);
      if (maker !== undefined) makers.set(archiveId, maker);
    }
    return makers;
  }

  /** The file that the VM's next increment by hand would extend. */
  async nextOf(domainId: string): Promise<FileRow | undefined> {
    const entry = this.#dependencies.inventory.domains.get(domainId);
    return entry && this.#dependencies.extensions.next(entry.domain, entry.nodeId);
  }

  /**
   * The file that a task's next increment of a VM extends: the one that it names, else the newest that it made itself or nobody's task
   * did. What another task made is kept by the rules of that task, so the restore points of this one would go by them.
   */
  async nextOfTask(
    taskId: string,
    domainId: string,
    { backup, datapool }: ScheduleDefinition['options'],
  ): Promise<FileRow | undefined> {
    const { inventory, extensions, store } = this.#dependencies;
    const entry = inventory.domains.get(domainId);
    if (!entry) return undefined;
    const others = await store.archivesOfOthers(taskId, domainId);
    const isOurs = (file: FileRow) => !others.has(archiveIdOfRow(file));
    const chosen =
      backup === undefined
        ? undefined
        : await extensions.next(entry.domain, entry.nodeId, { backup, isWanted: isOurs });
    const pool = datapool === undefined ? {} : { datapool };
    return chosen ?? extensions.next(entry.domain, entry.nodeId, { ...pool, isWanted: isOurs });
  }

  /**
   * Those that are there and are the archives themselves: their record has the archive's id, wherever they were moved. A copy is its
   * maker's, also when the archive is gone or away. What lies in a pool that no node has any more is nowhere that anybody knows.
   */
  #originals(rows: readonly FileRow[], makers: Makers, without: ReadonlySet<string> = new Set()): FileRow[] {
    const { inventory } = this.#dependencies;
    return rows.filter(
      row =>
        !without.has(row.id) &&
        isArchive(row) &&
        row.status !== 'MISSING' &&
        !inventory.isOrphaned(row.pool_id) &&
        row.id === archiveIdOfRow(row) &&
        makers.has(archiveIdOfRow(row)),
    );
  }

  async #facts(rows: readonly FileRow[], makers: Makers): Promise<RetentionFile[]> {
    const extended = await this.#extended(rows, makers);
    const read = await this.#dependencies.backupFiles.readNow();
    return rows.map(row => {
      const lastWhole = lastWholePointOf(row);
      return {
        id: row.id,
        domainId: row.domain_id ?? '',
        newest: Date.parse(lastPointOf(row)),
        newestWhole: lastWhole === null ? null : Date.parse(lastWhole),
        isGood: isGood(row),
        isProtected: row.protected === 1,
        isRead: read.has(row.id),
        isBusy: isBusy(row),
        isExtendable: extended.has(row.id),
        size: row.size,
      };
    });
  }

  /** Ids of the files that the next increments of these VMs extend: those by hand, those of the tasks that made the files, and what has begun. */
  async #extended(rows: readonly FileRow[], makers: Makers): Promise<Set<string>> {
    const { store, isAbout } = this.#dependencies;
    const extended = await store.filesToExtend(new Set(rows.map(row => row.domain_id ?? '')));
    for (const [domainId, ofDomain] of Map.groupBy(rows, row => row.domain_id ?? '')) {
      const byHand = await this.nextOf(domainId);
      // nothing of the VM can be extended
      if (byHand === undefined) continue;
      extended.add(byHand.id);
      for (const { id, definition, isEnabled } of new Set(
        ofDomain.map(row => makers.get(archiveIdOfRow(row))!),
      )) {
        // what no run is going to extend may go, or it would stay for ever
        if (!isEnabled || !incremental(definition) || !isAbout(definition, domainId)) continue;
        const next = await this.nextOfTask(id, domainId, definition.options);
        if (next !== undefined) extended.add(next.id);
      }
    }
    return extended;
  }
}

/** The facts as they will be after a good backup. */
function withComing(
  facts: RetentionFile[],
  domainId: string,
  now: number,
  coming: PlanMoment['coming'],
): RetentionFile[] {
  if (coming === undefined) return facts;
  const made = { newest: now, newestWhole: now, isGood: true };
  if (coming.extends !== null)
    return facts.map(file => (file.id === coming.extends ? { ...file, ...made } : file));
  const state = { isProtected: false, isRead: false, isBusy: false, isExtendable: false };
  return [...facts, { id: COMING, domainId, ...made, ...state, size: 0 }];
}

/** Of its kind: what is found damaged stays so while it is worked on. */
const isGood = (row: FileRow): boolean =>
  row.status === 'ACTIVE' || (row.status === 'UPDATING' && detailsOf(row).damage === '');

function withFiles(verdicts: readonly Verdict[], rows: readonly FileRow[]): FileVerdict[] {
  const byId = new Map(rows.map(row => [row.id, row]));
  return verdicts.map(verdict => ({ ...verdict, file: byId.get(verdict.id)! }));
}

/** Those of them that are to go. */
export function doomedOf(verdicts: readonly FileVerdict[]): Doomed[] {
  return verdicts.flatMap(verdict =>
    verdict.action === 'delete' ? [{ file: verdict.file, reason: verdict.reason }] : [],
  );
}
