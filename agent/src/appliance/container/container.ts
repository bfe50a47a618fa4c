import { nameFault } from '../../archive/index.ts';
import { MAX_MEMBERS } from '../bounds.ts';
import { Fault, shown } from '../fault.ts';

/** A file of an appliance. */
export interface Member {
  name: string;
  sizeBytes: number;
  /** Where its bytes stand as they are; null when they must be unpacked first. */
  place: { path: string; offset: number } | null;
}

/** Gets the bytes of a member; what it leaves is not read. */
export type Take = (member: Member, bytes: AsyncIterable<Buffer>) => Promise<void>;

/** What holds the members of an appliance: a directory, a tar, a packed one, a zip. */
export interface Container {
  /** All there are; of a directory those that were found. */
  readonly members: readonly Member[];
  /**
   * A member by its name; undefined when there is none, and for a name that no member can have.
   * @throws VirtkeepError not_a_file, io_failed
   */
  find(name: string): Promise<Member | undefined>;
  /**
   * Hands out members, each once, in the order in which they come.
   * @throws Fault, VirtkeepError io_failed, canceled, or as `take` does
   */
  read(names: ReadonlySet<string>, take: Take, signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

/** Of members that are all known. A stranger's manifest may ask a hundred thousand times. The names differ (`checkNames`). */
export function findAmong(members: readonly Member[]): Container['find'] {
  const byName = new Map(members.map(member => [member.name, member]));
  return name => Promise.resolve(byName.get(name));
}

/** Refuses names that lead elsewhere or cannot be told from others, and too many of them. @throws Fault */
export function checkNames(names: readonly string[]): void {
  if (names.length > MAX_MEMBERS)
    throw new Fault(`it has ${names.length} members, at most ${MAX_MEMBERS} are read`);
  const seen = new Set<string>();
  for (const name of names) {
    const fault = name.includes('\uFFFD') ? 'it is not UTF-8' : pathFault(name);
    if (fault !== undefined) throw new Fault(`the member name ${shown(name)} is not allowed: ${fault}`);
    if (seen.has(name)) throw new Fault(`the member ${shown(name)} occurs twice`);
    seen.add(name);
  }
}

const pathFault = (name: string): string | undefined =>
  name.startsWith('/')
    ? 'it is absolute'
    : name
        .split('/')
        .map(nameFault)
        .find(fault => fault !== undefined);
