/** Restore points of a backup of virtnbdbackup's: which files of which disk, in which order; pure. */
import type { VirtnbdDataName } from '@virtkeep/shared/virtnbd-names';
import { Fault, shown } from '../fault.ts';
import type { StreamHeader } from './header.ts';

export interface VirtnbdDataFile extends VirtnbdDataName {
  name: string;
  /** By which it is held. */
  path: string;
  sizeBytes: number;
  changed: Date;
  /** Null: the bytes of a raw disk. */
  header: StreamHeader | null;
}

export interface VirtnbdState {
  /** Its checkpoint; `copy`; `diff.<seconds since 1970>` of a differential backup: when its definition was written, else its only disk. */
  name: string;
  written: Date;
  /** In the name of its definition. */
  definition: string;
  /** By the target of the disk its files, each to be applied upon those before. */
  disks: ReadonlyMap<string, readonly VirtnbdDataFile[]>;
  /** Targets of which other states have data, and this one has not. */
  lacking: readonly string[];
}

/** Of one disk, by the names of states. */
type Chains = ReadonlyMap<string, readonly VirtnbdDataFile[]>;

/**
 * Oldest first. The tool itself goes by the times of the files, which a copy of them does not keep; here each names the one that it
 * stands upon.
 * @throws Fault when one stands upon what is not there, or is of another size than the first
 */
export function statesOf(found: readonly VirtnbdDataFile[], records: VirtnbdRecords): VirtnbdState[] {
  const files = byRuns(found, records);
  const filesOf = Map.groupBy(files, ({ target }) => target);
  const targets = [...filesOf.keys()].sort();
  const chains = new Map(targets.map(target => [target, chainsOf(filesOf.get(target)!)]));
  const names = new Set([...chains.values()].flatMap(chain => [...chain.keys()]));
  const states = [...names].map(name => stateOf(name, chains));
  return states.sort((a, b) => a.written.getTime() - b.written.getTime() || compare(a.name, b.name));
}

/** What the names of the files beside the data say. */
export interface VirtnbdRecords {
  /** Of which checkpoint or second each definition is. */
  definitions: readonly string[];
  /** The descriptions of qcow2 disks that each run writes after its definition. */
  described: readonly { target: string; second: number }[];
}

/** Disks without a description that are begun so close together are of one run: the tool itself takes longer to start, s. */
const SPREAD_S = 2;

/**
 * The files of a differential backup bear the second in which each disk was begun, so those of one run have several; its definition is
 * written after the last of them, and then a description of each disk. Each file is given the second of the definition when it is known to
 * be of that run. All others keep their own: disks of two moments must not become one state.
 */
function byRuns(
  files: readonly VirtnbdDataFile[],
  { definitions, described }: VirtnbdRecords,
): VirtnbdDataFile[] {
  const seconds = definitions
    .flatMap(ident => (/^\d+$/.test(ident) ? [Number(ident)] : []))
    .sort((a, b) => a - b);
  const differential = files
    .filter(({ kind }) => kind === 'diff')
    .sort((a, b) => Number(b.ident) - Number(a.ident));
  const runs = Map.groupBy(differential, ({ ident }) => seconds[countUntil(seconds, Number(ident) - 1)]);
  const disksOf = Map.groupBy(described, one => seconds[countUntil(seconds, one.second) - 1]);
  const runOf = new Map<VirtnbdDataFile, number>();
  for (const [run, newestFirst] of runs) {
    if (run === undefined) continue;
    const disks = disksOf.get(run);
    const targets = disks && new Set(disks.map(({ target }) => target));
    const ofRun = newestFirst.filter(({ target }) => targets?.has(target) ?? true);
    const newest = ofRun[0];
    const met = new Set<string>();
    for (const file of ofRun) {
      const isNewestOfDisk = !met.has(file.target);
      met.add(file.target);
      const isNear = targets !== undefined || Number(newest!.ident) - Number(file.ident) <= SPREAD_S;
      if (isNewestOfDisk && isNear && file.header?.parent === newest!.header?.parent) runOf.set(file, run);
    }
  }
  return files.map(file => ({ ...file, ident: String(runOf.get(file) ?? file.ident) }));
}

/** How many of them, which are sorted, are not after that second. There may be as many as files in a directory. */
function countUntil(seconds: readonly number[], second: number): number {
  let [low, high] = [0, seconds.length];
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    if (seconds[middle]! <= second) low = middle + 1;
    else high = middle;
  }
  return low;
}

const compare = (a: string, b: string): number => a.localeCompare(b, 'en', { numeric: true });

function stateOf(name: string, chains: ReadonlyMap<string, Chains>): VirtnbdState {
  const disks = new Map<string, readonly VirtnbdDataFile[]>();
  const lacking: string[] = [];
  for (const [target, chain] of chains) {
    const files = chain.get(name);
    if (files) disks.set(target, files);
    else lacking.push(target);
  }
  const last = [...disks.values()].map(files => files.at(-1)!);
  // a copy of a raw disk's file may be younger than all of them
  const told = last.flatMap(({ header }) => (header ? [header.written] : []));
  const times = (told.length > 0 ? told : last.map(({ changed }) => changed)).map(time => time.getTime());
  const definition = name.replace(/^diff\.|\.offline$/g, '');
  return { name, written: new Date(Math.max(...times)), definition, disks, lacking };
}

function chainsOf(files: readonly VirtnbdDataFile[]): Chains {
  const [base, ...others] = files.filter(({ kind }) => kind === 'full' || kind === 'copy');
  const { target } = files[0]!;
  if (base === undefined) throw new Fault(`there is no full backup of the disk ${shown(target)}`);
  if (others.length > 0) throw new Fault(`there are two full backups of the disk ${shown(target)}`);
  const first = base.kind === 'copy' ? 'copy' : (base.header?.checkpoint ?? 'virtnbdbackup.0');
  const chains = new Map([[first, [base]]]);
  const increments = files.filter(({ kind }) => kind === 'inc').sort((a, b) => compare(a.ident, b.ident));
  for (const file of increments) chains.set(stateNameOf(file), [...below(chains, file, base), file]);
  for (const file of files.filter(({ kind }) => kind === 'diff'))
    chains.set(stateNameOf(file), [...below(chains, file, base), file]);
  return chains;
}

/** What an increment of a VM that was off adds to a checkpoint is a state of its own: the next increment stands upon the checkpoint. */
function stateNameOf({ kind, ident, header }: VirtnbdDataFile): string {
  if (kind === 'diff') return `diff.${ident}`;
  return header?.parent === ident ? `${ident}.offline` : ident;
}

/** @throws Fault */
function below(
  chains: Chains,
  { name, kind, ident, header }: VirtnbdDataFile,
  base: VirtnbdDataFile,
): readonly VirtnbdDataFile[] {
  if (header === null || base.header === null) throw new Fault(`${shown(name)} is no increment`);
  if (kind === 'inc' && header.checkpoint !== ident)
    throw new Fault(`${shown(name)} is of the checkpoint ${header.checkpoint}`);
  if (header.virtualSizeBytes !== base.header.virtualSizeBytes)
    throw new Fault(`${shown(name)} is of a disk of another size than its full backup`);
  const files = chains.get(header.parent);
  if (files === undefined)
    throw new Fault(`${shown(name)} stands upon ${header.parent || 'no checkpoint'}, which is not there`);
  return files;
}
