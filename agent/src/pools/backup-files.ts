/**
 * The backup files of the node's pools, as last seen. A file is read when its size or time changed, so that listing again
 * costs a stat for each file; an archive's manifest is read through an injected function, since pools do not know archives.
 */
import { basename, dirname, join, relative } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { BACKUPS_DIR, type SizeAndChange } from '@virtkeep/shared/beneath';
import { errnoOf, hasKey, isVirtkeepError, reasonOf } from '@virtkeep/shared/errors';
import { readForeign } from '@virtkeep/shared/foreign-file';
import type { BackupFile, BackupState, DiskImage } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { uuidV5 } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { parseDomain } from '../domain-xml/index.ts';
import { type FileKind, fileKind, type ListLimits, listBackupPaths, type Skipped } from './backup-dir.ts';
import { factsOf, glanceAt } from './file-facts.ts';

/** What an archive's newest manifest says. */
export interface ArchiveSummary {
  backupId: string;
  domainId: string;
  domainName: string;
  created: Date;
  hashed: boolean;
  states: BackupState[];
  canBeIncremental: boolean;
  requiredStates: string[];
  fallbackReason: string;
  templateId: string;
  isTemplate: boolean;
  manifestJson: string;
  /** Why it is not to be extended, however its VM is; empty while it may grow. */
  grown: string;
  /** What is wrong with an archive of which older states can still be read. */
  damage?: string;
  /** Of a disk image. */
  image?: DiskImage;
  /** Files that an OVF descriptor names, relative to it. */
  parts?: readonly string[];
}

/**
 * Reads an archive's manifest, or what an archive of others, an OVA, an OVF descriptor or a disk image has in its place; null: it must be unpacked for that,
 * which is done only with `isThorough`. What it does not tell is not known. @throws VirtkeepError archive_damaged, archive_unsupported,
 * ovf_invalid, ovf_version_unsupported, foreign_disk_invalid, disk_format_contradicted: shown as `damage`; io_failed, timed_out, qemu_img_failed, errors
 * of Node: shown, too, and tried again; file_busy: the file is what it was when it was last read
 */
export type ReadArchive = (
  path: string,
  signal: AbortSignal,
  isThorough: boolean,
) => Promise<Partial<ArchiveSummary> | null>;

interface RefreshOptions {
  signal: AbortSignal;
  /** Files that have not changed are read, too. */
  fresh?: boolean;
  /** Files that must be unpacked to be read are read, too, unless they have been read since their last change. */
  thorough?: boolean;
}

type Place = { id: string; path: string };

interface Entry {
  poolId: string;
  filename: string;
  size: bigint;
  mtimeNs: bigint;
  birthNs: bigint;
  /** When it is read again though it has not changed, in ms of `performance.now`. */
  againMs: number;
  path: string;
  changed: Date;
  /** What was read of it. Its whole record is made when it is told: most of its fields say nothing, and a pool has tens of thousands. */
  read: Partial<BackupFile> | undefined;
  /** The id in the manifest; empty for files made elsewhere. */
  ownId: string;
  /** It was unpacked to be read, which is not done again while it is the same file. */
  isUnpacked: boolean;
  /** Files that it names, relative to the directory of backups. */
  parts: readonly string[];
}

/** The files by path. How many a pool has is asked at every change of a VM, and known without looking at each. */
class Entries extends Map<string, Entry> {
  readonly #counts = new Map<string, number>();

  count(poolId: string): number {
    return this.#counts.get(poolId) ?? 0;
  }

  override set(path: string, entry: Entry): this {
    this.#add(path, -1);
    super.set(path, entry);
    this.#add(path, 1);
    return this;
  }

  override delete(path: string): boolean {
    this.#add(path, -1);
    return super.delete(path);
  }

  /** To the count of the pool that has the file, if one has it. */
  #add(path: string, change: number): void {
    const poolId = this.get(path)?.poolId;
    if (poolId !== undefined) this.#counts.set(poolId, this.count(poolId) + change);
  }
}

/** What was read of a file. */
interface ReadFile {
  ownId: string;
  read?: Partial<BackupFile>;
  /** Nothing was read, since somebody writes the file. */
  isBusy?: boolean;
  /** Something beside the file is why it was not read: it is tried again. */
  isPassing?: boolean;
  isUnpacked?: boolean;
  parts?: readonly string[];
}

