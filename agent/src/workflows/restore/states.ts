/**
 * Which saved states a restored VM bears, and what each of them keeps.
 *
 * A restored VM gets the saved states that it had at that moment, and also those of earlier increments that were merged on the
 * VM since: in the archive their layers are still apart. The layers say what a saved state keeps, and not the paths in its XML,
 * since merges change the content of a path.
 */
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import type { ManifestDisk, ManifestSavedState } from '../../archive/index.ts';
import { parseSnapshot } from '../../domain-xml/index.ts';
import type { OpenedBackup } from '../archives/source.ts';
import { fileStarts, type KeptLayer, MAX_RESTORED_FILES, withinReach } from './fold.ts';

export interface RestoredState {
  record: ManifestSavedState;
  /** As it is in the archive. */
  xml: string;
  parent: string | null;
  current: boolean;
  /** Per target, as it was then, the layer it keeps. A disk that is not here is not part of it. */
  frozen: ReadonlyMap<string, KeptLayer>;
}

export interface StatesPlan {
  /** Parents before children. */
  states: RestoredState[];
  /** Per target the first layers of the files that its disk consists of. */
  files: ReadonlyMap<string, number[]>;
  warnings: string[];
}

/** A saved state that may come back. */
export interface StateCandidate {
  record: ManifestSavedState;
  xml: string;
  /** Made by an increment of this archive and not on the VM any more when the state was made. */
  merged: boolean;
}

/** @throws VirtkeepError archive_damaged, xml_invalid, io_failed, canceled */
export async function readStates(backup: OpenedBackup, signal: AbortSignal): Promise<StatesPlan> {
  const { archive, manifest, state } = backup;
  const warnings: string[] = [];
  const records = [
    ...manifest.snapshots.map(record => ({ record, merged: false })),
    ...(await mergedRecords(backup, warnings)).map(record => ({ record, merged: true })),
  ];
  const candidates: StateCandidate[] = [];
  for (const { record, merged } of records) {
    const xml = (await archive.readMember(record.xmlMember, signal)).toString('utf8');
    candidates.push({ record, xml, merged });
  }
  const plan = planStates(manifest.disks, candidates, state.name);
  return { ...plan, warnings: [...warnings, ...plan.warnings] };
}

/** Records of states that earlier increments made and that the state's own manifest does not list. */
async function mergedRecords(
  { archive, manifest, state }: OpenedBackup,
  warnings: string[],
): Promise<ManifestSavedState[]> {
  const present = new Set(manifest.snapshots.map(record => record.name));
  const found: ManifestSavedState[] = [];
  // of the newest first: no more can come back than a disk may have files
  for (const { name, number } of manifest.states.toReversed()) {
    if (found.length > MAX_RESTORED_FILES) break;
    if (number >= state.number || name === null || present.has(name)) continue;
    for (const at of [number, number + 1].filter(candidate => candidate < state.number)) {
      const record = (await savedStatesAt(archive, at, warnings)).find(snapshot => snapshot.name === name);
      if (!record) continue;
      found.push(record);
      break;
    }
  }
  return found.toReversed();
}

/** Damage of what an earlier state alone needs costs no more than the saved states told there. */
async function savedStatesAt(
  archive: OpenedBackup['archive'],
  stateNumber: number,
  warnings: string[],
): Promise<ManifestSavedState[]> {
  try {
    return (await archive.manifestOfState(stateNumber)).snapshots;
  } catch (error) {
    if (!hasKey(error, 'archive_damaged')) throw error;
    warnings.push(`Saved states of state ${stateNumber} are left out: ${reasonOf(error)}`);
    return [];
  }
}

/**
 * Decides which candidates can come back: those of which the archive holds both what they keep and what was written
 * above. The state that is being restored is what the disks show, so it is none of them.
 */
export function planStates(
  disks: ManifestDisk[],
  candidates: StateCandidate[],
  ownName: string | null,
): StatesPlan {
  const warnings: string[] = [];
  const kept: (StateCandidate & { frozen: Map<string, KeptLayer> })[] = [];
  for (const candidate of candidates) {
    const frozen = frozenLayers(disks, candidate);
    if (frozen) kept.push({ ...candidate, frozen });
    else if (candidate.record.name !== ownName)
      warnings.push(
        `The saved state "${candidate.record.name}" is left out: the backup does not hold its disks.`,
      );
  }
  const staying = withinReach(disks, kept);
  if (staying.length < kept.length)
    warnings.push(
      `Of the saved states that increments made only the last ${staying.filter(({ merged }) => merged).length} come back: a disk of more files could not be used.`,
    );
  const all = new Map(candidates.map(({ record }) => [record.name, record]));
  const names = new Set(staying.map(({ record }) => record.name));
  const nearest = (name: string | null): string | null => {
    let at = name;
    for (let steps = 0; at !== null && !names.has(at) && steps <= all.size; steps += 1)
      at = all.get(at)?.parent ?? null;
    return at !== null && names.has(at) ? at : null;
  };
  const parents = parentsOf(staying, nearest);
  const current = currentOf(candidates, staying, nearest, parents);
  const files = new Map(disks.map(disk => [disk.target, fileStarts(disk, staying)]));
  const states = staying.map(({ record, xml, frozen }) => ({
    record,
    xml,
    frozen,
    parent: parents.get(record.name) ?? null,
    current: record.name === current,
  }));
  return { states: parentsFirst(states), files, warnings };
}

