/**
 * The disks of a restore point as QEMU reads them: of a plain archive where they stand, of a compressed one out of spare files. Nothing
 * opens what a layer's header names: the chain is told, and each layer is judged before.
 */
import { join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { roundUp } from '@virtkeep/shared/units';
import type { Archive } from '../../archive/index.ts';
import { imageInfo, readImageHeader, SECTOR_BYTES } from '../../disks/index.ts';
import { removePieces } from '../../images/index.ts';
import { judgeStack, MERGED_AT_ONCE, type MemberFile, mergeImages } from '../archives/image-stack.ts';
import type { OperationContext } from '../context.ts';
import type { EffectHandle } from '../effect.ts';
import { makeNewFile } from '../new-file.ts';
import { sliceSource } from '../restore/instant/chain.ts';
import type { PlannedDisk } from './plan.ts';

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

/** Layers that are read in place; more would not go into an argument of a program, and QEMU is slow with them. */
export const MAX_LAYERS_IN_PLACE = MERGED_AT_ONCE;

/** Whether the layers of a disk are unpacked before they are read. */
export const isUnpacked = ({ format }: Pick<Archive, 'format'>, { record }: PlannedDisk): boolean =>
  format !== 'tar' || record.layers.length > MAX_LAYERS_IN_PLACE;

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
  if (isUnpacked(reading.archive, disk)) return unpacked(context, reading, disk, base);
  return { disk, node: await inPlace(context.signal, reading.archive, disk, base), remove: async () => {} };
}

async function inPlace(
  signal: AbortSignal,
  archive: Archive,
  disk: PlannedDisk,
  base: TemplateFile | null,
): Promise<BlockNode> {
  const { path } = archive;
  const members = new Map(archive.members.map(member => [member.name, member]));
  let node: BlockNode | null = base && { driver: base.format, file: { driver: 'file', filename: base.path } };
  for (const { member: name } of disk.record.layers) {
    const member = members.get(name);
    if (member === undefined || member.isSpecial) throw damaged(archive, `it has no layer "${name}"`);
    const { dataOffset: offset, sizeBytes } = member;
    const header = await readImageHeader(path, offset);
    refuseHeader(archive, name, header);
    if (header.encrypted) throw encrypted(archive, disk);
    const info = await imageInfo(sliceSource(path, { member: name, offset, sizeBytes }), {
      signal,
      untrusted: true,
    });
    if (info.corrupt) throw damaged(archive, `"${name}" is marked as corrupt`);
    const size = roundUp(sizeBytes, SECTOR_BYTES);
    const file = { driver: 'raw', offset, size, file: { driver: 'file', filename: path } };
    node = { driver: 'qcow2', file, backing: node };
    if (name === disk.record.layers.at(-1)!.member) requireSize(archive, disk, header.virtualSize);
  }
  return node!;
}

async function unpacked(
  context: OperationContext,
  reading: Reading,
  disk: PlannedDisk,
  base: TemplateFile | null,
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
    const header = await readImageHeader(path);
    refuseHeader(archive, member, header);
    if (header.encrypted) throw encrypted(archive, disk);
    return { member, path };
  };
  const { layers } = disk.record;
  const stack: MemberFile[] = [];
  for (const { member } of layers.slice(0, MAX_LAYERS_IN_PLACE))
    stack.push(await extract(member, stack[0]?.path));
  await judgeStack(stack, base, fault, signal);
  // of a long life some at a time: QEMU opens no chain of many hundreds
  for (let at = MAX_LAYERS_IN_PLACE; at < layers.length; at += MAX_LAYERS_IN_PLACE) {
    await mergeDown(stack, signal, remove);
    const into = stack[0]!;
    for (const { member } of layers.slice(at, at + MAX_LAYERS_IN_PLACE))
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

const encrypted = ({ path }: Archive, { target }: PlannedDisk): VirtkeepError =>
  new VirtkeepError('export_unsupported', {
    file: path,
    reason: `the disk ${target} is encrypted, and its secret is not in the backup`,
  });

function refuseHeader(
  archive: Archive,
  member: string,
  { format, dataFile, unknownFeatures }: Awaited<ReturnType<typeof readImageHeader>>,
): void {
  if (format !== 'qcow2') throw damaged(archive, `${member} is not a qcow2 image`);
  if (dataFile || unknownFeatures)
    throw damaged(archive, `${member} names another file, or uses features that are not known`);
}

function requireSize(archive: Archive, { target, capacityBytes }: PlannedDisk, foundBytes: number): void {
  if (foundBytes === capacityBytes) return;
  const reason = `the disk ${target} has ${foundBytes} bytes, ${capacityBytes} are recorded`;
  throw damaged(archive, reason);
}
