/**
 * The directories of pools as they were last seen, kept in the node's durable settings. So after a restart it is known to which
 * pool a path belongs, and whether that pool's file system is there, before libvirt has listed its pools.
 */
import { hasMarker } from './mount.ts';
import { mountPointOf, ROOT_MOUNT } from './mount-table.ts';
import type { Settings } from './settings.ts';

/** A directory of files, and what proves that it is there. */
export interface KnownPlace {
  /** The pool's uuid. */
  id: string;
  name: string;
  path: string;
  /** Where its file system was mounted; "/" for the node's own, which is always there. */
  mountPoint: string;
  /** It bears our marker file. */
  marker: boolean;
}

const PLACES_KEY = 'pools.places';
/** More than any node has pools; the ones seen longest ago go first. */
const MAX_PLACES = 1_000;

/** The stored places; undefined when no pool was ever looked at. */
export function knownPlaces(settings: Settings): KnownPlace[] | undefined {
  const stored = settings.get(PLACES_KEY);
  return Array.isArray(stored) ? (stored as KnownPlace[]) : undefined;
}

/**
 * Notes places that are there now; what is known of others stays. That of a pool which has another path now, too: files may be left there.
 * @throws VirtkeepError journal_failed
 */
export function rememberPlaces(settings: Settings, seen: readonly KnownPlace[]): void {
  const places = knownPlaces(settings);
  const news = seen.filter(place => !places?.some(old => isSame(old, place)));
  if (places && news.length === 0) return;
  const replaced = (old: KnownPlace) => news.some(({ path }) => path === old.path);
  settings.set(PLACES_KEY, [...(places ?? []).filter(old => !replaced(old)), ...news].slice(-MAX_PLACES));
}

const isSame = (a: KnownPlace, b: KnownPlace): boolean =>
  a.id === b.id &&
  a.name === b.name &&
  a.path === b.path &&
  a.mountPoint === b.mountPoint &&
  a.marker === b.marker;

/**
 * Whether the file system of the place is there now. A marker file in the directory is always proof enough: an administrator
 * creates one to give up a place that will never come back.
 */
export async function isThere({ path, mountPoint, marker }: KnownPlace): Promise<boolean> {
  if (!marker && (mountPoint === ROOT_MOUNT || (await mountPointOf(path)) === mountPoint)) return true;
  return hasMarker(path);
}
