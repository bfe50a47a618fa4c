/**
 * Layers of an archive made into one image, in files beside it.
 *
 * What stood below the lowest of them is not needed: an empty image stands in for it, so that nothing of it is taken over, and layers
 * that have the same clusters say all that they have to say about each. Where they have not, it would be, so such layers are refused.
 */
import { dirname, join } from 'node:path';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { removePath } from '@virtkeep/shared/files';
import { newId } from '@virtkeep/shared/ids';
import type { Archive, ManifestLayer } from '../../archive/index.ts';
import { createImage, imageInfo, readImageHeader, rebaseUnsafe } from '../../disks/index.ts';
import { judgeStack, MERGED_AT_ONCE, type MemberFile, mergeImages } from '../archives/image-stack.ts';
import type { OperationContext } from '../context.ts';
import type { EffectHandle } from '../effect.ts';

/** What the lowest layer stands on where it is used. */
export interface Below {
  path: string;
  format: string;
}

interface PieceFile extends MemberFile {
  handle: EffectHandle;
}

export interface JoinedImage {
  path: string;
  /** Bytes that were read of the archive. */
  readBytes: number;
  /** Removes the file. */
  remove(): Promise<void>;
}

/**
 * @param layers lowest first
 * @param below null when the lowest one stands on nothing
 * @throws VirtkeepError archive_unsupported for layers that cannot be joined; archive_damaged, hash_mismatch, qemu_img_failed, disk_full,
 *   io_failed, canceled
 */
export async function joinLayers(
  context: OperationContext,
  archive: Archive,
  layers: readonly ManifestLayer[],
  below: Below | null,
): Promise<JoinedImage> {
  const { signal } = context;
  const damaged = (reason: string) => new VirtkeepError('archive_damaged', { path: archive.path, reason });
  const [lowest, ...upper] = layers;
  const into = await extracted(context, archive, lowest!.member);
  const standIn = below && (await makeStandIn(context, archive, into));
  await judgeStack([into], standIn && { path: standIn.path, format: 'qcow2' }, damaged, signal);
  const clusterBytes = below && (await clustersOf(archive, into, signal));
  let readBytes = sizeOf(archive, lowest!.member);
  for (let at = 0; at < upper.length; at += MERGED_AT_ONCE) {
    const some: PieceFile[] = [];
    for (const { member } of upper.slice(at, at + MERGED_AT_ONCE)) {
      some.push(await extracted(context, archive, member));
      readBytes += sizeOf(archive, member);
    }
    await judgeStack(some, { path: into.path, format: 'qcow2' }, damaged, signal);
    for (const piece of some)
      if (clusterBytes !== null && (await clustersOf(archive, piece, signal)) !== clusterBytes)
        throw unsupported(
          archive,
          `the layers "${into.member}" and "${piece.member}" have clusters of two sizes`,
        );
    await mergeImages(into.path, some, signal, () => {}).catch(error => {
      throw /No space left/.test(reasonOf(error))
        ? new VirtkeepError('disk_full', { path: into.path })
        : error;
    });
    // from the top: none goes while another stands on it
    for (const piece of some.toReversed()) await removed(piece);
  }
  if (below) await rebaseUnsafe(into.path, below, { signal });
  if (standIn) await removed(standIn);
  return { path: into.path, readBytes, remove: () => removed(into) };
}

const sizeOf = (archive: Archive, member: string): number =>
  archive.members.find(({ name }) => name === member)?.sizeBytes ?? 0;

const unsupported = ({ path }: Archive, reason: string): VirtkeepError =>
  new VirtkeepError('archive_unsupported', { path, reason });

async function extracted(context: OperationContext, archive: Archive, member: string): Promise<PieceFile> {
  const piece = declared(context, archive, member);
  await archive.extractMember(member, piece.path, { signal: context.signal, checkHash: true });
  if ((await readImageHeader(piece.path)).encrypted)
    throw unsupported(
      archive,
      `"${member}" is encrypted, and cannot be joined with other layers without its secret`,
    );
  return piece;
}

/** Declared before it is there. */
function declared(context: OperationContext, archive: Archive, member: string): PieceFile {
  const path = join(dirname(archive.path), `.virtkeep-${newId()}.layer`);
  return { member, path, handle: context.effects.begin({ type: 'file', path }, 'always') };
}

async function makeStandIn(
  context: OperationContext,
  archive: Archive,
  { path, member }: MemberFile,
): Promise<PieceFile> {
  const { virtualSize } = await readImageHeader(path);
  const standIn = declared(context, archive, member);
  await createImage(standIn.path, { format: 'qcow2', virtualSize, signal: context.signal });
  return standIn;
}

/** @throws VirtkeepError archive_unsupported for an image that speaks of parts of its clusters */
async function clustersOf(
  archive: Archive,
  { path, member }: MemberFile,
  signal: AbortSignal,
): Promise<number> {
  const { clusterBytes, subclusters } = await imageInfo(path, { signal, format: 'qcow2', untrusted: true });
  if (subclusters)
    throw unsupported(archive, `"${member}" has subclusters, and cannot be joined with other layers`);
  return clusterBytes;
}

async function removed({ path, handle }: PieceFile): Promise<void> {
  await removePath(path);
  handle.keep();
}
