/**
 * The disks of a restore point as QEMU reads them: of a plain archive the lowest layer where it stands, everything else out of spare files.
 * Nothing opens what a layer's header names: it is written anew, or told, and each layer is judged before.
 */
import { join } from 'node:path';
import { nameOf } from '@virtkeep/shared/beneath';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { roundUp } from '@virtkeep/shared/units';
import type { Archive, ManifestLayer } from '../../archive/index.ts';
import { imageInfo, readImageHeader, SECTOR_BYTES } from '../../disks/index.ts';
import { removePieces } from '../../images/index.ts';
import { judgeStack, MERGED_AT_ONCE, type MemberFile, mergeImages } from '../archives/image-stack.ts';
import type { OperationContext } from '../context.ts';
import type { EffectHandle, Slice } from '../effect.ts';
import { makeNewFile } from '../new-file.ts';
import { bottomBacking, sliceSource } from '../restore/instant/chain.ts';
import type { PlannedDisk } from './plan.ts';

type ImageHeader = Awaited<ReturnType<typeof readImageHeader>>;

/** A node of QEMU's block layer. */
export type BlockNode = Readonly<Record<string, unknown>>;

export interface DiskSource {
  disk: PlannedDisk;
  node: BlockNode;
  /** Removes what it was unpacked into. */
  remove(): Promise<void>;
}

/** What a thin clone's lowest layer stands on. */
export interface TemplateFile {
  path: string;
  format: string;
}

export interface Reading {
  archive: Archive;
  /** Of spare files. */
  directory: string;
  /** Bytes of layers that have been unpacked so far, of all disks. */
  unpacked: { bytes: number };
}

/** Layers that are unpacked at a time before they become one. */
const LAYERS_AT_ONCE = MERGED_AT_ONCE;

/**
 * The layers of a disk that are unpacked before they are read: all but the lowest of a plain archive. QEMU takes for an image whose header
 * names another file nothing in its place but a whole file, so these get headers of ours.
 */
export function unpackedLayers(
  { format }: Pick<Archive, 'format'>,
  { record: { layers, base } }: PlannedDisk,
): readonly ManifestLayer[] {
  if (format !== 'tar') return layers;
  if (layers.length === 1) return [];
  return base === null ? layers.slice(1) : layers;
}

/**
 * @param base of a thin clone
 * @throws VirtkeepError archive_damaged, export_unsupported, hash_mismatch, qemu_img_failed, disk_full, io_failed, canceled
 */
export async function openDisk(
  context: OperationContext,
  reading: Reading,
  disk: PlannedDisk,
  base: TemplateFile | null,
): Promise<DiskSource> {
  const { archive } = reading;
  const layers = unpackedLayers(archive, disk);
  const [lowest] = disk.record.layers;
  if (layers.includes(lowest!)) return stacked(context, reading, disk, { layers, below: base });
  const { place, slice, header } = await judgedSlice(context.signal, archive, disk, lowest!.member);
  if (layers.length > 0) {
    // its own header is believed
    if (header.backingFile !== undefined) throw damaged(archive, `${slice.member} stands on another file`);
    const below = { path: bottomBacking(place, slice), format: 'qcow2' };
    return stacked(context, reading, disk, { layers, below });
  }
  requireSize(archive, disk, header.virtualSize);
  const size = roundUp(slice.sizeBytes, SECTOR_BYTES);
  const file = {
    driver: 'raw',
    offset: slice.offset,
    size,
    file: { driver: 'file', filename: place },
  };
  const backing = base && { driver: base.format, file: { driver: 'file', filename: base.path } };
  return { disk, node: { driver: 'qcow2', file, backing }, remove: async () => {} };
}

/**
 * A layer where it stands, judged: by our own reading of its header, by qemu-img under bounds, and by its hash where one is recorded.
 * @returns as `place` the archive by its open file: whoever may write to the pool may put another one under its name
 */
async function judgedSlice(
  signal: AbortSignal,
  archive: Archive,
  disk: PlannedDisk,
  name: string,
): Promise<{ place: string; slice: Slice; header: ImageHeader }> {
  const member = archive.members.find(one => one.name === name);
  if (member === undefined || member.isSpecial) throw damaged(archive, `it has no layer "${name}"`);
  const slice = { member: name, offset: member.dataOffset, sizeBytes: member.sizeBytes };
  const place = nameOf((await archive.dataOf(name)).source);
  const header = await readImageHeader(place, slice.offset);
  refuseHeader(archive, disk, name, header);
  const info = await imageInfo(sliceSource(place, slice), { signal, untrusted: true });
  if (info.corrupt) throw damaged(archive, `"${name}" is marked as corrupt`);
  const expected = member.sha256 ?? member.digest;
  if (expected !== undefined && (await archive.sha256Of(name, signal, () => {})) !== expected)
    throw new VirtkeepError('hash_mismatch', { member: name, path: archive.path });
  return { place, slice, header };
}

