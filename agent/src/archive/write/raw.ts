import { open, readFile } from 'node:fs/promises';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { failureOf, runProgram } from '@virtkeep/shared/program';
import { GiB, KiB } from '@virtkeep/shared/units';

/** Creates an empty qcow2 of a virtual size. @throws VirtkeepError qemu_img_failed, canceled */
export async function createQcow2(
  path: string,
  virtualSizeBytes: number,
  signal: AbortSignal,
): Promise<void> {
  await qemuImg(['create', '-q', '-f', 'qcow2', path, String(virtualSizeBytes)], { signal });
}

/** A raw file or block device, or a node of QEMU's block layer that somebody has found harmless: what it holds comes from elsewhere. */
export type RawContent = { path: string } | { blockdev: Readonly<Record<string, unknown>> };

/** Memory of a program that reads what comes from elsewhere: generous for any sane image. */
const UNTRUSTED = ['prlimit', `--as=${2 * GiB}`, '--core=0'];

/**
 * Converts that into an existing empty qcow2 that starts at `offset` of the file `path`;
 * the file grows as needed, unless `sizeBytes` says how much of it is the image's: then the file is as large already, nothing beyond is
 * written, and others write beside it. At most so many bytes per second, 0 for any. Zeros are not written into one that `isNew`. Measured: the
 * bytes from `offset` on are a qcow2 that checks and compares clean.
 */
export async function convertInto(
  source: RawContent,
  target: { path: string; offset: number; sizeBytes?: number; bytesPerSecond: number; isNew?: boolean },
  signal: AbortSignal,
  onProgress: (fraction: number) => void,
): Promise<void> {
  // Commas separate options in this syntax; qemu-img unescapes doubled ones.
  const path = target.path.replaceAll(',', ',,');
  // QEMU's lock is on the whole file
  const own = target.sizeBytes === undefined ? '' : `,file.size=${target.sizeBytes},file.file.locking=off`;
  const options = `driver=qcow2,file.driver=raw,file.offset=${target.offset},file.file.driver=file,file.file.filename=${path}${own}`;
  const rate = target.bytesPerSecond > 0 ? ['-r', String(target.bytesPerSecond)] : [];
  const args = [
    'convert',
    '-p',
    '-n',
    ...(target.isNew ? ['--target-is-zero'] : []),
    '-W',
    '-m',
    '8',
    ...rate,
    ...('path' in source ? ['-f', 'raw', source.path] : [`json:${JSON.stringify(source.blockdev)}`]),
    '--target-image-opts',
    options,
  ];
  await qemuImg(args, { signal, onProgress, isUntrusted: 'blockdev' in source });
}

/**
 * Converts that into an empty file, which becomes a qcow2 of the same virtual size.
 * @throws VirtkeepError qemu_img_failed, disk_full, canceled
 */
export async function convertToQcow2(
  content: RawContent,
  { path, virtualSizeBytes }: { path: string; virtualSizeBytes: number },
  signal: AbortSignal,
  onProgress: (fraction: number) => void,
): Promise<void> {
  await createQcow2(path, virtualSizeBytes, signal);
  await convertInto(content, { path, offset: 0, bytesPerSecond: 0, isNew: true }, signal, onProgress);
}

/**
 * Bytes of the qcow2 that would come of it, at most: what is zero and not a hole counts, and so do the tables of the whole disk.
 * @throws VirtkeepError qemu_img_failed, canceled
 */
export async function measureQcow2(content: RawContent, signal: AbortSignal): Promise<number> {
  const source =
    'path' in content ? ['-f', 'raw', content.path] : [`json:${JSON.stringify(content.blockdev)}`];
  const args = ['measure', '--output=json', '-O', 'qcow2', ...source];
  const text = await qemuImg(args, { signal, isUntrusted: 'blockdev' in content, maxOutputBytes: 64 * KiB });
  return (JSON.parse(text) as { required: number }).required;
}

/**
 * Where a qcow2 image in a part of a file ends, counted from its beginning: behind its last cluster.
 * @throws VirtkeepError qemu_img_failed also when it is not sound; canceled
 */
export async function imageEnd(
  { path, offset, sizeBytes }: { path: string; offset: number; sizeBytes: number },
  signal: AbortSignal,
): Promise<number> {
  const file = { driver: 'file', filename: path, locking: 'off' };
  const image = { driver: 'qcow2', file: { driver: 'raw', offset, size: sizeBytes, file } };
  const args = ['check', '--output=json', `json:${JSON.stringify(image)}`];
  const text = await qemuImg(args, { signal, maxOutputBytes: 64 * KiB });
  return (JSON.parse(text) as { 'image-end-offset': number })['image-end-offset'];
}

/** Copies a small file into another at an offset. */
export async function copyAt(from: string, to: string, offset: number): Promise<void> {
  try {
    const bytes = await readFile(from);
    const file = await open(to, 'r+');
    await file.write(bytes, 0, bytes.length, offset).finally(() => file.close());
  } catch (error) {
    throw fromIoError(error, 'writing', to);
  }
}

interface QemuImgOptions {
  signal: AbortSignal;
  onProgress?: (fraction: number) => void;
  isUntrusted?: boolean;
  /** 0: what it says is its progress. */
  maxOutputBytes?: number;
}

async function qemuImg(
  args: string[],
  { signal, onProgress, isUntrusted = false, maxOutputBytes = 0 }: QemuImgOptions,
): Promise<string> {
  const command = args[0]!;
  const failed = (reason: string, cause?: unknown) =>
    new VirtkeepError('qemu_img_failed', { command, reason }, { cause });
  const end = await runProgram([...(isUntrusted ? UNTRUSTED : []), 'qemu-img', ...args], {
    signal,
    operation: `qemu-img ${command}`,
    timeoutMs: 0,
    maxOutputBytes,
    ...(maxOutputBytes === 0 && {
      onOutput: piece => {
        const percent = piece.toString('latin1').match(/\(([\d.]+)\/100%\)[^(]*$/)?.[1];
        if (percent !== undefined) onProgress?.(Number(percent) / 100);
      },
    }),
    failed,
  });
  if (end.code === 0) return end.stdout;
  if (/No space left/.test(end.stderr)) throw new VirtkeepError('disk_full', { path: args.at(-1)! });
  throw failed(failureOf(end));
}
