/**
 * The end of a trim: what was made of an archive gets its name. Behind the commit the agent may have died, and others may have extended,
 * replaced or removed either file meanwhile. So both are looked at under their locks, and unless they are what was decided on, no
 * name changes.
 *
 * As an example `web.tar` held ten restore points and is to hold three: `path` is `web.tar`; `by` is `web-2.tar`, the new file that is to
 * replace it; `was` says what `web.tar` was when `web-2.tar` was made of it (ten), `made` what `web-2.tar` was then (three); and `now` is what
 * bears the name `web.tar` when it is looked at. Of `now`:
 *
 * | `now` is | end | `web.tar` | `web-2.tar` |
 * |---|---|---|---|
 * | what it was | replaced | has the three | has its name no more |
 * | another, with all three in it: an increment was added | held | stays | is removed |
 * | anything else, or `web-2.tar` is not what was made | different | stays | stays, and is named to users |
 * | gone | | stays gone | stays, and is named to users |
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists, removePath } from '@virtkeep/shared/files';
import {
  type Archive,
  type FileLock,
  lockFile,
  moveHashFile,
  removeArchive,
  replaceArchive,
  sha256PathOf,
} from '../../archive/index.ts';
import { fileMarkAt, hasMark, isOwnFile } from '../../images/index.ts';
import type { OperationContext } from '../context.ts';
import type { ConvertedArchive, Effect } from '../effect.ts';
import { type ArchiveContent, contentOf } from './content.ts';
import type { Removal } from './conversion.ts';
import type { RemovalOptions } from './remains.ts';

type Trimmed = Extract<Effect, { type: 'trimmed_archive' }>;

/**
 * Declares that the archive is replaced with the commit. Call it when the new one is published, and right before the commit.
 * @param former the archive as it was read
 * @param by path of the new one
 * @throws VirtkeepError archive_damaged when the new one is not whole; io_failed, canceled, file_busy
 */
export async function declareReplacement(
  context: OperationContext,
  former: Archive,
  by: string,
): Promise<Removal> {
  const { path, sizeBytes } = former;
  const { backupId, states } = former.manifest!;
  const was = { backupId, states: states.length, sizeBytes, manifestSha256: former.seal!.textSha256 };
  const found = await contentOf(by, 'shared', context.signal);
  if (found === null)
    throw new VirtkeepError('archive_damaged', { path: by, reason: 'it is not what was written' });
  const { points: _, ...content } = found;
  const hashFile = await fileMarkAt(sha256PathOf(by));
  const made = { ...content, ...(hashFile && { hashFile }) };
  const trimmed = { type: 'trimmed_archive', path, by, was, made } as const;
  const handle = context.effects.begin(trimmed, 'success');
  return {
    remove: async ({ signal, warn }, lock) => {
      await replaceByTrimmed(trimmed, { signal, lock, warn });
      handle.keep();
    },
  };
}

/** In a journal of an earlier version. */
export function trimmedOfBefore({ path, by, was }: Extract<Effect, { type: 'replaced_archive' }>): Trimmed {
  return { type: 'trimmed_archive', path, by, was: was! };
}

/**
 * Gives an archive's name to what was made of it. When the archive is another by now and holds all of that, what was made goes; else both
 * stay, and are named. May be interrupted and repeated: what was left is done.
 * @throws VirtkeepError file_busy while somebody reads the archive or writes one of the two, io_failed, canceled
 */
export async function replaceByTrimmed(effect: Trimmed, options: RemovalOptions): Promise<void> {
  const { path, by } = effect;
  const { signal, warn } = options;
  if (!(await exists(path))) {
    if (!(await exists(by))) return endReplacing(effect, null);
    return warn(`The archive ${path} was removed while it was trimmed; what was made of it stays: ${by}.`);
  }
  const own = options.lock ?? (await lockFile(path, 'exclusive'));
  try {
    await own.confirm();
    const now = (await isNamed(own)) ? await contentOf(path, own, signal) : null;
    if (!(await exists(by))) return await endReplacing(effect, now);
    const end = await tryReplacing(effect, now, signal);
    if (end === 'replaced') return;
    if (end === 'held') await removeArchive(by);
    const left = end === 'held' ? '' : ` What was made of it stays: ${by}.`;
    warn(`The archive ${path} was not trimmed: it has changed since.${left}`);
  } finally {
    if (own !== options.lock) await own.release();
  }
}

/** A lock that was lost may be of a file that has that name no more. */
async function isNamed({ path, handle }: FileLock): Promise<boolean> {
  const mark = await fileMarkAt(path);
  return mark !== null && hasMark(handle, mark);
}

/** @returns held: the archive is another, and holds all that was made of it */
async function tryReplacing(
  effect: Trimmed,
  now: ArchiveContent | null,
  signal: AbortSignal,
): Promise<'replaced' | 'held' | 'different'> {
  const { path, by, was } = effect;
  const lock = await lockFile(by, 'shared');
  try {
    const made = await contentOf(by, lock, signal);
    if (now === null || made === null || !isWhatWasMade(made, effect)) return 'different';
    if (!isStill(now, was)) return holdsAll(now, made) ? 'held' : 'different';
    await replaceArchive(by, path);
    return 'replaced';
  } finally {
    await lock.release();
  }
}

/** What was made has the name already, or is gone. Its hash file goes with it; another's, who has the other name by now, does not. */
async function endReplacing({ path, by, made }: Trimmed, now: ArchiveContent | null): Promise<void> {
  const hashFile = sha256PathOf(by);
  const mark = made?.hashFile;
  const isOurs = mark !== undefined && (await isOwnFile({ type: 'file', path: hashFile, made: mark }));
  const isPlaced = now !== null && made !== undefined && isStill(now, made);
  if (isPlaced && (isOurs || !(await exists(hashFile)))) await moveHashFile(by, path);
  else if (isOurs) await removePath(hashFile);
}

const isStill = (now: ArchiveContent, was: ConvertedArchive): boolean =>
  now.backupId === was.backupId &&
  now.states === was.states &&
  now.sizeBytes === was.sizeBytes &&
  (was.manifestSha256 === undefined || now.manifestSha256 === was.manifestSha256);

const isWhatWasMade = (found: ArchiveContent, { made, was }: Trimmed): boolean =>
  made ? isStill(found, made) : found.backupId === was.backupId && found.states < was.states;

const holdsAll = (now: ArchiveContent, made: ArchiveContent): boolean =>
  now.backupId === made.backupId &&
  made.points.every(point =>
    now.points.some(({ number, created }) => number === point.number && created === point.created),
  );
