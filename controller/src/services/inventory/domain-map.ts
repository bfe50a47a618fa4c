/** The domains of all nodes by id, and what is asked of all of them at once, so that nobody goes through a hundred thousand for it. */
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { DomainEntry } from './kept-domain.ts';

/** Hears of each domain that is put, or taken away. */
export type DomainListener = (
  id: string,
  before: DomainEntry | undefined,
  after: DomainEntry | undefined,
) => void;

const NONE: ReadonlySet<string> = new Set();

export class DomainMap extends Map<string, DomainEntry> {
  readonly #ofNode = new Groups();
  readonly #ofParent = new Groups();
  readonly #named = new Groups();
  readonly #withDisk = new Groups();
  readonly #lenders = new Set<string>();
  readonly #borrowers = new Set<string>();
  readonly #withDrive = new Set<string>();
  /** How many run, by node. */
  readonly #running = new Map<string, number>();
  readonly #listeners: DomainListener[] = [];

  override set(id: string, entry: DomainEntry): this {
    const before = this.get(id);
    super.set(id, entry);
    this.#regroup(id, before, entry);
    for (const listener of this.#listeners) listener(id, before, entry);
    return this;
  }

  override delete(id: string): boolean {
    const before = this.get(id);
    if (!before) return false;
    super.delete(id);
    this.#regroup(id, before, undefined);
    for (const listener of this.#listeners) listener(id, before, undefined);
    return true;
  }

  /** The same id, as the text that is kept here: what is kept of a hundred thousand VMs elsewhere keeps no texts of its own. */
  ownId(id: string): string {
    return this.get(id)?.id ?? id;
  }

  onChange(listener: DomainListener): void {
    this.#listeners.push(listener);
  }

  /** Ids of those that a node has. */
  ofNode(nodeId: string): ReadonlySet<string> {
    return this.#ofNode.of(nodeId);
  }

  /** How many of a node's domains run. */
  runningOn(nodeId: string): number {
    return this.#running.get(nodeId) ?? 0;
  }

  /** Ids of the thin clones of a template. */
  clonesOf(id: string): ReadonlySet<string> {
    return this.#ofParent.of(id);
  }

  /** Ids of those that are called so. */
  named(name: string): ReadonlySet<string> {
    return this.#named.of(name);
  }

  /** Ids of those that own a disk; several share it where there are more. */
  withDisk(diskId: string): ReadonlySet<string> {
    return this.#withDisk.of(diskId);
  }

  /** Ids of all disks, each once. */
  diskIds(): Iterable<string> {
    return this.#withDisk.keys();
  }

  /** Those that lent a disk. */
  lenders(): DomainEntry[] {
    return this.#entriesOf(this.#lenders);
  }

  /** Those that have a disk of another one. */
  borrowers(): DomainEntry[] {
    return this.#entriesOf(this.#borrowers);
  }

  /** Those that have something of a data pool in a CD drive. */
  withDrive(): DomainEntry[] {
    return this.#entriesOf(this.#withDrive);
  }

  #entriesOf(ids: Iterable<string>): DomainEntry[] {
    return Array.from(ids, id => this.get(id)!);
  }

  #regroup(id: string, before: DomainEntry | undefined, after: DomainEntry | undefined): void {
    this.#ofNode.move(id, before?.nodeId, after?.nodeId);
    this.#ofParent.move(id, before?.kept.parentId || undefined, after?.kept.parentId || undefined);
    this.#named.move(id, before?.name, after?.name);
    this.#countRunning(before, -1);
    this.#countRunning(after, 1);
    const former = new Set(before?.domain.disks.map(disk => disk.id));
    const domain = after?.domain;
    const present = new Set(domain?.disks.map(disk => disk.id));
    for (const disk of former) if (!present.has(disk)) this.#withDisk.move(id, disk, undefined);
    for (const disk of present) if (!former.has(disk)) this.#withDisk.move(id, undefined, disk);
    mark(this.#lenders, id, domain !== undefined && domain.loans.length > 0);
    mark(this.#borrowers, id, domain !== undefined && domain.attachments.length > 0);
    mark(this.#withDrive, id, domain?.cdroms.some(drive => drive.poolId !== '') === true);
  }

  #countRunning(entry: DomainEntry | undefined, by: 1 | -1): void {
    if (entry?.kept.powerState !== PowerState.RUNNING) return;
    const { nodeId } = entry;
    this.#running.set(nodeId, this.runningOn(nodeId) + by);
  }
}

function mark(ids: Set<string>, id: string, isSo: boolean): void {
  if (isSo) ids.add(id);
  else ids.delete(id);
}

/** Ids that have something in common. Of names and disks nearly all have one each, which is kept without a set of its own. */
class Groups {
  readonly #ids = new Map<string, string | Set<string>>();

  of(key: string): ReadonlySet<string> {
    const ids = this.#ids.get(key);
    return ids === undefined ? NONE : typeof ids === 'string' ? new Set([ids]) : ids;
  }

  keys(): Iterable<string> {
    return this.#ids.keys();
  }

  move(id: string, from: string | undefined, to: string | undefined): void {
    if (from === to) return;
    if (from !== undefined) this.#remove(id, from);
    if (to !== undefined) this.#add(id, to);
  }

  #remove(id: string, key: string): void {
    const ids = this.#ids.get(key);
    if (ids === id) this.#ids.delete(key);
    else if (ids instanceof Set && ids.delete(id) && ids.size === 0) this.#ids.delete(key);
  }

  #add(id: string, key: string): void {
    const ids = this.#ids.get(key);
    if (ids === undefined) this.#ids.set(key, id);
    else if (typeof ids === 'string') this.#ids.set(key, new Set([ids, id]));
    else ids.add(id);
  }
}
