import type { Manifest } from '../../archive/index.ts';
import { MERGED_AT_ONCE } from '../archives/image-stack.ts';
import { imagesOf, type KeptStates } from './plan.ts';

interface Dropped extends Pick<KeptStates, 'dropped'> {
  /** Names of the layers that end an image. */
  ends: ReadonlySet<string>;
}

const sumOf = (all: Iterable<number>): number => [...all].reduce((sum, bytes) => sum + bytes, 0);

/**
 * Bytes that a trim needs at most beside the old archive. One image is joined at a time, in files beside the new archive, which gets it then.
 * @param share of its bytes that the new archive takes, 0 to 1
 */
export function spaceFor(manifest: Manifest, { dropped, ends }: Dropped, share: number): number {
  const sizes = new Map(
    manifest.members.map(({ name, allocatedBytes, sizeBytes }) => [name, allocatedBytes ?? sizeBytes]),
  );
  const sizeOf = (member: string | null): number => sizes.get(member ?? '') ?? 0;
  const gone = manifest.states.filter(({ number }) => dropped.includes(number));
  const stays = sumOf(sizes.values()) - sumOf(gone.map(({ memoryMember }) => sizeOf(memoryMember)));
  const joined = manifest.disks
    .flatMap(({ layers }) => imagesOf(layers, ends))
    .filter(image => image.length > 1)
    .map(image => image.map(({ member }) => sizeOf(member)));
  const needs = joined.map(layers => {
    const image = sumOf(layers);
    return Math.max((stays - image) * share + mostJoined(layers), stays * share + image);
  });
  return Math.max(stays * share, ...needs);
}

/** While layers are merged, what they hold is there twice: in their files, and in the image that takes it. */
function mostJoined([lowest = 0, ...upper]: readonly number[]): number {
  let [most, image] = [lowest, lowest];
  for (let at = 0; at < upper.length; at += MERGED_AT_ONCE) {
    const merged = sumOf(upper.slice(at, at + MERGED_AT_ONCE));
    most = Math.max(most, image + 2 * merged);
    image += merged;
  }
  return most;
}
