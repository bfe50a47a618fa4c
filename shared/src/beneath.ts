/**
 * The calls of node:fs for paths below the `backups/` of data pools, where others may write: root of another node that shares the
 * pool, a user who owns it. A directory that was looked at may be a link to another one a moment later, and root would make, read or
 * remove files there. So the directory is opened first, from the pool's own directory downwards and through no link, and the call is
 * made on a name in what was opened. Paths elsewhere are taken as they are.
 *
 * What remains: the pool's directory itself is found by its path, as the administrator wrote it.
 */
import { close, constants, type Dir, lstat as lstatWithCallback, type Mode, type OpenMode } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import * as fs from 'node:fs/promises';
import { basename, dirname, join, relative, sep } from 'node:path';
import { promisify } from 'node:util';
import koffi from 'koffi';
import { errnoOf, VirtkeepError } from './errors.ts';
import { mapLimited } from './limit.ts';

/** What changes when a file is written. */
export interface SizeAndChange {
  /** Bytes. */
  size: bigint;
  mtimeNs: bigint;
}

/** Directory of the backup files, below the pool's own. */
export const BACKUPS_DIR = 'backups';
/** More than any node has pools in its life. */
const MAX_ROOTS = 5_000;
/** Calls of one at a time: others need threads, too. */
const LOOK_WIDTH = 4;
const roots = new Set<string>();

/**
 * From now on nothing below the `backups/` of this directory is reached through a link, and {@link inPoolDirectory} knows it.
 * @param pool an absolute path
 */
export function guardBackups(pool: string): void {
  if (roots.size < MAX_ROOTS) roots.add(withoutEnd(pool));
}

export const open = (path: string, flags?: OpenMode, mode?: Mode): Promise<FileHandle> =>
  pinned(path, at => fs.open(at, flags, mode));
export const lstat = (path: string, options?: { bigint?: false }) =>
  pinned(path, at => fs.lstat(at, options));
export const lstatBig = (path: string) => pinned(path, at => fs.lstat(at, { bigint: true }));
/**
 * The same of many names in one directory, which is found once: finding it costs many times what the call does.
 * @param names without directories
 * @returns those that can be looked at
 */
export const lstatAll = (directory: string, names: readonly string[]): Promise<Map<string, SizeAndChange>> =>
  pinnedDirectory(directory, async at => {
    const there = new Map<string, SizeAndChange>();
    await mapLimited(names, LOOK_WIDTH, async name => {
      const facts = await sizeAndChange(join(at, name));
      if (facts) there.set(name, facts);
    });
    return there;
  });
export const rm = (path: string, options?: { force?: boolean; recursive?: boolean }): Promise<void> =>
  pinned(path, at => fs.rm(at, options));
export const link = (from: string, to: string): Promise<void> =>
  pinned(from, one => pinned(to, other => fs.link(one, other)));
export const rename = (from: string, to: string): Promise<void> =>
  pinned(from, one => pinned(to, other => fs.rename(one, other)));
export const mkdir = (path: string, options: { recursive?: boolean; mode?: Mode }) =>
  pinned(path, at => fs.mkdir(at, options));
/** Of an empty directory; a link is none. */
export const rmdir = (path: string): Promise<void> => pinned(path, at => fs.rmdir(at));
export const readdir = (path: string): Promise<string[]> => pinnedDirectory(path, at => fs.readdir(at));
/** The stream outlives the descriptor by which the directory was found: it has one of its own. */
export const opendir = (path: string): Promise<Dir> => pinnedDirectory(path, at => fs.opendir(at));

/** For making its names durable. */
export const openDirectory = (path: string): Promise<FileHandle> =>
  pinnedDirectory(path, at => fs.open(at, constants.O_RDONLY | constants.O_DIRECTORY));

/** A name of an open file for programs that take paths, of that very file whatever its own name means by now. */
export const nameOf = ({ fd }: { fd: number }): string => `/proc/${process.pid}/fd/${fd}`;

/** Each call that answers by a promise has memory of its own outside of the heap until that is collected: MiB, when tens of thousands are asked. */
const sizeAndChange = (path: string): Promise<SizeAndChange | undefined> =>
  new Promise(resolve =>
    lstatWithCallback(path, { bigint: true }, (error, stats) =>
      resolve(error ? undefined : { size: stats.size, mtimeNs: stats.mtimeNs }),
    ),
  );

const closeFd = promisify(close);
const withoutEnd = (path: string): string => (path.length > 1 ? path.replace(/\/+$/, '') : path);

/** The innermost of a path and the directories above it that is so. */
function innermost(path: string, isIt: (place: string) => boolean): string | undefined {
  if (roots.size === 0) return undefined;
  for (let place = path; place !== '/' && place !== '.'; place = dirname(place))
    if (isIt(place)) return place;
  return undefined;
}

/** The innermost pool in whose `backups/` a path lies, or whose `backups/` it is. */
function rootOf(path: string): string | undefined {
  const isBackups = (place: string) => basename(place) === BACKUPS_DIR && roots.has(dirname(place));
  const backups = innermost(withoutEnd(path), isBackups);
  return backups && dirname(backups);
}

/** The innermost pool in which a path lies. */
const poolAround = (path: string): string | undefined => innermost(dirname(path), place => roots.has(place));

