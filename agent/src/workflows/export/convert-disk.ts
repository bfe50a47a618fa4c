/** One disk, flattened, into an image that is there and empty; in a file of its own or at its place in a tar. */
import { dirname, join } from 'node:path';
import { hasKey, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { KiB } from '@virtkeep/shared/units';
import { createImage, qemuImg } from '../../disks/index.ts';
import { removePieces } from '../../images/index.ts';
import { fsFacts } from '../../pools/index.ts';
import type { OperationContext } from '../context.ts';
import { makeNewFile } from '../new-file.ts';
import type { DiskSource } from './disk-source.ts';
import { copyRange, type OpenFile, patch } from './open-file.ts';

/** Where the disk's description stands in a VMDK, which QEMU has written in sectors 1 to 20. */
const DESCRIPTION = { offset: 512, lengthBytes: 20 * 512 };

/** Done so far, of the disk's size. */
type OnProgress = (bytes: number) => void;

/**
 * A stream-optimised VMDK, as OVF has it. QEMU makes an empty one, whose header and tables go to their place; then it fills that: the
 * grains go to the end one after the other, and nothing is written twice.
 * @param target the file, and where in it the image begins: at its end
 * @returns its size
 * @throws VirtkeepError qemu_img_failed, disk_full, io_failed, canceled
 */
export async function writeVmdk(
  context: OperationContext,
  source: DiskSource,
  target: { file: OpenFile; offset: number; directory: string },
  onProgress: OnProgress,
): Promise<number> {
  const { signal } = context;
  const { capacityBytes, href, adapter } = source.disk;
  const { file, offset, directory } = target;
  const name = `.virtkeep-${newId()}.vmdk`;
  const path = join(directory, name);
  const { handle } = await makeNewFile(context, path, false, { inPool: true });
  const extra = ['subformat=streamOptimized', `adapter_type=${adapter}`, 'compat6=on'];
  await createImage(path, { format: 'vmdk', virtualSize: capacityBytes, extra, signal }).catch(full(path));
  await copyRange(path, 0, { file, offset, signal });
  await patch(file, offset + DESCRIPTION.offset, DESCRIPTION.lengthBytes, bytes =>
    renamed(bytes, name, href),
  );
  await removePieces([path], signal);
  handle.keep();
  // a qemu-img of its own opens the file by its name
  await file.handle.datasync();
  await fill(
    context,
    source,
    { options: ['driver=vmdk', ...at(file.path, offset)], compress: true },
    onProgress,
  ).catch((error: unknown) => fullOrFailed(file.path, error));
  const { size } = await file.handle.stat();
  return size - offset;
}

/** A qcow2 that stands alone, in a file that is there and empty. @throws VirtkeepError qemu_img_failed, disk_full, canceled */
export async function writeQcow2(
  context: OperationContext,
  source: DiskSource,
  target: { path: string; compress: boolean },
  onProgress: OnProgress,
): Promise<void> {
  const { path, compress } = target;
  const { signal } = context;
  const virtualSize = source.disk.capacityBytes;
  await createImage(path, { format: 'qcow2', virtualSize, signal }).catch(full(path));
  const options = ['driver=qcow2', 'file.driver=file', `file.filename=${escaped(path)}`];
  await fill(context, source, { options, compress }, onProgress);
}

/** In this syntax commas separate options, and doubled ones stand for one. */
const escaped = (path: string): string => path.replaceAll(',', ',,');

const at = (path: string, offset: number): string[] => [
  'file.driver=raw',
  `file.offset=${offset}`,
  'file.file.driver=file',
  `file.file.filename=${escaped(path)}`,
];

async function fill(
  { signal }: OperationContext,
  { disk, node }: DiskSource,
  { options, compress }: { options: string[]; compress: boolean },
  onProgress: OnProgress,
): Promise<void> {
  const args = ['-n', '--target-is-zero', ...(compress ? ['-c'] : []), '--target-image-opts'];
  await qemuImg('convert', [...args, `json:${JSON.stringify(node)}`, options.join(',')], {
    signal,
    onProgress: percent => onProgress((percent / 100) * disk.capacityBytes),
  }).catch(full(disk.href));
}

/** Less than a grain takes. */
const FULL_BYTES = 256 * KiB;

/** Of a compressed VMDK that has no room QEMU says "Invalid argument": it writes a grain again that was written in part. */
async function fullOrFailed(path: string, error: unknown): Promise<never> {
  const isFull = hasKey(error, 'qemu_img_failed') && (await fsFacts(dirname(path))).available < FULL_BYTES;
  throw isFull ? new VirtkeepError('disk_full', { path }) : error;
}

/** The name of the only part of an image, which the description repeats. */
function renamed(description: Buffer, from: string, to: string): Buffer {
  const text = description.toString('latin1').replace(/\0+$/, '').replace(`"${from}"`, `"${to}"`);
  const bytes = Buffer.alloc(description.length);
  bytes.write(text, 'latin1');
  return bytes;
}

const full =
  (path: string) =>
  (error: unknown): never => {
    throw /No space left/.test(reasonOf(error)) ? new VirtkeepError('disk_full', { path }) : error;
  };
