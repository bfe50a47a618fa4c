/**
 * Bringing a domain back to a saved state, decided without doing it. libvirt refuses external states, so it is done by
 * hand: a fresh overlay on each file that the state keeps, the definition that the state holds on these overlays, and
 * the state told of them. What the state keeps is never written to, so the way back stays open until the very end.
 */
import { dirname, join } from 'node:path';
import { attachmentsOf, type DomainMetadata, type LooseLayer, parseSnapshot } from '../domain-xml/index.ts';
import { isInternal, type SavedState } from './chain.ts';
import { blockJobOf } from './merge/jobs.ts';
import { type ChainPicture, filesFrom, isTop, keepersOf, keptFiles, readersOf } from './merge/picture.ts';
import { isMerged } from './merge/stage.ts';
import { stemOf } from './plan.ts';

export interface RevertPlan {
  overlays: { targetDev: string; path: string; backing: { path: string; format: string } }[];
  /** What is written to now and belongs to no state: lost by the revert. */
  unused: string[];
}

/**
 * @param operationId makes the names of the overlays
 * @throws nothing; ask `revertRefusal` before
 */
export function planRevert(picture: ChainPicture, state: SavedState, operationId: string): RevertPlan {
  const overlays = keptFiles(state).map(({ targetDev, path }) => {
    const directory = dirname(state.overlays[targetDev]!);
    const format = state.frozenFormats?.[targetDev] ?? 'raw';
    const name = `${stemOf(path).slice(0, 100)}.${targetDev}.state-${operationId}.qcow2`;
    return { targetDev, path: join(directory, name), backing: { path, format } };
  });
  return { overlays, unused: topsOf(picture).filter(top => isLost(picture, top)) };
}

/**
 * What the reverted domain's metadata say. That a merge is done is noted, since what shows it may be lost. Of a merge that is lost with all
 * that it was for, both files are no more than ends of a branch: nobody could tell once the revert has removed what stood on them.
 * @param picture before the revert
 */
export function revertedMetadata(
  picture: ChainPicture,
  { unused }: Pick<RevertPlan, 'unused'>,
  statesDeleted: Date,
): DomainMetadata {
  const { metadata } = picture;
  const { looseLayers: notes } = metadata;
  if (!notes) return { ...metadata, statesDeleted };
  const lost = new Set(unused.flatMap(top => filesFrom(picture, top)));
  const looseLayers = notes.flatMap((loose): LooseLayer[] => {
    const { targetDev, path, overlay, merging, stage } = loose;
    if (merging === undefined) return [loose];
    if (!isLostMerge(picture, { ...loose, merging }, lost))
      return [stage && isMerged(picture, loose) ? { ...loose, stage: 'merged' } : loose];
    const upper = { targetDev, path: merging, overlay: true };
    const isNoted = notes.some(other => other.path === merging);
    return [{ targetDev, path, overlay }, ...(isNoted ? [] : [upper])];
  });
  return { ...metadata, statesDeleted, looseLayers };
}

/**
 * Nothing but what is lost stands on either file, and no state keeps one. An upper file that was left out before the merge was done stays
 * as it is noted: it may be all that there is of something.
 */
function isLostMerge(
  picture: ChainPicture,
  loose: LooseLayer & { merging: string },
  lost: ReadonlySet<string>,
): boolean {
  const { path, merging } = loose;
  const files = [path, merging];
  const readers = files.flatMap(file => readersOf(picture, file)).filter(reader => reader !== merging);
  return (
    lost.has(path) &&
    (lost.has(merging) || isMerged(picture, loose)) &&
    readers.every(reader => lost.has(reader)) &&
    files.every(file => keepersOf(picture, file).length === 0)
  );
}

/** Why the domain cannot be reverted now, or null. */
export function revertRefusal(picture: ChainPicture, state: SavedState): string | null {
  if (state.deleting) return `the deletion of "${state.name}" was interrupted; delete it again`;
  const unknown = Object.keys(state.overlays).find(targetDev => state.frozen[targetDev] === undefined);
  if (unknown !== undefined) return `what "${state.name}" keeps of the disk ${unknown} is not known`;
  const missing = keptFiles(state).find(({ path }) => !picture.files.has(path));
  if (missing) return `${missing.path}, which "${state.name}" keeps, is missing`;
  const { memoryPath } = state;
  if (memoryPath !== null && !picture.files.has(memoryPath))
    return `its memory file ${memoryPath} is missing`;
  for (const top of topsOf(picture)) {
    const user = isLost(picture, top) && picture.foreign.get(top);
    if (user) return `${top} is used by ${user}`;
  }
  return blockJobOf(picture) ?? (isInternal(state) ? innerRevertRefusal(picture, state) : null);
}

/**
 * Why libvirt must not go back to an internal state, or null. It puts what the state had into the very files that the state's definition
 * names, and lets the domain write to them again, whoever keeps them, stands on them or has them by now.
 */
function innerRevertRefusal(
  picture: ChainPicture,
  { name, frozen, internalDisks, xml }: SavedState,
): string | null {
  for (const [targetDev, path] of Object.entries(frozen)) {
    const [keeper] = keepersOf(picture, path);
    const [reader] = readersOf(picture, path);
    const user = keeper ? `which "${keeper.name}" keeps` : reader && `on which ${reader} stands`;
    if (user !== undefined)
      return `"${name}" would come back into ${path}, ${user}; delete the later states first`;
    // a detached one is its owner's, with what was written to it since; of a merged one the state reads something else by now
    if (internalDisks.includes(targetDev) && !isTop(picture, path))
      return `${path}, in which "${name}" lies, is no disk of the VM any more`;
  }
  const attached = picture.metadata.attachments.map(({ path }) => path);
  const lent = lentDisksOf(xml).find(path => !attached.includes(path));
  // its owner may write to it by now
  return lent === undefined
    ? null
    : `"${name}" would bring back ${lent}, a disk of another VM that is attached no more`;
}

/** Files of the disks of others in a state's definitions. */
function lentDisksOf(stateXml: string): string[] {
  const { domain, inactiveDomain } = parseSnapshot(stateXml);
  return [domain, inactiveDomain].flatMap(config =>
    config ? attachmentsOf(config).map(({ path }) => path) : [],
  );
}

function topsOf(picture: ChainPicture): string[] {
  return [...new Set([...[...picture.live.values()].map(top => top.path), ...picture.config.values()])];
}

/** An overlay on a frozen file that no state keeps. A disk's first file was in no state: it is left to its owner. */
function isLost(picture: ChainPicture, top: string): boolean {
  const below = picture.files.get(top);
  if (typeof below !== 'string' || keepersOf(picture, top).length > 0) return false;
  const loose = picture.metadata.looseLayers ?? [];
  return keepersOf(picture, below).length > 0 || loose.some(layer => layer.path === below);
}

/** Nobody writes to it, stands on it or keeps it. */
export function isUnused(picture: ChainPicture, path: string): boolean {
  return (
    !isTop(picture, path) &&
    readersOf(picture, path).length === 0 &&
    keepersOf(picture, path).length === 0 &&
    !picture.foreign.has(path)
  );
}