/**
 * Does work in the directory of a path, by a name that stays this very directory's. One that links lead to may be meant as long as
 * it lies in the innermost pool around the path: that is asked of the kernel about what was opened. A path in no pool is taken as it is.
 * @throws VirtkeepError path_outside_pool, else as the work does
 */
export async function inPoolDirectory<T>(path: string, work: (directory: string) => Promise<T>): Promise<T> {
  const [root, directory] = [poolAround(path), dirname(path)];
  if (root === undefined) return work(directory);
  return holding(fs.open(directory, WAY_FLAGS), directory, async at => {
    const [there, top] = await Promise.all([fs.readlink(at), fs.realpath(root)]);
    if (there !== top && !there.startsWith(`${top}/`))
      throw new VirtkeepError('path_outside_pool', { path, pool: root });
    return work(at);
  });
}

/** Does work on a name in the directory of a path. @throws VirtkeepError path_outside_pool, else as the work does */
async function pinned<T>(path: string, work: (path: string) => Promise<T>): Promise<T> {
  const root = rootOf(path);
  if (root === undefined) return work(path);
  return beneath(root, dirname(path), at => work(join(at, basename(path))));
}

async function pinnedDirectory<T>(path: string, work: (path: string) => Promise<T>): Promise<T> {
  const root = rootOf(path);
  return root === undefined ? work(path) : beneath(root, path, work);
}

const beneath = <T>(root: string, directory: string, work: (at: string) => Promise<T>): Promise<T> =>
  holding(openBeneath(root, directory), directory, work);

/** Does work in a directory that is held open meanwhile, by a name that stays this very directory's; errors name it as people do. */
async function holding<T>(
  opened: Promise<Held>,
  directory: string,
  work: (at: string) => Promise<T>,
): Promise<T> {
  const held = await opened;
  const at = nameOf(held);
  try {
    return await work(at);
  } catch (error) {
    throw renamed(error, at, directory);
  } finally {
    await held.close();
  }
}

/** With the name that people know. */
function renamed(error: unknown, at: string, directory: string): unknown {
  if (typeof error === 'object' && error !== null && 'message' in error && errnoOf(error) !== undefined)
    error.message = String(error.message).replaceAll(at, directory);
  return error;
}

const libc = koffi.load('libc.so.6');
const openat2 = libc.func(
  'long syscall(long number, long directory, const char *path, void *how, size_t bytes)',
);
/** The same number on all architectures. */
const SYS_OPENAT2 = 437;
const RESOLVE_NO_MAGICLINKS = 0x02;
const RESOLVE_NO_SYMLINKS = 0x04;
const RESOLVE_BENEATH = 0x08;
/** Node does not name it. */
const O_CLOEXEC = 0o2000000;
/** Node does not name it either. */
const O_PATH = 0o10000000;
/** For going on from there: enough where root may search a directory and not read it, as on a network file system that squashes it. */
const WAY_FLAGS = O_PATH | constants.O_DIRECTORY;

/** struct open_how of linux/openat2.h. */
function openHow(): Buffer {
  const how = Buffer.alloc(24);
  how.writeBigUInt64LE(BigInt(WAY_FLAGS | O_CLOEXEC), 0);
  how.writeBigUInt64LE(BigInt(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS), 16);
  return how;
}

/** In a thread of libuv: on a hung file system it does not return. */
const openat2Aside = (directory: number, path: string): Promise<number> =>
  new Promise((resolve, reject) => {
    openat2.async(SYS_OPENAT2, directory, path, openHow(), 24, (error: unknown, fd: number | bigint) => {
      if (error) reject(error);
      else resolve(Number(fd));
    });
  });

/** An open directory. */
interface Held {
  fd: number;
  close(): Promise<void>;
}

/**
 * A directory below `root`, found through no link. Where the kernel refuses, or has no openat2, one part after the other is opened:
 * that is as safe, and tells the reason, which an asynchronous call of koffi keeps to itself.
 */
async function openBeneath(root: string, directory: string): Promise<Held> {
  const path = relative(root, directory);
  const top = await fs.open(root, WAY_FLAGS);
  if (path === '') return top;
  try {
    const fd = await openat2Aside(top.fd, path);
    return fd >= 0 ? { fd, close: () => closeFd(fd) } : await walk(top, path, { root, directory });
  } finally {
    await top.close();
  }
}

async function walk(
  top: FileHandle,
  path: string,
  names: { root: string; directory: string },
): Promise<FileHandle> {
  let held = top;
  for (const part of path.split(sep)) {
    const next = await openChild(held, part, names).finally(() => (held === top ? undefined : held.close()));
    held = next;
  }
  return held;
}

async function openChild(
  parent: FileHandle,
  name: string,
  { root, directory }: { root: string; directory: string },
): Promise<FileHandle> {
  const outside = new VirtkeepError('path_outside_pool', { path: directory, pool: root });
  if (name === '..') throw outside;
  const at = join(nameOf(parent), name);
  try {
    return await fs.open(at, WAY_FLAGS | constants.O_NOFOLLOW);
  } catch (error) {
    const isLink = errnoOf(error) === 'ELOOP' || (await isSymbolicLink(at));
    throw isLink ? outside : renamed(error, at, directory);
  }
}

const isSymbolicLink = (path: string): Promise<boolean> =>
  fs.lstat(path).then(
    found => found.isSymbolicLink(),
    () => false,
  );
