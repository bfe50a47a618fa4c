/**
 * The chain of a VM as plain data: what each disk consists of, which saved state froze which layer.
 *
 * A disk is a stack of files. The bottom one is complete, each further one holds what was written since the one below
 * was frozen, the top one is being written. An external saved state freezes the top of every disk and puts an overlay
 * on it: `frozen` is what it keeps, `overlays` what it made. An internal state lives inside one qcow2 file and freezes
 * nothing. Computed from the domain XML, the states' XML and the images' headers; nothing here talks to libvirt.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';

export interface Layer {
  path: string;
  /** "qcow2", "raw", or another of qemu-img's words. */
  format: string;
  /** The saved state that froze it; null for the active layer and for plain backing files. */
  frozenBy: string | null;
  /** The saved state that made it as an overlay; null for the first layer and for plain backing files. */
  madeBy: string | null;
  virtualSize: number;
  allocatedSize: number;
  /** Bytes of the file, holes included. */
  fileSize: number;
}

export interface DiskChain {
  targetDev: string;
  /** Bottom to top; the last one is what the domain writes to. */
  layers: Layer[];
}

/** A saved state of libvirt, from its XML. */
export interface SavedState {
  name: string;
  parent: string | null;
  current: boolean;
  description: string;
  /** Unix time, seconds. */
  createdUnix: number;
  /** When a state of the domain was last deleted or reverted to, by the domain's metadata at the time of this one. */
  deletedBefore?: Date;
  memory: 'no' | 'internal' | 'external';
  memoryPath: string | null;
  /** Per target: the overlay file that an external state made. */
  overlays: Record<string, string>;
  /** Per target: the source of the disk when the state was made, as the state's own domain XML says. */
  frozen: Record<string, string>;
  /** Per target: the format of `frozen`, as the state's own domain XML says. */
  frozenFormats?: Record<string, string>;
  /** Targets with an internal snapshot inside the image. */
  internalDisks: string[];
  /** A deletion by libvirt was interrupted; repeating it completes it. */
  deleting: boolean;
  /** The XML as libvirt gives it, with passwords. */
  xml: string;
}

export interface VmChain {
  disks: DiskChain[];
  /** Parents before children. */
  states: SavedState[];
}

/** One file of a disk, from its header. */
export interface ChainFile {
  path: string;
  format: string;
  /** Bytes the guest sees through it. */
  virtualSize: number;
  /** Bytes allocated on the file system, and of the file with its holes. */
  allocatedSize: number;
  fileSize: number;
  /** Its content is ciphertext, as its header says. */
  encrypted?: boolean;
  /** As its header says. */
  backingFormat?: string;
}

/**
 * Joins the disks' files with the states. Files are recognised by their path: a disk may have changed its target since.
 * @param disks per disk the files, top (active) first
 * @param detached files that states keep of disks which were taken away, or replaced by others at their targets
 * @throws VirtkeepError snapshot_chain_unsupported when a state froze a file that is not below the active one: the
 *   states branch, or the files were moved
 */
export function buildChain(
  domainName: string,
  disks: { targetDev: string; files: ChainFile[] }[],
  states: SavedState[],
  detached: ReadonlySet<string> = new Set(),
): VmChain {
  const refuse = (reason: string) =>
    new VirtkeepError('snapshot_chain_unsupported', { domain: domainName, reason });
  const sorted = parentsFirst(states);
  const branching = branchPoint(states);
  if (branching) throw refuse(`the states branch at "${branching}"`);
  const chains = disks.map(({ targetDev, files }) => {
    const layers = files.toReversed().map(({ path, format, virtualSize, allocatedSize, fileSize }) => ({
      path,
      format,
      virtualSize,
      allocatedSize,
      fileSize,
      frozenBy: sorted.findLast(state => Object.values(keptOf(state)).includes(path))?.name ?? null,
      madeBy: sorted.find(state => Object.values(state.overlays).includes(path))?.name ?? null,
    }));
    return { targetDev, layers };
  });
  const present = new Set(chains.flatMap(({ layers }) => layers.map(({ path }) => path)));
  for (const state of sorted) {
    if (state.deleting) throw refuse(`the deletion of "${state.name}" was interrupted; delete it again`);
    for (const [targetDev, kept] of Object.entries(keptOf(state))) {
      const isWanted = chains.some(chain => chain.targetDev === targetDev);
      if (isWanted && !present.has(kept) && !detached.has(kept))
        throw refuse(`"${state.name}" keeps ${kept}, which is not below the active file of ${targetDev}`);
    }
  }
  return { disks: chains, states: sorted };
}

/** It lies inside of the images: made, deleted and reverted to by libvirt itself. */
export const isInternal = ({ internalDisks, memory }: SavedState): boolean =>
  internalDisks.length > 0 || memory === 'internal';

/** What an external state froze, per target that the disk had then. */
export function keptOf({ overlays, frozen }: SavedState): Record<string, string> {
  return Object.fromEntries(Object.entries(frozen).filter(([target]) => overlays[target] !== undefined));
}

/**
 * The states that the VM stands on, and the names of the others: after a revert, states newer than the one it went back to are
 * on a branch that it has left. Without a current state nothing is known of branches, and all states count as present.
 */
export function presentBranch(states: SavedState[]): { present: SavedState[]; left: string[] } {
  const byName = new Map(states.map(state => [state.name, state]));
  const path = new Set<string>();
  for (
    let at = states.find(state => state.current);
    at && !path.has(at.name);
    at = byName.get(at.parent ?? '')
  )
    path.add(at.name);
  if (path.size === 0) return { present: states, left: [] };
  // an internal state freezes no file, so it stays as long as the states it comes after do
  const isPresent = (state: SavedState): boolean =>
    path.has(state.name) ||
    (Object.keys(state.overlays).length === 0 &&
      (state.parent === null || !byName.has(state.parent) || isPresent(byName.get(state.parent)!)));
  const present = states.filter(isPresent);
  return { present, left: states.filter(state => !present.includes(state)).map(({ name }) => name) };
}

/** States sorted so that each comes after its parent; in order of creation among siblings. */
export function parentsFirst(states: SavedState[]): SavedState[] {
  const names = new Set(states.map(state => state.name));
  const byAge = states.toSorted((a, b) => a.createdUnix - b.createdUnix);
  const sorted: SavedState[] = [];
  const placed = new Set<string>();
  while (sorted.length < states.length) {
    const next = byAge.find(
      state =>
        !placed.has(state.name) &&
        (state.parent === null || !names.has(state.parent) || placed.has(state.parent)),
    );
    if (!next) break; // a cycle: libvirt never makes one
    placed.add(next.name);
    sorted.push(next);
  }
  return sorted;
}

/** Name of a state with two children that are external, or undefined. Internal states may branch: nothing is layered. */
function branchPoint(states: SavedState[]): string | undefined {
  const external = states.filter(state => Object.keys(state.overlays).length > 0);
  return (
    external.find(
      (state, index) =>
        state.parent !== null && external.findIndex(other => other.parent === state.parent) !== index,
    )?.parent ?? undefined
  );
}
