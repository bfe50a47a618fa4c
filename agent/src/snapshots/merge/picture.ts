/**
 * What merging decides upon: the files of a domain's disks as they stand on each other, who asks for which, and what is
 * known of deleted states. Plain data and questions to it; nothing here talks to libvirt.
 */
import type { DomainMetadata } from '../../domain-xml/index.ts';
import type { SavedState } from '../chain.ts';

/** The top of a running domain's disk. */
export interface LiveTop {
  path: string;
  /** An active commit or copy that runs or waits for its pivot. */
  mirror: { job: string; ready: boolean; path: string | null } | null;
  /** The kind of block job that runs, in libvirt's words. */
  job: string | null;
  /** Bytes that the job has dealt with. */
  jobDone?: number;
}

export interface ChainPicture {
  domainId: string;
  power: 'running' | 'off';
  /** libvirt knows it also while it is off. */
  persistent: boolean;
  /** It is off, and its next start goes on from its memory, with the files that it had (managed save). */
  memorySaved: boolean;
  /** Per target what the running domain writes to; empty when it is off. */
  live: ReadonlyMap<string, LiveTop>;
  /** Per target what the next start would write to; empty for a transient domain. */
  config: ReadonlyMap<string, string>;
  /** The saved states, without the temporary ones of backups. */
  states: readonly SavedState[];
  /** The temporary ones. */
  automatic: readonly SavedState[];
  /** The files that exist, with the one that each stands on; null for a bottom one. */
  files: ReadonlyMap<string, string | null>;
  /** Those of the files in which internal states lie, be they in libvirt's list or not. */
  inner: ReadonlySet<string>;
  metadata: DomainMetadata;
  /** Of the files that an operation made: those that nothing was ever written to. */
  empty: ReadonlySet<string>;
  /** Of the overlays that an operation or a loan made and whose merge did not begin: whether their lower file was written to since, as far as that can be told. */
  since: ReadonlyMap<string, 'same' | 'written'>;
  /** Of the layers noted as lent those that are gone for good: the file that each stood on is there without it. */
  gone: ReadonlySet<string>;
  /** Files that somebody else uses, and who. */
  foreign: ReadonlyMap<string, string>;
  /** libvirt is making a state: it goes on with one although whoever asked for it is gone. */
  saving: boolean;
}

export const allStates = ({ states, automatic }: ChainPicture): SavedState[] => [...states, ...automatic];

/** Files that stand right on this one. */
export function readersOf(picture: ChainPicture, path: string): string[] {
  return [...picture.files].filter(([, below]) => below === path).map(([reader]) => reader);
}

/** The running or the next domain writes to it. */
export function isTop(picture: ChainPicture, path: string): boolean {
  return (
    [...picture.live.values()].some(top => top.path === path) || [...picture.config.values()].includes(path)
  );
}

/** States that keep this file. */
export function keepersOf(picture: ChainPicture, path: string): SavedState[] {
  return allStates(picture).filter(state => keptFiles(state).some(kept => kept.path === path));
}

/** What an external state froze, per disk. */
export function keptFiles(state: SavedState): { targetDev: string; path: string }[] {
  return Object.keys(state.overlays).flatMap(targetDev => {
    const path = state.frozen[targetDev];
    return path === undefined ? [] : [{ targetDev, path }];
  });
}

/**
 * Why a file must not be merged into the one below it, or null. An internal state has only what was written until then in the file itself,
 * and reads the rest from the files below: they may be merged among themselves, and others into its file, but not its file.
 */
export function innerReason(picture: ChainPicture, path: string): string | null {
  if (!picture.inner.has(path)) return null;
  const names = picture.states
    .filter(({ internalDisks, frozen }) => internalDisks.some(targetDev => frozen[targetDev] === path))
    .map(({ name }) => `"${name}"`);
  const what =
    names.length > 0
      ? `the internal state ${names.join(', ')} lies in ${path}`
      : `an internal state that libvirt does not list lies in ${path}`;
  return `${what} and would be spoiled by its merge; delete it first, with the VM off`;
}

/** It is there, and nobody else uses it. */
export const isRemovable = ({ files, foreign }: ChainPicture, path: string): boolean =>
  files.has(path) && !foreign.has(path);

/** A file and all that it stands on. */
export function filesFrom(picture: ChainPicture, top: string): string[] {
  const found: string[] = [];
  for (let path: string | null | undefined = top; path && !found.includes(path); ) {
    found.push(path);
    path = picture.files.get(path);
  }
  return found;
}

/** The disk of the running domain whose chain holds the file. */
export function liveDiskOf(picture: ChainPicture, path: string): string | undefined {
  return [...picture.live].find(([, top]) => filesFrom(picture, top.path).includes(path))?.[0];
}

/**
 * Why no layer of the domain may be merged, moved or removed now, or null. The saved memory holds the definition that it
 * goes on with, and so names the files of that moment.
 */
export function heldReason({ memorySaved }: Pick<ChainPicture, 'memorySaved'>): string | null {
  return memorySaved
    ? 'its memory is saved (managed save) and goes on only with its disks as they are; start it, or discard the memory with "virsh managedsave-remove"'
    : null;
}
