/**
 * An OVA, written from its beginning to its end in one file: each disk goes straight to its place. Descriptor and manifest stand before the
 * disks and tell their sizes and hashes, so room is left for both.
 */

import { join } from 'node:path';
import { nameOf } from '@virtkeep/shared/beneath';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Archive } from '../../archive/index.ts';
import { type FileMark, removePieces } from '../../images/index.ts';
import { descriptorOf, type PackedContent, type PackedFile } from '../../ovf/index.ts';
import type { OperationContext } from '../context.ts';
import { makeNewFile } from '../new-file.ts';
import { writeVmdk } from './convert-disk.ts';
import type { DiskSource } from './disk-source.ts';
import { copyRange, type OpenFile, openMade, put, sha256Of, sync } from './open-file.ts';
import {
  afterMember,
  BLOCK_BYTES,
  endOf,
  headerBlock,
  manifestText,
  type PackageFile,
  paddedTo,
} from './ova-layout.ts';
import type { ExportPlan, PlannedImage } from './plan.ts';

/** What a package is written with. */
export interface PackageWork {
  plan: ExportPlan;
  archive: Archive;
  sources: readonly DiskSource[];
  /** Of files that go with the operation. */
  directory: string;
  /** Of the restore point. */
  created: Date;
}

/** A file that is complete, and gets its name when all is there. */
export interface Unpublished {
  path: string;
  mark: FileMark;
}

/** More digits than the size of any file has. */
const LARGEST_BYTES = 999_999_999_999_999;

/** @throws VirtkeepError hash_mismatch, qemu_img_failed, disk_full, io_failed, canceled */
export async function writeOva(context: OperationContext, work: PackageWork): Promise<Unpublished> {
  const path = join(work.directory, `.virtkeep-${context.id}.ova`);
  const { mark } = await makeNewFile(context, path, false, { inPool: true });
  const file = await openMade(path, mark);
  try {
    await writeMembers(context, work, file);
    await sync(file);
    return { path, mark };
  } finally {
    await file.handle.close();
  }
}

async function writeMembers(context: OperationContext, work: PackageWork, file: OpenFile): Promise<void> {
  const { plan, created, sources } = work;
  const { base, images } = plan;
  const names = { descriptor: `${base}.ovf`, manifest: `${base}.mf` };
  const most = [...sources.map(({ disk }) => disk), ...images].map(({ href }) => ({
    ...{ href, sizeBytes: LARGEST_BYTES, sha256: '0'.repeat(64) },
  }));
  const descriptorBytes = Buffer.byteLength(descriptorOf(plan.vm, contentOf(plan, most)));
  const manifestBytes = Buffer.byteLength(
    manifestText([{ ...most[0]!, href: names.descriptor, sha256: '0'.repeat(64) }, ...most]),
  );
  const manifestOffset = afterMember(0, descriptorBytes);
  let position = afterMember(manifestOffset, manifestBytes);
  const files: PackageFile[] = [];
  const add = async (
    href: string,
    write: (offset: number) => Promise<{ sizeBytes: number; sha256?: string }>,
  ) => {
    const offset = position + BLOCK_BYTES;
    const { sizeBytes, sha256 } = await write(offset);
    await put(file, headerBlock(href, sizeBytes, created), position);
    position = afterMember(position, sizeBytes);
    // what follows begins at a block
    await file.handle.truncate(position);
    files.push({
      ...{ href, sizeBytes },
      sha256: sha256 ?? (await sha256Of(file, { offset, sizeBytes }, context.signal)),
    });
  };
  await file.handle.truncate(position);
  let doneBytes = 0;
  for (const source of sources) {
    const { href, capacityBytes } = source.disk;
    const onProgress = (bytes: number) => context.progress.done(doneBytes + bytes);
    await add(href, async offset => {
      const target = { file, offset, directory: work.directory };
      return { sizeBytes: await writeVmdk(context, source, target, onProgress) };
    });
    await source.remove();
    doneBytes += capacityBytes;
  }
  for (const image of images)
    await add(image.href, offset => copyImage(context, work, image, { file, offset }));
  const descriptor = paddedTo(descriptorOf(plan.vm, contentOf(plan, files)), descriptorBytes);
  await put(file, headerBlock(names.descriptor, descriptorBytes, created), 0);
  await put(file, descriptor, BLOCK_BYTES);
  const sha256 = await sha256Of(file, { offset: BLOCK_BYTES, sizeBytes: descriptorBytes }, context.signal);
  const manifest = manifestText([{ href: names.descriptor, sha256 }, ...files]);
  await put(file, headerBlock(names.manifest, manifestBytes, created), manifestOffset);
  await put(file, Buffer.from(manifest), manifestOffset + BLOCK_BYTES);
  await file.handle.truncate(endOf(position));
}

/** What a package holds, by the targets of the domain. */
export function contentOf({ disks, images }: ExportPlan, files: readonly PackedFile[]): PackedContent {
  const byName = new Map(files.map(({ href, sizeBytes }) => [href, { href, sizeBytes }]));
  return {
    disks: new Map(
      disks.map(({ target, href, capacityBytes }) => [target, { ...byName.get(href)!, capacityBytes }]),
    ),
    images: new Map(images.map(({ target, href }) => [target, byName.get(href)!])),
  };
}

/** From where it stands in a plain archive, or out of a spare file. */
async function copyImage(
  context: OperationContext,
  { archive, directory }: PackageWork,
  { member: name }: PlannedImage,
  { file, offset }: { file: OpenFile; offset: number },
): Promise<{ sizeBytes: number; sha256: string }> {
  const { signal } = context;
  const member = archive.members.find(one => one.name === name)!;
  if (archive.format === 'tar' && !member.isSpecial) {
    const lengthBytes = member.sizeBytes;
    const place = nameOf((await archive.dataOf(name)).source);
    const copied = await copyRange(place, member.dataOffset, { file, offset, signal, lengthBytes });
    const expected = member.sha256 ?? member.digest ?? copied.sha256;
    if (copied.sha256 !== expected)
      throw new VirtkeepError('hash_mismatch', { member: name, path: archive.path });
    return copied;
  }
  const path = join(directory, `.virtkeep-${newId()}.image`);
  const { handle, mark } = await makeNewFile(context, path, false, { inPool: true });
  await archive.extractMember(name, path, { signal, existing: true, mark, checkHash: true });
  const copied = await copyRange(path, 0, { file, offset, signal });
  await removePieces([path], signal);
  handle.keep();
  return copied;
}