/** Files of a pool, in the order of their paths. */
export interface FoundFiles extends Iterable<BackupFile> {
  count: number;
  damaged: readonly Pick<BackupFile, 'filename' | 'damage'>[];
}

/** libvirt takes no larger definition of a domain. */
const MAX_DEFINITION_BYTES = 4 * MiB;

/** What is wrong with a file whoever reads it. */
const OF_THE_FILE = [
  ...(['archive_damaged', 'archive_unsupported'] as const),
  ...(['appliance_invalid', 'ovf_invalid', 'ovf_version_unsupported'] as const),
];

/** Files that are glanced at before the first of them is looked at: finding the directory is shared by many, and no glance gets old. */
const GLANCE_AT = 256;
/** What cannot be read is not tried again before so many times as long as that took: a disk that fails takes its time. */
const REST_FACTOR = 20;

export class BackupFiles {
  readonly #readArchive: ReadArchive;
  readonly #limits: ListLimits | undefined;
  readonly #entries = new Entries();
  readonly #skipped = new Map<string, Skipped[]>();
  /** Pools of which all was looked at in this run. */
  readonly #looked = new Set<string>();
  /** How often what was seen of a pool came to be in doubt: a look that was under way then vouches for nothing. */
  readonly #losses = new Map<string, number>();

  constructor(readArchive: ReadArchive, limits?: ListLimits) {
    this.#readArchive = readArchive;
    this.#limits = limits;
  }

  /** The files of a pool (of all pools) as last seen, in the order of their paths; never touches the disk. */
  files(poolId?: string): BackupFile[] {
    return [...this.found(poolId)];
  }

