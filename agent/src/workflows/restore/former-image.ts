/**
 * Images that a drive of a restored VM shows where they were: files of the node that the archive does not hold. What a
 * drive shows its guest can read, so a path of an archive must not lead to anything else.
 */
import { constants } from 'node:fs';
import { type FileHandle, lstat, open, realpath } from 'node:fs/promises';
import { dirname, normalize, relative } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ArchiveTrust, Manifest } from '../../archive/index.ts';
import {
  BACKUPS_DIR,
  isInside,
  PathGate,
  type PoolRecord,
  poolOfPath,
  resolveInPool,
} from '../../pools/index.ts';

/** Where the first descriptor of an ISO 9660 file system says what it is. */
const ISO_MAGIC = { offset: 32_769, text: 'CD001' } as const;

/** Outside of the pools nobody watches for a file system that hangs. */
const gate = new PathGate();

/**
 * The images of a backup that are where they were, with their paths without links. Each lies in a pool of the node, not among
 * its backups; one that the node itself backed up may lie anywhere, as long as no link leads to it and it is as large as it was. One
 * that somebody else's archive names must moreover be a CD-ROM's by its content, in a pool that is the
 * node's own: else the disk of another VM would be shown.
 */
export async function formerImages(
  manifest: Pick<Manifest, 'isos'>,
  pools: readonly PoolRecord[],
  trust: ArchiveTrust,
): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const image of manifest.isos) {
    const path = await imageAt(image, pools, trust);
    if (path !== null) found.set(image.formerPath, path);
  }
  return found;
}

async function imageAt(
  { formerPath: path, sizeBytes }: Manifest['isos'][number],
  pools: readonly PoolRecord[],
  trust: ArchiveTrust,
): Promise<string | null> {
  if (!path.startsWith('/') || path.includes('\0') || path !== normalize(path)) return null;
  const pool = poolOfPath(path, pools);
  if (!pool) return trust === 'own' && (await isSameFile(path, sizeBytes)) ? path : null;
  if (!pool.path || !pool.active) return null;
  if (trust !== 'own' && pool.outside) return null;
  try {
    const resolved = await resolveInPool(pool, relative(pool.path, path));
    const root = await resolveInPool(pool, BACKUPS_DIR);
    if (isInside(resolved, root)) return null;
    const facts = await lstat(resolved);
    if (!facts.isFile()) return null;
    if (trust !== 'own' && (facts.nlink > 1 || !(await isIso(resolved)))) return null;
    return resolved;
  } catch (error) {
    if (error instanceof VirtkeepError || (error as NodeJS.ErrnoException).code !== undefined) return null;
    throw error;
  }
}

async function isSameFile(path: string, sizeBytes: number): Promise<boolean> {
  const found = await gate
    .run(dirname(path), async () => {
      if ((await realpath(path)) !== path) return false;
      const facts = await lstat(path);
      return facts.isFile() && facts.size === sizeBytes;
    })
    .catch(() => false);
  return found === true;
}

async function isIso(path: string): Promise<boolean> {
  let file: FileHandle | undefined;
  try {
    const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK, O_NOCTTY } = constants;
    file = await open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    const { text, offset } = ISO_MAGIC;
    const { buffer, bytesRead } = await file.read(Buffer.alloc(text.length), 0, text.length, offset);
    return buffer.toString('latin1', 0, bytesRead) === text;
  } finally {
    await file?.close();
  }
}
