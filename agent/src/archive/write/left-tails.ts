/** Tail files that extensions left beside an archive: those of agents that died, or that were gone before they removed them. */
import { basename, dirname, join } from 'node:path';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { readdir } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { END_BYTES, roundUp, TAR_BLOCK } from '../format/layout.ts';
import { isManifestName } from '../format/names.ts';
import { SEEK_FOOTER_BYTES } from '../format/seek-table.ts';
import type { ArchiveMember } from '../format/types.ts';
import { type Inspection, inspect } from '../read/inspect.ts';
import type { FileLock } from '../system/file-lock.ts';
import { readTail, removeTail, type SavedTail, undoAppend } from './tail.ts';

/** Every extension removes those of before, so agents leave one or two. Whoever puts many there is not to keep one busy reading them. */
const MAX_TAILS = 32;

/** What tells whether an old end is to be put back. */
export interface TailFacts {
  /** Whether the archive opens as a whole one. */
  isWhole: boolean;
  /** As the tail file says: null in those of agents that did not note it. */
  durable: boolean | null;
  /** States that the archive got behind the old end; null when this is not the end of a state: it is another archive. */
  statesSince: number | null;
}

/**
 * Whether the old end is put back; otherwise it is not needed. Pure. A whole archive whose extension is not noted as durable
 * may have holes in its new members. Without the note it may also be committed, by an agent that died a moment later: one
 * state is then given up, as that agent's undo would do a moment before. More than one state shows that the archive was
 * extended again since, and the file only forgotten.
 */
export function isToBePutBack({ isWhole, durable, statesSince }: TailFacts): boolean {
  if (!isWhole) return true;
  return durable !== true && statesSince !== null && statesSince <= 1;
}

/**
 * Puts back the old ends that extensions left which died before they were durable. The other ends stay: whoever saved them
 * may still undo what he did, until the archive is extended again, for which {@link removeTails} is to be called.
 * @param lock exclusive, of the archive: no extension is under way
 * @throws VirtkeepError as {@link undoAppend}; archive_damaged when there are too many; archive_unsupported, canceled
 */
export async function putTailsBack(path: string, lock: FileLock, signal: AbortSignal): Promise<void> {
  for await (const { tailPath } of tailsToPutBack(path, inspecting(path, lock, signal), signal))
    await undoAppend(path, tailPath, lock);
}

/**
 * Whether {@link putTailsBack} would change a byte of the archive; looks only. Whoever copies the file as it is asks: the copy would lack
 * what tells of it.
 * @param lock of the archive; a shared one will do
 * @throws VirtkeepError as {@link putTailsBack}
 */
export async function hasTailToPutBack(path: string, lock: FileLock, signal: AbortSignal): Promise<boolean> {
  for await (const { facts } of tailsToPutBack(path, inspecting(path, lock, signal), signal))
    if (!facts.isWhole || facts.statesSince !== 0) return true;
  return false;
}

/**
 * Where the tar ended before an extension that is to be taken back, for who reads an archive and leaves it as it is. No extension may be
 * under way.
 * @returns null: what the archive holds counts
 * @throws VirtkeepError archive_damaged for saved ends that cannot be read, or too many of them; io_failed, canceled
 */
export async function endThatCounts(inspection: Inspection, signal: AbortSignal): Promise<number | null> {
  for await (const { facts, oldEnd } of tailsToPutBack(
    inspection.file.path,
    async () => inspection,
    signal,
  )) {
    const { durable, statesSince } = facts;
    // The newest that is of this archive decides. A torn archive is read without its torn end anyway.
    if (statesSince !== null) return durable !== true && statesSince === 1 ? oldEnd : null;
  }
  return null;
}

interface DueTail {
  tailPath: string;
  facts: TailFacts;
  /** Where the tar ended before, when it is of this archive. */
  oldEnd: number;
}

const inspecting = (path: string, lock: FileLock, signal: AbortSignal) => async (): Promise<Inspection> => {
  const inspection = await inspect(path, signal, lock);
  await inspection.file.close();
  return inspection;
};

