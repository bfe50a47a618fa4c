// qemu-img's commands as functions. Formats are always given: a guessed one lets the guest choose what the host reads.
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { TOO_MUCH_OUTPUT } from '@virtkeep/shared/program';
import { qemuImg, type RunOptions } from './qemu-img.ts';

const SHORT_MS = 60_000;

export interface ImageInfo {
  /** As qemu-img was given or found it. */
  path: string;
  format: string;
  /** Bytes the guest sees. */
  virtualSize: number;
  /** Bytes allocated on the host. */
  allocatedSize: number;
  encrypted: boolean;
  corrupt: boolean;
  /** Of qcow2: the unit in which it says what it holds; 0 of other formats. */
  clusterBytes: number;
  /** It says so of smaller parts of them. */
  subclusters: boolean;
  /** Names of internal snapshots. */
  internalSnapshots: string[];
}

export type InfoOptions = RunOptions & { format?: string };

/**
 * Reads an image's header, also while it is in use (`-U`); its backing file is not opened.
 * @throws VirtkeepError qemu_img_failed, timed_out
 */
export async function imageInfo(path: string, options: InfoOptions): Promise<ImageInfo> {
  const text = await qemuImg('info', ['--output=json', '-U', ...formatArg(options), absoluteSource(path)], {
    timeoutMs: SHORT_MS,
    ...options,
  });
  return readInfo(parseJson(text));
}

export interface CreateOptions extends RunOptions {
  format: string;
  /** Bytes; may be left out with a backing file. */
  virtualSize?: number;
  backing?: { path: string; format: string };
  /** Further `-o` options, e.g. `cluster_size=64k`. */
  extra?: readonly string[];
}

/** Makes an empty image, or an overlay of another. An existing file is overwritten by qemu-img: look first. */
export async function createImage(path: string, options: CreateOptions): Promise<void> {
  const { format, backing, virtualSize, extra = [] } = options;
  // without -u qemu-img opens the backing file, which may be in use
  const below = backing ? ['-u', '-b', absoluteSource(backing.path), '-F', backing.format] : [];
  if (backing && virtualSize === undefined) throw failed('create', 'an overlay needs its virtual size');
  const further = extra.flatMap(option => ['-o', option]);
  const size = virtualSize === undefined ? [] : [String(virtualSize)];
  await qemuImg('create', ['-q', '-f', format, ...below, ...further, absolute(path), ...size], {
    timeoutMs: SHORT_MS,
    ...options,
  });
}

export interface ConvertOptions extends RunOptions {
  sourceFormat: string;
  targetFormat: string;
  /** The target exists already and is filled (`-n`); with `targetOptions` instead of a path. */
  targetOptions?: string;
  /** The image is in use by a running domain that will not change it meanwhile (a frozen layer). */
  shared?: boolean;
  /** Compressed clusters. */
  compress?: boolean;
  extra?: readonly string[];
}

/** Copies an image's content (with all that lies below it) into a new image. */
export async function convertImage(source: string, target: string, options: ConvertOptions): Promise<void> {
  const { sourceFormat, targetFormat, targetOptions, shared, compress, extra = [] } = options;
  const to = targetOptions
    ? ['-n', '--target-image-opts', absoluteSource(source), targetOptions]
    : ['-O', targetFormat, absoluteSource(source), absolute(target)];
  const flags = [...(shared ? ['-U'] : []), ...(compress ? ['-c'] : []), ...extra];
  await qemuImg('convert', ['-f', sourceFormat, '-T', 'none', '-t', 'none', ...flags, ...to], options).catch(
    async error => {
      // O_DIRECT is refused by some file systems (tmpfs, some FUSE ones)
      if (!/O_DIRECT|Invalid argument/.test(String(error.message))) throw error;
      await qemuImg('convert', ['-f', sourceFormat, ...flags, ...to], options);
    },
  );
}

