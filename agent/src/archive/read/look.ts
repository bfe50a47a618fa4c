/**
 * A look at one stream of zstd, which is unpacked whole to see what it holds. It can take hours and is nobody's need but of who asked:
 * one at a time on a node, and without a lock, so that a removal on any node is not refused, and ends it.
 */
import { basename } from 'node:path';
import { orAborted, throwIfAborted } from '@virtkeep/shared/abort';
import { lstat } from '@virtkeep/shared/beneath';
import { errnoOf, VirtkeepError } from '@virtkeep/shared/errors';
import { MAX_LOOKS_WAITING, mostUnpacked } from '../format/bounds.ts';
import { fileBusy, isBeingWritten } from '../system/file-lock.ts';
import { type StreamScan, scanStream } from './stream.ts';
import type { ArchiveFile } from './tar-source.ts';

let last: Promise<void> = Promise.resolve();
let waiting = 0;

/**
 * Runs a look when those before it have ended.
 * @throws VirtkeepError file_busy when too many wait already, canceled; what `look` throws
 */
export async function inLookTurn<T>(path: string, signal: AbortSignal, look: () => Promise<T>): Promise<T> {
  throwIfAborted(signal);
  if (waiting > MAX_LOOKS_WAITING) {
    const params = { operation: 'of this node', kind: `${MAX_LOOKS_WAITING} others wait to be unpacked` };
    throw new VirtkeepError('file_busy', { file: basename(path), ...params });
  }
  const before = last;
  const { promise, resolve } = Promise.withResolvers<void>();
  last = before.then(() => promise);
  waiting += 1;
  try {
    await orAborted(before, signal);
    return await look();
  } finally {
    waiting -= 1;
    resolve();
  }
}

/**
 * As `scanStream`, in its turn, and until the name means another file.
 * @throws VirtkeepError file_not_found then; file_busy while somebody writes it; those of `scanStream` and `inLookTurn`
 */
export function lookThrough(file: ArchiveFile, signal: AbortSignal): Promise<StreamScan> {
  const { handle, path, sizeBytes } = file;
  return inLookTurn(path, signal, async () => {
    if (await isBeingWritten(handle)) throw fileBusy(path);
    const gone = new AbortController();
    let asking = false;
    const confirm = async () => {
      if (asking) return;
      asking = true;
      if (!(await isNamed(file))) gone.abort(new VirtkeepError('file_not_found', { id: basename(path) }));
      asking = false;
    };
    return await scanStream(handle.fd, path, {
      signal: AbortSignal.any([signal, gone.signal]),
      mostBytes: mostUnpacked(sizeBytes),
      onProgress: () => void confirm(),
    });
  });
}

/** False only when it is told that the file has lost its name; a server that does not answer tells nothing. */
async function isNamed({ handle, path }: ArchiveFile): Promise<boolean> {
  try {
    const [open, named] = await Promise.all([handle.stat(), lstat(path)]);
    return open.dev === named.dev && open.ino === named.ino;
  } catch (error) {
    return !['ENOENT', 'ESTALE'].includes(errnoOf(error) ?? '');
  }
}
