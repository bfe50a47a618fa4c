/**
 * Layers of an archive made into one image, in files beside it.
 *
 * What stood below the lowest of them is not needed: an empty image stands in for it, so that nothing of it is taken over, and layers
 * that have the same clusters say all that they have to say about each. Zeros of the stand-in would be taken over with the rest of what is
 * copied at a time, so layers are refused that have clusters of two sizes, or smaller ones than what QEMU copies.
 */
import { dirname, join } from 'node:path';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { removePath } from '@virtkeep/shared/files';
import { newId } from '@virtkeep/shared/ids';
import { KiB } from '@virtkeep/shared/units';
import type { Archive, ManifestLayer } from '../../archive/index.ts';
import { createImage, imageInfo, readImageHeader, rebaseUnsafe } from '../../disks/index.ts';
import { judgeStack, MERGED_AT_ONCE, type MemberFile, mergeImages } from '../archives/image-stack.ts';
import type { OperationContext } from '../context.ts';
import type { EffectHandle } from '../effect.ts';

/** A merge copies pieces of a cluster each, but of no less than this (mirror_start_job of QEMU; seen with 7.2). */
const LEAST_COPIED_BYTES = 4 * KiB;
/**
 * Of the stand-in, and what a layer may have at most: QEMU writes zeros where an image grows as far only as what it stands on reaches,
 * and how large what it is put on later is nobody knows. With the largest clusters it is small nevertheless.
 */
const LARGEST_BYTES = 2 ** 50;
const LARGEST_CLUSTERS = 'cluster_size=2M';

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
  const standIn = below && (await makeStandIn(context, archive, lowest!.member));
  await judgeStack([into], standIn && { path: standIn.path, format: 'qcow2' }, damaged, signal);
  const clusterBytes = standIn && (await joinableClusters(archive, into, signal));
  let readBytes = sizeOf(archive, lowest!.member);
  for (let at = 0; at < upper.length; at += MERGED_AT_ONCE) {
    const some: PieceFile[] = [];
    for (const { member } of upper.slice(at, at + MERGED_AT_ONCE)) {
      some.push(await extracted(context, archive, member));
      readBytes += sizeOf(archive, member);
    }
    await judgeStack(some, { path: into.path, format: 'qcow2' }, damaged, signal);
    for (const piece of some)
      if (clusterBytes !== null && (await joinableClusters(archive, piece, signal)) !== clusterBytes)
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

async function makeStandIn(context: OperationContext, archive: Archive, member: string): Promise<PieceFile> {
  const standIn = declared(context, archive, member);
  const size = { virtualSize: LARGEST_BYTES, extra: [LARGEST_CLUSTERS] };
  await createImage(standIn.path, { format: 'qcow2', ...size, signal: context.signal });
  return standIn;
}

/**
 * The bytes of its clusters.
 * @throws VirtkeepError archive_unsupported for an image that cannot be joined over the stand-in without taking over of it
 */
async function joinableClusters(
  archive: Archive,
  { path, member }: MemberFile,
  signal: AbortSignal,
): Promise<number> {
  const info = await imageInfo(path, { signal, format: 'qcow2', untrusted: true });
  const refused = (has: string) =>
    unsupported(archive, `"${member}" has ${has}, and cannot be joined with other layers`);
  if (info.subclusters) throw refused('subclusters');
  if (info.clusterBytes < LEAST_COPIED_BYTES)
    throw refused(`clusters of ${info.clusterBytes} bytes, fewer than ${LEAST_COPIED_BYTES}`);
  if (info.virtualSize > LARGEST_BYTES) throw refused(`${info.virtualSize} bytes`);
  return info.clusterBytes;
}

async function removed({ path, handle }: PieceFile): Promise<void> {
  await removePath(path);
  handle.keep();
}
