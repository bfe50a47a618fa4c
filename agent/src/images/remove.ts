/** The one place that removes an image, a layer or a memory file, and the one that puts another in its place. */
import { lstat, realpath, rename } from 'node:fs/promises';
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists, removePath, syncDirectoryOf } from '@virtkeep/shared/files';
import { readImageHeader } from '../disks/index.ts';
import { flushDefinitions } from '../libvirt/durable.ts';
import { type ImageDependencies, type ImageQuestion, judgeImages, realFile, type Verdict } from './judge.ts';
import { type HeldImage, holdImage } from './qemu-lock.ts';

/** A file that was not removed, and why. */
export interface LeftImage {
  path: string;
  /** `used`: it must stay. `unknown`: the same question may have an answer later. */
  why: 'used' | 'unknown';
  /** The user, or why that is not known. */
  reason: string;
  /** A sentence for people. */
  text: string;
}

/** Who has an image open for a moment only lets go of it within so many tries. */
const TRIES = 6;
const RETRY_MS = 500;

/**
 * Removes files that nobody uses: no domain of this node, nobody who has them open, no image that stands on them, no domain of
 * another node. While one is removed nobody can open it. What is not there is fine.
 * @returns the files that were left
 * @throws LibvirtError, VirtkeepError io_failed, canceled: what was not removed is still there
 */
export async function removeImages(
  dependencies: ImageDependencies,
  paths: readonly string[],
  { signal, ...question }: ImageQuestion & { signal: AbortSignal },
): Promise<LeftImage[]> {
  const there = new Map<string, string>();
  for (const path of paths) {
    const real = (await exists(path)) ? await realFile(path) : null;
    if (real !== null) there.set(real, path);
  }
  const verdicts = await judgeImages(dependencies, [...there.keys()], question, signal);
  const chains = await chainsAmong([...there.keys()]);
  // that nobody uses it was read from libvirt, which may remember an older time after a power cut
  if ([...verdicts.values()].some(({ kind }) => kind === 'free')) await flushDefinitions();
  const left: LeftImage[] = [];
  const kept: string[] = [];
  for (const real of upperFirst(chains)) {
    throwIfAborted(signal);
    const path = there.get(real)!;
    const upper = kept.find(file => chains.get(file)!.includes(real));
    const verdict: Verdict =
      upper === undefined ? verdicts.get(real)! : { kind: 'used', by: `${upper}, which stands on it` };
    const outcome = verdict.kind === 'free' ? await removeFree(path, signal) : verdict;
    if (outcome.kind === 'free') continue;
    kept.push(real);
    left.push(leftImage(path, outcome));
  }
  return left;
}

/**
 * What `removeImages` would leave, before anything is changed.
 * @throws LibvirtError, VirtkeepError io_failed
 */
export async function imagesInUse(
  dependencies: ImageDependencies,
  paths: readonly string[],
  { signal, ...question }: ImageQuestion & { signal: AbortSignal },
): Promise<LeftImage[]> {
  const left: LeftImage[] = [];
  const there = (await Promise.all(paths.map(path => realFile(path)))).filter(path => path !== null);
  for (const [path, verdict] of await judgeImages(dependencies, there, question, signal))
    if (verdict.kind !== 'free') left.push(leftImage(path, verdict));
  return left;
}

function leftImage(path: string, verdict: Exclude<Verdict, { kind: 'free' }>): LeftImage {
  const why = verdict.kind;
  const reason = (verdict.kind === 'used' ? verdict.by : verdict.reason).replace(/\.$/, '');
  const text =
    verdict.kind === 'used'
      ? `it is used by ${reason}`
      : `whether another node uses it is not known (${reason})`;
  return { path, why, reason, text: `${path} was left: ${text}.` };
}

async function removeFree(path: string, signal: AbortSignal): Promise<Verdict> {
  if ((await lstat(path)).isDirectory()) return { kind: 'used', by: 'nobody, but it is a directory' };
  const held = await holdPatiently(path, signal);
  if (!held) return { kind: 'used', by: 'a process that has it open' };
  try {
    await removePath(path);
  } finally {
    await held.release();
  }
  return { kind: 'free' };
}

