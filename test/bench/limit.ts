/**
 * What this machine can do at best: its disk and its cores, measured between the rounds of what is judged by them. A ratio to another
 * program says as much of that program and of the disk as of ours.
 */
import { randomBytes } from 'node:crypto';
import { appendFileSync, existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism, tmpdir } from 'node:os';
import { join } from 'node:path';
import { MiB } from '@virtkeep/shared/units';
import { alternate, type BenchCase, type BenchRow, command, median, quietDisks } from './lib.ts';

/** What a round moves and computes. */
export interface Work {
  /** The file that is read. */
  read: string;
  /** How many bytes are written; asked in each round. */
  written: () => number;
  /** What the cores do meanwhile: compress this file, or test this compressed one. */
  cores?: { compress: string } | { decompress: string };
}

/** How far above the limit a time may be. */
export const LIMIT_TARGET = 1.15;

/** Also of what is kept in memory, of which a container has little. */
const PIECE = 32 * MiB;
const BLOCK = '4M';
/** Pieces at once, each way: enough for one disk. */
const WIDTH = 2;
/** Direct reads and writes are of whole blocks, also of the last one of a file. */
const ALIGNED = 4096;
export const IN_MEMORY = existsSync('/dev/shm') ? '/dev/shm' : tmpdir();

export interface Limited {
  /** The case that the limit judges. */
  name: string;
  /** On the disk in question. */
  directory: string;
  work: Work;
}

const caseOf = (name: string): string => `${name}: limit`;

/**
 * Alternating rounds with the machine's limit before the first, between them and after the last: what is read is read and what is written
 * is written by the kernel directly and at the same time, then made durable; then the cores work on data in memory. The slower of both
 * counts.
 * @returns as {@link alternate} does; see {@link limitOf}
 */
export async function alternateWithin(
  { name, directory, work }: Limited,
  rounds: number,
  cases: readonly BenchCase[],
): Promise<Map<string, number[]>> {
  const limit: BenchCase = {
    name: caseOf(name),
    prepare: async () => {
      await command('sync', []);
      await quietDisks();
    },
    run: () => limitMs(directory, work),
  };
  const times = await alternate(rounds, [limit, ...cases]);
  const last = await alternate(1, [limit]);
  times.get(limit.name)!.push(...last.get(limit.name)!);
  return times;
}

/** What the machine needs at best, ms. */
export const limitOf = (times: Map<string, number[]>, name: string): number =>
  median(times.get(caseOf(name))!);

/** How many times as long as the machine needs at best. */
export function limitRow(title: string, times: Map<string, number[]>, name: string): BenchRow {
  const limits = times.get(caseOf(name))!;
  const own = median(times.get(name)!);
  const [least, most] = [Math.min(...limits), Math.max(...limits)];
  const note = `${own.toFixed(0)} ms; the machine ${least.toFixed(0)} to ${most.toFixed(0)} ms`;
  return { name: title, value: own / limitOf(times, name), unit: '×', target: LIMIT_TARGET, note };
}

/** The same for a ratio to another program: judged where the machine leaves room to be so much faster than it. */
export function judgedWhereRoom(row: BenchRow, limitMs: number, peerMs: number): BenchRow {
  const { target, ...rest } = row;
  if (target === undefined) return row;
  const best = row.sense === 'at least' ? peerMs / limitMs : limitMs / peerMs;
  const isWithinReach =
    row.sense === 'at least' ? best / LIMIT_TARGET >= target : best * LIMIT_TARGET <= target;
  return isWithinReach
    ? row
    : { ...rest, note: `${row.note ?? ''}; the machine leaves no room for that`.replace(/^; /, '') };
}

async function limitMs(directory: string, { read, written, cores }: Work): Promise<number> {
  const scratch = mkdtempSync(join(directory, 'limit-'));
  const memory = mkdtempSync(join(IN_MEMORY, 'vk-limit-'));
  const noise = join(memory, 'noise');
  const target = join(scratch, 'written');
  try {
    writeFileSync(noise, randomBytes(PIECE));
    const start = performance.now();
    await Promise.all([readDirectly(read), writeDirectly(noise, target, written())]);
    const diskMs = performance.now() - start;
    return Math.max(diskMs, cores === undefined ? 0 : await coresMs(cores));
  } finally {
    for (const path of [scratch, memory]) rmSync(path, { recursive: true });
  }
}

/** Read and written by {@link diskSpeed}. */
const PROBE = 512 * MiB;

/** What the disk of a directory reads and writes at once, each way, MB/s (bytes a µs). */
export async function diskSpeed(directory: string): Promise<number> {
  const scratch = mkdtempSync(join(directory, 'speed-'));
  try {
    const read = join(scratch, 'read');
    for (let size = 0; size < PROBE; size += PIECE) appendFileSync(read, randomBytes(PIECE));
    await command('sync', ['-d', read]);
    const elapsed = await limitMs(scratch, { read, written: () => PROBE });
    return PROBE / 1000 / elapsed;
  } finally {
    rmSync(scratch, { recursive: true });
  }
}

/** What a file has on its disk, bytes. */
export const allocated = (path: string): number => statSync(path).blocks * 512;

const readDirectly = (path: string): Promise<void> =>
  inPieces(statSync(path).size, (at, bytes) => [
    `if=${path}`,
    'of=/dev/null',
    `skip=${at}`,
    `count=${bytes}`,
    'iflag=direct,skip_bytes,count_bytes',
  ]);

async function writeDirectly(noise: string, target: string, size: number): Promise<void> {
  await inPieces(size, (at, bytes) => [
    `if=${noise}`,
    `of=${target}`,
    `seek=${at}`,
    `count=${bytes}`,
    'iflag=count_bytes',
    'oflag=direct,seek_bytes',
    'conv=notrunc',
  ]);
  await command('sync', ['-d', target]);
}

/** @param piece the options of `dd` for so many bytes from there */
async function inPieces(size: number, piece: (at: number, bytes: number) => string[]): Promise<void> {
  let next = 0;
  const work = async () => {
    for (let at = next; at < size; at = next) {
      next = at + PIECE;
      const bytes = Math.ceil(Math.min(PIECE, size - at) / ALIGNED) * ALIGNED;
      await command('dd', [...piece(at, bytes), `bs=${BLOCK}`, 'status=none']);
    }
  };
  await Promise.all(Array.from({ length: WIDTH }, work));
}

/** Of data in memory. `zstd` tests a file with one core; ours is made of frames, which all cores can share. */
async function coresMs(cores: NonNullable<Work['cores']>): Promise<number> {
  const isTest = 'decompress' in cores;
  const path = isTest ? cores.decompress : cores.compress;
  await command('dd', [`if=${path}`, 'of=/dev/null', `bs=${BLOCK}`, 'status=none']);
  const start = performance.now();
  await command('zstd', isTest ? ['-q', '-t', path] : ['-q', '-f', '-T0', '-3', '-o', '/dev/null', path]);
  const elapsed = performance.now() - start;
  return isTest ? elapsed / availableParallelism() : elapsed;
}