/**
 * Whether nothing was ever written to an overlay, also while it is in use. A cluster of its own, be it one of zeros, hides
 * what the file below has there. What lies below is not opened: it may be of any number of pieces.
 * @throws VirtkeepError qemu_img_failed
 */
export async function isEmptyOverlay(path: string, options: RunOptions): Promise<boolean> {
  const file = { driver: 'file', filename: absolute(path) };
  const alone = `json:${JSON.stringify({ driver: 'qcow2', file, backing: null })}`;
  try {
    const entries = parseJson(await qemuImg('map', ['--output=json', '-U', alone], options));
    return (entries as { present?: boolean }[]).every(({ present }) => present === false);
  } catch (error) {
    // an empty one is a single piece
    if (hasKey(error, 'qemu_img_failed') && error.params.reason === TOO_MUCH_OUTPUT) return false;
    throw error;
  }
}

export interface CheckResult {
  ok: boolean;
  corruptions: number;
  leaks: number;
}

/** Checks the metadata of an image that nobody uses. Leaks alone are harmless. */
export async function checkImage(
  path: string,
  options: RunOptions & { format: string },
): Promise<CheckResult> {
  // 2: corruptions, 3: leaks only
  const output = await qemuImg('check', ['--output=json', '-f', options.format, absolute(path)], {
    ...options,
    okCodes: [0, 2, 3],
  });
  const found = parseJson(output) as Record<string, unknown>;
  const corruptions = number(found.corruptions) + number(found['check-errors']);
  return { ok: corruptions === 0, corruptions, leaks: number(found.leaks) };
}

/** Writes another backing file into a layer's header, without looking at it or touching data (`rebase -u`). */
export async function rebaseUnsafe(
  path: string,
  backing: { path: string; format: string } | null,
  options: RunOptions & { format?: string },
): Promise<void> {
  const below = backing ? ['-b', absoluteSource(backing.path), '-F', backing.format] : ['-b', ''];
  const args = ['-q', '-u', '-f', options.format ?? 'qcow2', ...below, absolute(path)];
  await qemuImg('rebase', args, { timeoutMs: SHORT_MS, ...options });
}

function readInfo(value: unknown): ImageInfo {
  const info = value as Record<string, unknown>;
  const specific = (info['format-specific'] as { data?: Record<string, unknown> } | undefined)?.data ?? {};
  const snapshots = Array.isArray(info.snapshots) ? (info.snapshots as { name?: unknown }[]) : [];
  return {
    path: text(info.filename) ?? '',
    format: text(info.format) ?? '',
    virtualSize: number(info['virtual-size']),
    allocatedSize: number(info['actual-size']),
    encrypted: info.encrypted === true,
    corrupt: specific.corrupt === true,
    clusterBytes: number(info['cluster-size']),
    subclusters: specific['extended-l2'] === true,
    internalSnapshots: snapshots.map(snapshot => String(snapshot.name ?? '')),
  };
}

/** Absolute paths only: qemu-img takes `proto:…`, `json:…` and `-option` for something else than a file. */
function absolute(path: string): string {
  if (!path.startsWith('/')) throw failed('run', `${path} is not an absolute path`);
  return path;
}

/** As `absolute`, but our own `json:` descriptions are allowed too. */
function absoluteSource(path: string): string {
  return path.startsWith('json:{') ? path : absolute(path);
}

function formatArg(options: { format?: string }): string[] {
  return options.format ? ['-f', options.format] : [];
}

function parseJson(output: string): unknown {
  try {
    return JSON.parse(output);
  } catch (error) {
    throw failed('info', 'its output is not JSON', error);
  }
}

function failed(command: string, reason: string, cause?: unknown): VirtkeepError {
  return new VirtkeepError('qemu_img_failed', { command, reason }, { cause });
}

function text(value: unknown): string | undefined {
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function number(value: unknown): number {
  return typeof value === 'number' ? value : 0;
}
