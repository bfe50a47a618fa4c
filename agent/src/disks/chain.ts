import { type ImageHeader, rawOf, readImageHeader } from './qcow2-header.ts';

/** libvirt refuses longer chains. */
export const MOST_LAYERS = 200;
/** So many are read: what others made too long for libvirt can still be copied while its VM is off. */
export const MOST_READ_LAYERS = 1000;

export interface Layer extends ImageHeader {
  path: string;
}

/** Whether some layer is ciphertext: those on top of it may be in plain text, and the disk is to be kept secret. */
export function isEncrypted(layers: readonly { encrypted?: boolean; backingFormat?: string }[]): boolean {
  return layers.some(({ encrypted, backingFormat }) => encrypted || backingFormat === 'luks');
}

/**
 * A disk's layers, top to bottom, from the headers themselves: cheap enough for an inventory. A raw image given as such
 * has no layers below it, whatever its first bytes say (they are the guest's). The chain ends at a layer that is not a
 * plain file (a network disk, say), and after `MOST_READ_LAYERS`.
 * @throws VirtkeepError io_failed when a layer cannot be read
 */
export async function readLayers(path: string, format?: string): Promise<Layer[]> {
  const layers: Layer[] = [await readLayer(path, format)];
  while (layers.length < MOST_READ_LAYERS) {
    const top = layers.at(-1)!;
    const next = top.backingPath;
    if (!next || layers.some(layer => layer.path === next)) break;
    layers.push(await readLayer(next, top.backingFormat));
  }
  return layers;
}

async function readLayer(path: string, format: string | undefined): Promise<Layer> {
  const header = await readImageHeader(path);
  if (format !== 'raw' || header.format === 'raw') return { path, ...header };
  const { allocatedSize, fileSize } = header;
  return { path, ...rawOf(fileSize), allocatedSize, fileSize };
}
