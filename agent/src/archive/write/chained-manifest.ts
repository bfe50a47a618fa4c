import { encodeManifest, type Manifest, type ManifestPart } from '../format/manifest.ts';
import { baseNumbers } from '../format/manifest-chain.ts';

/** A manifest that would be larger (of a VM with very many disks) continues a nearer one. */
const HANDY_MANIFEST_BYTES = 4 * 1024 * 1024;

/**
 * The manifest as it is written: what came since an earlier one; a whole one while there are few states, and when that one cannot be had.
 * @param since what the manifest says beyond that of this number; undefined when that one cannot be had
 */
export async function encodeChained(
  manifest: Manifest,
  since: (stateNumber: number) => Promise<ManifestPart | undefined>,
): Promise<Buffer> {
  let bytes: Buffer | undefined;
  for (const number of baseNumbers(manifest.states.at(-1)!.number)) {
    const part = number === null ? manifest : await since(number);
    if (part !== undefined) bytes = encodeManifest(part);
    if (bytes !== undefined && bytes.length <= HANDY_MANIFEST_BYTES) return bytes;
  }
  return bytes ?? encodeManifest(manifest);
}