  /** The same, as they are now, but each record is made when it is asked for. */
  found(poolId?: string): FoundFiles {
    const entries = [...this.#entries.values()].filter(entry => (poolId ?? entry.poolId) === entry.poolId);
    entries.sort((a, b) => (a.path < b.path ? -1 : 1));
    const owners = this.#owners();
    const isOwner = (entry: Entry) => owners.get(entry.ownId) === entry;
    return {
      count: entries.length,
      damaged: entries.flatMap(({ filename, read }) =>
        read?.damage ? { filename, damage: read.damage } : [],
      ),
      *[Symbol.iterator]() {
        for (const entry of entries) yield recordOf(entry, isOwner(entry));
      },
    };
  }

  count(poolId: string): number {
    return this.#entries.count(poolId);
  }

  /** What is known of the pool is all that it had at a time in this run, and it has been there since. */
  hasLookedAt(poolId: string): boolean {
    return this.#looked.has(poolId);
  }

  /** It is not there: what is found in its place is not what it has. */
  lostSight(poolId: string): void {
    this.#looked.delete(poolId);
    this.#losses.set(poolId, (this.#losses.get(poolId) ?? 0) + 1);
  }

  /** Files with a backup's name in a pool that could not be read at the last look. */
  skipped(poolId: string): readonly Skipped[] {
    return this.#skipped.get(poolId) ?? [];
  }

  /**
   * Looks at a pool's `backups/` and reads what changed.
   * @returns true when something is different from before
   * @throws VirtkeepError io_failed when the directory cannot be read; canceled
   */
  async refresh(pool: Place, options: RefreshOptions): Promise<boolean> {
    const directory = join(pool.path, BACKUPS_DIR);
    const losses = this.#losses.get(pool.id);
    // What comes in while the directory is read, by another refresh, need not be in this listing.
    const before = [...this.#entries.values()]
      .filter(entry => entry.poolId === pool.id)
      .map(({ path }) => path);
    const { names, skipped, isCut } = await listBackupPaths(directory, this.#limits);
    const present = new Set(names.map(name => join(directory, name)));
    // what a listing that was cut does not have may well be there
    const unlisted = isCut ? before.filter(path => !present.has(path)) : [];
    let changed = isCut ? false : this.#dropMissing(before, present);
    if (isCut) skipped.push({ filename: '', reason: `${directory} has more names than are looked at` });
    this.#skipped.set(pool.id, skipped);
    const all = [...names, ...unlisted.map(path => relative(directory, path))];
    const isImage = (name: string) => fileKind(name)?.type === 'disk';
    const backups = all.filter(name => !isImage(name));
    if (await this.#lookAtAll(pool, backups, options)) changed = true;
    const parts = this.#parts(pool.id);
    const images = all.filter(isImage);
    for (const name of images.filter(name => parts.has(name)))
      if (this.#entries.delete(join(directory, name))) changed = true;
    const alone = images.filter(name => !parts.has(name));
    if (await this.#lookAtAll(pool, alone, options)) changed = true;
    if (losses === this.#losses.get(pool.id)) this.#looked.add(pool.id);
    return changed;
  }

  /** Most files are as they were: a glance at many of a directory at once tells it. */
  async #lookAtAll(pool: Place, filenames: readonly string[], options: RefreshOptions): Promise<boolean> {
    let changed = false;
    for (const { directory, names } of besideEachOther(filenames)) {
      const place = join(pool.path, BACKUPS_DIR, directory);
      const glances = options.fresh ? undefined : await glanceAt(place, names);
      for (const name of names) {
        throwIfAborted(options.signal);
        const glance = glances?.get(name);
        if (glance && isAsRead(this.#entries.get(join(place, name)), pool, glance)) continue;
        if (await this.#look(pool, join(directory, name), options)) changed = true;
      }
    }
    return changed;
  }

  /** What the descriptors of a pool name: disks of theirs are no files for themselves. */
  #parts(poolId: string): Set<string> {
    const parts = new Set<string>();
    for (const entry of this.#entries.values())
      if (entry.poolId === poolId) for (const part of entry.parts) parts.add(part);
    return parts;
  }

  /** Forgets the files of pools that are gone. */
  keepOnly(poolIds: ReadonlySet<string>): void {
    for (const [path, { poolId }] of this.#entries) {
      if (poolIds.has(poolId)) continue;
      this.#entries.delete(path);
      this.lostSight(poolId);
    }
    for (const poolId of this.#skipped.keys()) if (!poolIds.has(poolId)) this.#skipped.delete(poolId);
    for (const poolId of this.#looked) if (!poolIds.has(poolId)) this.#looked.delete(poolId);
  }

  /** Two refreshes may look at one file at a time while others change it: the result of the later reading is kept, whichever ends last. */
  async #look(pool: Place, filename: string, options: RefreshOptions): Promise<boolean> {
    const path = join(pool.path, BACKUPS_DIR, filename);
    const facts = await factsOf(path);
    if (!facts) return this.#entries.delete(path);
    const old = this.#entries.get(path);
    const isKnown = isAsRead(old, pool, facts);
    if (isKnown && !options.fresh) return false;
    // what was unpacked once is not unpacked again while its size and times are the same: only they show a change
    if (isKnown && old.isUnpacked && old.birthNs === facts.birthtimeNs) return false;
    const kind = fileKind(filename)!;
    const beganMs = performance.now();
    const found = await this.#read(path, kind, options);
    const readMs = performance.now();
    const { ownId, isBusy, isUnpacked = false, read, parts = [] } = found;
    // when its writer fails, the file is again what it was before; when it succeeds, the file has changed and is read again
    if (isBusy && old?.poolId === pool.id) return false;
    const now = await factsOf(path);
    if (!now) return this.#entries.delete(path);
    const isOld = !isSame(facts, now);
    if (isOld && this.#entries.get(path) !== old) return false;
    this.#entries.set(path, {
      poolId: pool.id,
      filename,
      path,
      size: facts.size,
      mtimeNs: facts.mtimeNs,
      birthNs: facts.birthtimeNs,
      againMs: isOld ? 0 : readMs + restOf(found, readMs - beganMs),
      changed: facts.mtime,
      // a piece of an XML keeps all of it in memory for as long as it is kept itself
      read: structuredClone(read),
      ownId,
      isUnpacked,
      parts: parts.map(part => join(dirname(filename), part)),
    });
    return true;
  }

  async #read(path: string, kind: FileKind, options: RefreshOptions): Promise<ReadFile> {
    try {
      if (kind.type === 'tar' || kind.type === 'OVA') return await this.#readPacked(path, options);
      if (kind.type === 'xml') {
        const xml = (await readForeign(path, MAX_DEFINITION_BYTES)).toString('utf8');
        const { uuid, name, metadata } = parseDomain(xml, path);
        return {
          ownId: '',
          read: { domainId: uuid, domainName: name, isTemplate: metadata.template },
        };
      }
      return readAs(await this.#readArchive(path, options.signal, false));
    } catch (error) {
      throwIfAborted(options.signal);
      return unreadable(error);
    }
  }

  /** What may have to be unpacked for that. */
  async #readPacked(path: string, { signal, thorough }: RefreshOptions): Promise<ReadFile> {
    const glance = await this.#readArchive(path, signal, false);
    if (glance !== null || !thorough) return readAs(glance);
    try {
      return { ...readAs(await this.#readArchive(path, signal, true)), isUnpacked: true };
    } catch (error) {
      throwIfAborted(signal);
      // what the file itself is stays so; a server that was away may be back
      const isUnpacked = hasKey(error, ...OF_THE_FILE);
      // a mere look, which does not unpack, would take back what is wrong
      return { ...unreadable(error), isPassing: false, isUnpacked };
    }
  }

  #dropMissing(before: readonly string[], present: ReadonlySet<string>): boolean {
    const missing = before.filter(path => !present.has(path));
    return missing.filter(path => this.#entries.delete(path)).length > 0;
  }

  /** Of several files with one id (a copy by hand), the one made first keeps it; a copy is made later by nature. */
  #owners(): Map<string, Entry> {
    const owners = new Map<string, Entry>();
    for (const entry of this.#entries.values()) {
      if (entry.ownId === '') continue;
      const other = owners.get(entry.ownId);
      if (!other || isBefore(entry, other)) owners.set(entry.ownId, entry);
    }
    return owners;
  }
}

/** In their order, as groups of names in one directory. */
function* besideEachOther(filenames: readonly string[]): Generator<{ directory: string; names: string[] }> {
  let [directory, names]: [string, string[]] = ['', []];
  for (const filename of filenames) {
    if (names.length > 0 && (names.length === GLANCE_AT || directory !== dirname(filename))) {
      yield { directory, names };
      names = [];
    }
    directory = dirname(filename);
    names.push(basename(filename));
  }
  if (names.length > 0) yield { directory, names };
}

function readAs(summary: Partial<ArchiveSummary> | null): ReadFile {
  const { backupId: ownId = '', parts = [], ...read } = summary ?? {};
  return { ownId, read, parts };
}

const unreadable = (error: unknown): ReadFile => ({
  ownId: '',
  read: { damage: reasonOf(error) },
  isBusy: hasKey(error, 'file_busy'),
  isPassing:
    (!isVirtkeepError(error) && errnoOf(error) !== undefined) ||
    hasKey(error, 'io_failed', 'timed_out', 'qemu_img_failed'),
});

/** So long a file that stays as it is is not read again, ms. */
function restOf({ isBusy, isPassing }: ReadFile, readMs: number): number {
  if (isBusy) return 0;
  return isPassing ? REST_FACTOR * readMs : Number.POSITIVE_INFINITY;
}

/** It is the file that was read, and not to be read again yet. */
const isAsRead = (old: Entry | undefined, { id }: Place, facts: SizeAndChange): old is Entry =>
  old?.poolId === id && isSame(old, facts) && performance.now() < old.againMs;

const isSame = (a: SizeAndChange, b: SizeAndChange): boolean => a.size === b.size && a.mtimeNs === b.mtimeNs;

function isBefore(a: Entry, b: Entry): boolean {
  if (a.birthNs !== b.birthNs) return a.birthNs < b.birthNs;
  return a.path < b.path;
}

/** @param isOwner it has the id in its manifest; others have that of files made elsewhere */
function recordOf(entry: Entry, isOwner: boolean): BackupFile {
  const { size, changed: created, ownId: archiveId, read } = entry;
  const plain = plainFile(entry, { size, created });
  return { ...plain, ...read, id: isOwner ? archiveId : plain.id, archiveId };
}

/** The record of a backup file of which nothing but its name is read; its id is that of files made elsewhere. */
export function plainFile(
  { poolId, filename, path }: { poolId: string; filename: string; path: string },
  { size, created }: { size: bigint; created: Date },
): BackupFile {
  const { type, compressed } = fileKind(filename)!;
  return {
    id: uuidV5(poolId, filename),
    archiveId: '',
    poolId,
    filename,
    path,
    size,
    type,
    compressed,
    domainId: '',
    domainName: '',
    created,
    hashed: false,
    states: [],
    canBeIncremental: false,
    requiredStates: [],
    fallbackReason: '',
    damage: '',
    templateId: '',
    isTemplate: false,
    manifestJson: '',
    grown: '',
    image: undefined,
  };
}
