import { VirtkeepError } from '@virtkeep/shared/errors';
import { imageInfo } from './image.ts';
import { readImageHeader } from './qcow2-header.ts';

/**
 * Why a file is no qcow2 image that stands for itself, as its header says it; undefined: it is one.
 * @param allowedBacking it may stand on exactly this file
 * @throws VirtkeepError io_failed, not_a_file
 */
export async function dependenceOf(path: string, allowedBacking?: string): Promise<string | undefined> {
  const header = await readImageHeader(path);
  if (header.format !== 'qcow2') return 'is not a qcow2 image';
  if (header.dataFile) return 'keeps its data in another file';
  if (header.unknownFeatures) return 'uses features that are not known';
  if (header.backingFile !== undefined && header.backingFile !== allowedBacking)
    return 'has a backing file that does not belong to it';
  return undefined;
}

/**
 * Judges a foreign image before anything opens it in earnest: its header may name other files of the host (a backing
 * file, an external data file), which QEMU would read on the image's behalf. First the header is read by our own code,
 * then by qemu-img under bounds of memory and time.
 * @param options.allowedBacking the layer may stand on exactly this file (a restored chain after its rebase).
 * @throws VirtkeepError qemu_img_failed with the reason; io_failed
 */
export async function assertSelfContained(
  path: string,
  options: { signal: AbortSignal; format?: 'qcow2' | 'raw'; allowedBacking?: string },
): Promise<void> {
  const { signal, format = 'qcow2', allowedBacking } = options;
  if (format === 'raw') return;
  const refuse = (reason: string): never => {
    throw new VirtkeepError('qemu_img_failed', { command: 'info', reason: `${path} ${reason}` });
  };
  const fault = await dependenceOf(path, allowedBacking);
  if (fault !== undefined) refuse(fault);
  const info = await imageInfo(path, { signal, format, untrusted: true });
  if (info.corrupt) refuse('is marked as corrupt');
}