async function holdPatiently(path: string, signal: AbortSignal): Promise<HeldImage | null> {
  // a link to nowhere is opened by nobody
  if (!(await isReadable(path))) return { release: async () => {} };
  for (let tried = 1; ; tried += 1) {
    const held = await holdImage(path);
    if (held || tried === TRIES) return held;
    await sleep(RETRY_MS, signal);
  }
}

async function isReadable(path: string): Promise<boolean> {
  return realpath(path).then(
    () => true,
    () => false,
  );
}

/**
 * Removes pieces of an operation's own, under names that no domain was ever told of; nobody is asked but who has one open.
 * @throws VirtkeepError image_in_use, io_failed
 */
export async function removePieces(paths: readonly string[], signal: AbortSignal): Promise<void> {
  for (const path of paths) {
    throwIfAborted(signal);
    if (!(await exists(path))) continue;
    const verdict = await removeFree(path, signal);
    if (verdict.kind === 'used') throw new VirtkeepError('image_in_use', { path, user: verdict.by });
  }
}

/** Per file those of the others that it stands on. */
async function chainsAmong(paths: readonly string[]): Promise<Map<string, string[]>> {
  const below = new Map<string, string>();
  for (const path of paths) {
    const backing = await readImageHeader(path).catch(() => undefined);
    const real = backing?.backingPath && (await realpath(backing.backingPath).catch(() => undefined));
    if (real && paths.includes(real)) below.set(path, real);
  }
  const chains = new Map<string, string[]>();
  for (const path of paths) {
    const chain: string[] = [];
    for (let next = below.get(path); next && !chain.includes(next); next = below.get(next)) chain.push(next);
    chains.set(path, chain);
  }
  return chains;
}

function upperFirst(chains: ReadonlyMap<string, readonly string[]>): string[] {
  return [...chains].toSorted(([, a], [, b]) => b.length - a.length).map(([path]) => path);
}

/**
 * Gives new images the names of those that only the `leaving` domains use, all of which are off. Nobody can open one of the
 * former ones meanwhile: all are held before the first is replaced, so that somebody who has one open stops nothing halfway.
 * @param files all that are replaced together; what stands on one of them is replaced, too
 * @throws VirtkeepError image_in_use, image_use_unknown: nothing was replaced; io_failed; LibvirtError
 */
export async function replaceImages(
  dependencies: ImageDependencies,
  files: readonly { from: string; to: string }[],
  { signal, onReplaced, ...question }: ImageQuestion & { signal: AbortSignal; onReplaced?: () => void },
): Promise<void> {
  const arriving = [...(question.arriving ?? []), ...files.map(({ from }) => from)];
  const places = files.map(({ to }) => to);
  await requireReplaceable(dependencies, places, { ...question, arriving, signal });
  const held: HeldImage[] = [];
  try {
    for (const path of places) held.push(await holdToReplace(path, signal));
    for (const { from, to } of files) {
      await replaceImage(from, to);
      onReplaced?.();
    }
  } finally {
    for (const image of held) await image.release();
  }
}

/** @throws VirtkeepError image_in_use, canceled */
async function holdToReplace(path: string, signal: AbortSignal): Promise<HeldImage> {
  throwIfAborted(signal);
  if (!(await exists(path))) return { release: async () => {} };
  const held = await holdPatiently(path, signal);
  if (!held) throw new VirtkeepError('image_in_use', { path, user: 'a process that has it open' });
  return held;
}

async function replaceImage(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
    await syncDirectoryOf(to);
  } catch (error) {
    throw fromIoError(error, 'replacing', to);
  }
}

/**
 * Refuses files that somebody else uses than the `leaving` domains.
 * @throws VirtkeepError image_in_use, image_use_unknown; LibvirtError
 */
export async function requireReplaceable(
  dependencies: ImageDependencies,
  paths: readonly string[],
  { signal, ...question }: ImageQuestion & { signal: AbortSignal },
): Promise<void> {
  const real = (await Promise.all(paths.map(path => realFile(path)))).filter(path => path !== null);
  const asked = { ...question, replaced: true };
  for (const [path, verdict] of await judgeImages(dependencies, real, asked, signal)) {
    if (verdict.kind === 'used') throw new VirtkeepError('image_in_use', { path, user: verdict.by });
    if (verdict.kind === 'unknown')
      throw new VirtkeepError('image_use_unknown', { path, reason: verdict.reason });
  }
}