/** The newest first: an old one that was only forgotten would put back too much. */
async function* tailsToPutBack(
  path: string,
  inspected: () => Promise<Inspection>,
  signal: AbortSignal,
): AsyncGenerator<DueTail> {
  const tails = await tailsOf(path, signal);
  for (const { tailPath } of tails.toSorted((a, b) => b.sizeBytes - a.sizeBytes)) {
    const saved = await savedIn(tailPath);
    if (saved === null) continue;
    const inspection = await inspected();
    const oldEnd = oldEndOf(saved, inspection);
    const facts = factsOf(saved, oldEnd, inspection);
    if (isToBePutBack(facts)) yield { tailPath, facts, oldEnd };
  }
}

/**
 * Removes all tail files beside an archive that is going to be extended, where what they keep would cut the new extension off, or that
 * was removed. To be called under the lock, in an archive that stays after {@link putTailsBack}. @throws VirtkeepError io_failed
 */
export async function removeTails(path: string): Promise<void> {
  for (const tailPath of await tailPathsOf(path)) await removeTail(tailPath);
}

interface LeftTail {
  tailPath: string;
  /** Of the archive before; 0 when only a file is left that goes with a tail file. */
  sizeBytes: number;
}

/** One after the other, and without what they keep: each may be large. */
async function tailsOf(path: string, signal: AbortSignal): Promise<LeftTail[]> {
  const paths = await tailPathsOf(path);
  if (paths.length > MAX_TAILS) {
    const reason = `more than ${MAX_TAILS} saved ends of it are beside it, which no extensions leave`;
    throw new VirtkeepError('archive_damaged', { path, reason });
  }
  const tails: LeftTail[] = [];
  for (const tailPath of paths) {
    throwIfAborted(signal);
    tails.push({ tailPath, sizeBytes: (await savedIn(tailPath))?.sizeBytes ?? 0 });
  }
  return tails;
}

const savedIn = (tailPath: string): Promise<SavedTail | null> =>
  readTail(tailPath).catch(error => {
    throw fromIoError(error, 'reading', tailPath);
  });

async function tailPathsOf(path: string): Promise<string[]> {
  const directory = dirname(path);
  const start = `.${basename(path)}.`;
  const isTail = (name: string) =>
    name.startsWith(start) && /^[0-9a-f-]{36}\.tail(\.[a-z0-9]+)?$/.test(name.slice(start.length));
  try {
    const names = (await readdir(directory)).filter(isTail).map(name => name.replace(/\.tail\..*$/, '.tail'));
    return [...new Set(names)].map(name => join(directory, name));
  } catch (error) {
    throw fromIoError(error, 'clearing', directory);
  }
}

function factsOf(
  { durable }: SavedTail,
  oldEnd: number,
  { fault, manifest, members, salvaged }: Inspection,
): TailFacts {
  return {
    isWhole: fault === undefined && manifest !== null,
    durable: durable ?? null,
    statesSince: statesSince(oldEnd, [...members, ...(salvaged?.lost ?? [])]),
  };
}

function statesSince(oldEnd: number, members: readonly ArchiveMember[]): number | null {
  const ends = members
    .filter(({ name }) => isManifestName(name))
    .map(({ dataOffset, sizeBytes }) => dataOffset + roundUp(sizeBytes, TAR_BLOCK));
  return ends.includes(oldEnd) ? ends.filter(end => end > oldEnd).length : null;
}

/** Where the tar ended before the extension. In a compressed archive its last frame held the end-of-archive blocks. */
function oldEndOf({ sizeBytes, tail }: SavedTail, { access }: Inspection): number {
  if (access.kind !== 'seekable') return sizeBytes - END_BYTES;
  if (tail.length < SEEK_FOOTER_BYTES) return 0;
  const frames = tail.readUInt32LE(tail.length - SEEK_FOOTER_BYTES);
  return access.table.rawOffsets[frames - 1] ?? 0;
}