/**
 * The layers above which another image must begin so that a saved state comes back: what it keeps ends there, and what was written above
 * begins; of a disk that it only names the layer is an image of its own.
 */
export function endsForState(
  disks: ManifestDisk[],
  candidate: Pick<StateCandidate, 'record' | 'xml'>,
): string[] {
  return [...(frozenLayers(disks, candidate)?.values() ?? [])].flatMap(({ disk, index, isNamedOnly }) => {
    const layers = disks.find(({ target }) => target === disk)!.layers;
    const from = isNamedOnly ? Math.max(0, index - 1) : index;
    return layers.slice(from, index + 1).map(({ member }) => member);
  });
}

/** Per target the layer a state keeps; null when the archive holds none of its external disks. */
function frozenLayers(
  disks: ManifestDisk[],
  { record, xml }: Pick<StateCandidate, 'record' | 'xml'>,
): Map<string, KeptLayer> | null {
  const config = parseSnapshot(xml, record.xmlMember);
  const frozen = new Map<string, KeptLayer>();
  const external = config.disks.filter(disk => disk.mode === 'external');
  for (const { name, path } of external) {
    const overlay = path === undefined ? undefined : layerAt(disks, path);
    if (overlay && overlay.index > 0) frozen.set(name, { ...overlay, index: overlay.index - 1 });
  }
  // none of its files is known: all were moved since, and the layers tell by name who froze them
  if (frozen.size === 0)
    for (const { name } of external) {
      const kept = layerFrozenBy(disks, record.name, name);
      if (kept) frozen.set(name, kept);
    }
  const held = external.filter(({ name }) => disks.some(disk => disk.target === name));
  if (frozen.size === 0 && held.length > 0) return null;
  for (const { targetDev, path } of config.domain?.disks ?? []) {
    if (path === undefined || external.some(({ name }) => name === targetDev)) continue;
    const same = layerAt(disks, path);
    if (same) frozen.set(targetDev, { ...same, isNamedOnly: true });
  }
  return frozen;
}

/** A layer that a state froze and on which another stands. */
function layerFrozenBy(disks: ManifestDisk[], state: string, target: string): KeptLayer | undefined {
  const layers = disks.find(disk => disk.target === target)?.layers ?? [];
  const index = layers.findIndex(layer => layer.frozenBy === state);
  return index >= 0 && index < layers.length - 1 ? { disk: target, index } : undefined;
}

function layerAt(disks: ManifestDisk[], path: string): KeptLayer | undefined {
  for (const { target, layers } of disks) {
    const index = layers.findIndex(layer => layer.formerPath === path);
    if (index >= 0) return { disk: target, index };
  }
  return undefined;
}

/** A merged state goes back between its parent and the state that was made after it. */
function parentsOf(
  kept: (StateCandidate & { frozen: Map<string, KeptLayer> })[],
  nearest: (name: string | null) => string | null,
): Map<string, string | null> {
  const parents = new Map(kept.map(({ record }) => [record.name, nearest(record.parent)]));
  for (const { record } of kept.filter(candidate => candidate.merged)) {
    const parent = parents.get(record.name)!;
    const later = kept
      .filter(other => other.record.name !== record.name && parents.get(other.record.name) === parent)
      .filter(other => timeOf(other.record) >= timeOf(record))
      .filter(other => !other.merged || timeOf(other.record) > timeOf(record));
    const next = later.toSorted((a, b) => timeOf(a.record) - timeOf(b.record))[0];
    if (next) parents.set(next.record.name, record.name);
  }
  return parents;
}

function currentOf(
  candidates: StateCandidate[],
  kept: StateCandidate[],
  nearest: (name: string | null) => string | null,
  parents: ReadonlyMap<string, string | null>,
): string | null {
  const flagged = candidates.find(({ record, merged }) => record.current && !merged)?.record.name ?? null;
  const desired = nearest(flagged);
  if (flagged !== null && desired === flagged) return desired;
  // merged states stand between the one that was current and what is left of its ancestors
  const merged = kept.filter(candidate => candidate.merged).map(({ record }) => record.name);
  const tip = merged.find(name => ![...parents.values()].includes(name));
  return tip ?? desired;
}

function timeOf(record: ManifestSavedState): number {
  return record.created === null ? 0 : Date.parse(record.created) || 0;
}

/** By their depth, else in the order in which they are given. One whose parents lead to no first one is left out. */
export function parentsFirst(states: readonly RestoredState[]): RestoredState[] {
  const children = Map.groupBy(states, ({ parent }) => parent);
  const depths = new Map<string | null, number>([[null, 0]]);
  // those that are put in are reached, too
  for (const [parent, depth] of depths)
    for (const { record } of children.get(parent) ?? [])
      if (!depths.has(record.name)) depths.set(record.name, depth + 1);
  const depthOf = ({ record }: RestoredState) => depths.get(record.name)!;
  return states.filter(({ record }) => depths.has(record.name)).sort((a, b) => depthOf(a) - depthOf(b));
}
