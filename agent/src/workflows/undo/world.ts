/**
 * Whether all that an effect needs is there: libvirt, and the file systems with the effect's files. Undoing waits for that: an
 * earlier attempt fails with the name of what is absent, the effect stays in the journal, and its operation keeps its locks. A
 * controller is waited for as well, but for its time only: there may be none.
 */
import { DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { parseDomain } from '../../domain-xml/index.ts';
import { unlessGone } from '../../libvirt/domains.ts';
import {
  isThere,
  type KnownPlace,
  knownPlaces,
  MARKER,
  type PathGate,
  type PoolRecord,
  pathOf,
  poolOfPath,
  type Settings,
} from '../../pools/index.ts';
import type { Effect, UndoEffect } from '../effect.ts';
import { needsOf } from './effect-needs.ts';

export interface WorldDependencies {
  /** Whether libvirt answers at present. */
  connected(): boolean;
  /** @throws VirtkeepError libvirt_unreachable before the first connection */
  libvirt(): Libvirt;
  /** The node's pools as they are now, outside ones included; what is there is remembered. */
  pools(signal: AbortSignal): Promise<PoolRecord[]>;
  settings: Settings;
  gate: PathGate;
  /** Waits until a controller can be asked, or should have been there by now. Rejects with the abort reason. */
  untilController(signal: AbortSignal): Promise<void>;
}

/** The undo, made to wait for the world that each effect needs: it throws clean_up_waits or libvirt_unreachable until then. */
export function undoWhenThere(undo: UndoEffect, dependencies: WorldDependencies): UndoEffect {
  return async (effect, signal, warn, amend) => {
    if (needsOf(effect).otherNodes) await dependencies.untilController(signal);
    const places = await placesOf(effect, dependencies, signal);
    const pools = places.pools;
    await requireThere(places.directories, pools, dependencies);
    await undo(effect, signal, warn, amend);
    // when a file system went away during the undo, its files were not seen and not undone
    await requireThere(places.directories, pools, dependencies);
  };
}

interface Places {
  /** The directories of pools that the effect needs. */
  directories: KnownPlace[];
  /** Undefined while libvirt is away. */
  pools: readonly PoolRecord[] | undefined;
}

async function placesOf(
  effect: Effect,
  dependencies: WorldDependencies,
  signal: AbortSignal,
): Promise<Places> {
  const needs = needsOf(effect);
  const { settings, connected } = dependencies;
  // before the first look at the pools, nobody knows to which of them a path belongs
  if (needs.libvirt || knownPlaces(settings) === undefined) requireLibvirt(dependencies);
  // a frozen guest does not wait for a pool that does not answer
  if (needs.domains.length === 0 && needs.paths.length === 0) return { directories: [], pools: undefined };
  const pools = connected() ? await dependencies.pools(signal) : undefined;
  const definitions = await Promise.all(needs.domains.map(id => definitionsOf(dependencies.libvirt(), id)));
  const places = knownPlaces(settings) ?? [];
  for (const path of needs.paths) requireKnown(path, places, pools);
  const paths = [...needs.paths, ...definitions.flat().flatMap(xml => imagesIn(xml, places))];
  const needed = new Set(paths.flatMap(path => placeOfPath(path, places) ?? []));
  return { directories: [...needed], pools };
}

function requireLibvirt({ connected, libvirt }: WorldDependencies): void {
  libvirt();
  if (!connected())
    throw new VirtkeepError('libvirt_unreachable', { uri: 'this node', reason: 'the connection is lost' });
}

/** The definitions of a domain, the running one's too; none when it is gone. */
async function definitionsOf(libvirt: Libvirt, domainId: string): Promise<string[]> {
  const domain = libvirt.domain(domainId);
  const live = await unlessGone(() => domain.xml(), '');
  const next = await unlessGone(() => domain.xml(DomainXml.INACTIVE), '');
  return [live, next].filter(xml => xml !== '');
}

/**
 * The files of a definition that undoing may change or look for: its disks with their layers, and what is noted as to be
 * merged. What else it names (the image in a drive, a shared directory, a log) may be gone for good and changes nothing.
 */
function imagesIn(xml: string, places: readonly KnownPlace[]): string[] {
  const { disks, metadata } = parseDomain(xml);
  const own = disks.filter(({ device }) => device === 'disk' || device === 'lun');
  return [
    ...own.flatMap(disk => pathOf(disk, places) ?? []),
    ...own.flatMap(({ backingChain = [] }) => backingChain.flatMap(({ path }) => path ?? [])),
    ...(metadata.looseLayers ?? []).flatMap(({ path, merging }) => [path, ...(merging ? [merging] : [])]),
  ];
}

/** The deepest known place above a path. */
function placeOfPath(path: string, places: readonly KnownPlace[]): KnownPlace | undefined {
  const above = places.filter(place => path.startsWith(`${place.path}/`));
  return above.sort((a, b) => b.path.length - a.path.length)[0];
}

/** Refuses a path of a pool that is defined, but was absent at every look. */
function requireKnown(path: string, places: readonly KnownPlace[], pools: Places['pools']): void {
  const pool = poolOfPath(path, pools ?? []);
  if (!pool?.path || pool.mounted || !pool.hasDirectory) return;
  const place = placeOfPath(path, places);
  if (place && place.path.length >= pool.path.length) return;
  throw waits(pool.path, pool.name, 'it was never seen mounted');
}

async function requireThere(
  places: readonly KnownPlace[],
  pools: Places['pools'],
  { gate }: WorldDependencies,
): Promise<void> {
  for (const place of places) {
    const { id, path, name } = place;
    // a former place of a pool may hang: that is no sign of the one that it has now
    const isFormer = pools !== undefined && !pools.some(pool => pool.id === id && pool.path === path);
    const there = await gate.run(isFormer ? path : id, () => isThere(place));
    if (there) continue;
    if (there === undefined) throw waits(path, name, 'its file system does not answer');
    const isGone = pools !== undefined && !pools.some(pool => pool.path === path);
    const letGo = `if it never comes back, make the directory and an empty file ${MARKER} in it`;
    throw waits(
      path,
      name,
      isGone ? `it is no data pool of this node any more; ${letGo}` : 'it is not mounted',
    );
  }
}

const waits = (path: string, pool: string, reason: string) =>
  new VirtkeepError('clean_up_waits', { path, pool, reason });