async function stacked(
  context: OperationContext,
  reading: Reading,
  disk: PlannedDisk,
  { layers, below }: { layers: readonly ManifestLayer[]; below: TemplateFile | null },
): Promise<DiskSource> {
  const { archive } = reading;
  const { signal } = context;
  const fault = (reason: string) => damaged(archive, reason);
  const handles = new Map<string, EffectHandle>();
  const remove = async (...paths: string[]) => {
    for (const path of paths) {
      await removePieces([path], signal);
      handles.get(path)?.keep();
      handles.delete(path);
    }
  };
  const extract = async (member: string, stack: string | undefined): Promise<MemberFile> => {
    const { path, handle } = await extracted(context, reading, member, stack);
    handles.set(path, handle);
    refuseHeader(archive, disk, member, await readImageHeader(path));
    return { member, path };
  };
  const stack: MemberFile[] = [];
  for (const { member } of layers.slice(0, LAYERS_AT_ONCE)) stack.push(await extract(member, stack[0]?.path));
  await judgeStack(stack, below, fault, signal);
  // of a long life some at a time: QEMU opens no chain of many hundreds
  for (let at = LAYERS_AT_ONCE; at < layers.length; at += LAYERS_AT_ONCE) {
    await mergeDown(stack, signal, remove);
    const into = stack[0]!;
    for (const { member } of layers.slice(at, at + LAYERS_AT_ONCE))
      stack.push(await extract(member, into.path));
    await judgeStack(stack.slice(1), { path: into.path, format: 'qcow2' }, fault, signal);
  }
  const top = stack.at(-1)!.path;
  requireSize(archive, disk, (await readImageHeader(top)).virtualSize);
  return {
    disk,
    // its header was written here, as were those of the layers below
    node: { driver: 'qcow2', file: { driver: 'file', filename: top } },
    remove: () => remove(...stack.map(({ path }) => path).toReversed()),
  };
}

async function extracted(
  context: OperationContext,
  { archive, directory, unpacked: total }: Reading,
  member: string,
  stack: string | undefined,
): Promise<{ path: string; handle: EffectHandle }> {
  const { signal } = context;
  const path = join(directory, `.virtkeep-${newId()}.layer`);
  const { handle, mark } = await makeNewFile(context, path, false, { stack: stack ?? path, inPool: true });
  await archive.extractMember(member, path, {
    ...{ signal, existing: true, mark, checkHash: true },
    onProgress: bytes => context.progress.done(total.bytes + bytes),
  });
  total.bytes += archive.members.find(({ name }) => name === member)?.sizeBytes ?? 0;
  return { path, handle };
}

/** Makes one image of a stack: the lowest. */
async function mergeDown(
  stack: MemberFile[],
  signal: AbortSignal,
  remove: (...paths: string[]) => Promise<void>,
): Promise<void> {
  const [into, ...merged] = stack;
  if (merged.length === 0) return;
  await mergeImages(into!.path, merged, signal, () => {});
  await remove(...merged.map(({ path }) => path).toReversed());
  stack.length = 1;
}

const damaged = ({ path }: Pick<Archive, 'path'>, reason: string): VirtkeepError =>
  new VirtkeepError('archive_damaged', { path, reason });

function refuseHeader(
  archive: Archive,
  { target }: PlannedDisk,
  member: string,
  { format, dataFile, unknownFeatures, encrypted }: ImageHeader,
): void {
  if (format !== 'qcow2') throw damaged(archive, `${member} is not a qcow2 image`);
  if (dataFile || unknownFeatures)
    throw damaged(archive, `${member} names another file, or uses features that are not known`);
  const reason = `the disk ${target} is encrypted, and its secret is not in the backup`;
  if (encrypted) throw new VirtkeepError('export_unsupported', { file: archive.path, reason });
}

function requireSize(archive: Archive, { target, capacityBytes }: PlannedDisk, foundBytes: number): void {
  if (foundBytes === capacityBytes) return;
  const reason = `the disk ${target} has ${foundBytes} bytes, ${capacityBytes} are recorded`;
  throw damaged(archive, reason);
}
