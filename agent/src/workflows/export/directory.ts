/**
 * A directory of files: an OVF descriptor with its manifest, disks and images, or qcow2 images with the domain XML. The file that makes a
 * package of them gets its name last.
 */
import { join } from 'node:path';
import {
  applyImage,
  applySource,
  attr,
  child,
  childrenAt,
  parseXml,
  serializeXml,
  withoutSecrets,
} from '../../domain-xml/index.ts';
import { descriptorOf } from '../../ovf/index.ts';
import type { OperationContext } from '../context.ts';
import { makeNewFile } from '../new-file.ts';
import { writeQcow2, writeVmdk } from './convert-disk.ts';
import { type OpenFile, openMade, put, sha256Of, sync } from './open-file.ts';
import { contentOf, type PackageWork, type Unpublished } from './ova.ts';
import { manifestText, type PackageFile } from './ova-layout.ts';
import type { ExportPlan } from './plan.ts';

export interface DirectoryWork extends PackageWork {
  /** Name of the directory, and of the file that tells what is in it. */
  stem: string;
  /** Of qcow2 images. */
  compress: boolean;
}

/** @returns the file that is to be published; all others are there. @throws VirtkeepError hash_mismatch, qemu_img_failed, disk_full, io_failed, canceled */
export async function writeDirectory(
  context: OperationContext,
  work: DirectoryWork,
  /** Of the package. */
  xml: string,
): Promise<Unpublished> {
  const { plan, stem, directory } = work;
  const files = [...(await writeDisks(context, work)), ...(await writeImages(context, work))];
  if (plan.format === 'qcow2') {
    const definition = withoutSecrets(definitionAt(xml, directory, plan));
    return writeText(context, join(directory, `.virtkeep-${context.id}.xml`), definition, false);
  }
  const descriptor = join(directory, `.virtkeep-${context.id}.ovf`);
  const unpublished = await writeText(
    context,
    descriptor,
    descriptorOf(plan.vm, contentOf(plan, files)),
    false,
  );
  const sha256 = await hashOf(context, unpublished);
  const manifest = manifestText([{ href: `${stem}.ovf`, sha256 }, ...files]);
  await writeText(context, join(directory, `${stem}.mf`), manifest, true);
  return unpublished;
}

async function writeDisks(context: OperationContext, work: DirectoryWork): Promise<PackageFile[]> {
  const { sources, directory, plan, compress } = work;
  const files: PackageFile[] = [];
  let doneBytes = 0;
  for (const source of sources) {
    const { href, capacityBytes } = source.disk;
    const onProgress = (bytes: number) => context.progress.done(doneBytes + bytes);
    const path = join(directory, href);
    const { mark } = await makeNewFile(context, path, true, { inPool: true });
    const file = await openMade(path, mark);
    try {
      if (plan.format === 'qcow2') await writeQcow2(context, source, { path, compress }, onProgress);
      else await writeVmdk(context, source, { file, offset: 0, directory }, onProgress);
      await sync(file);
      files.push(await packageFile(context, file, href, plan));
    } finally {
      await file.handle.close();
    }
    await source.remove();
    doneBytes += capacityBytes;
  }
  return files;
}

async function writeImages(
  context: OperationContext,
  { plan, archive, directory }: DirectoryWork,
): Promise<PackageFile[]> {
  const { signal } = context;
  const files: PackageFile[] = [];
  for (const { member, href } of plan.images) {
    const path = join(directory, href);
    const { mark } = await makeNewFile(context, path, true, { inPool: true });
    await archive.extractMember(member, path, { signal, existing: true, mark, checkHash: true });
    const file = await openMade(path, mark);
    files.push(await packageFile(context, file, href, plan).finally(() => file.handle.close()));
  }
  return files;
}

/** Its hash is asked for where there is a manifest. */
async function packageFile(
  { signal }: OperationContext,
  file: OpenFile,
  href: string,
  { format }: ExportPlan,
): Promise<PackageFile> {
  const { size: sizeBytes } = await file.handle.stat();
  const sha256 = format === 'qcow2' ? '' : await sha256Of(file, { offset: 0, sizeBytes }, signal);
  return { href, sizeBytes, sha256 };
}

async function writeText(
  context: OperationContext,
  path: string,
  content: string,
  keep: boolean,
): Promise<Unpublished> {
  const { mark } = await makeNewFile(context, path, keep, { inPool: true });
  const file = await openMade(path, mark);
  try {
    await put(file, Buffer.from(content), 0);
    await sync(file);
    return { path, mark };
  } finally {
    await file.handle.close();
  }
}

async function hashOf({ signal }: OperationContext, { path, mark }: Unpublished): Promise<string> {
  const file = await openMade(path, mark);
  try {
    const { size: sizeBytes } = await file.handle.stat();
    return await sha256Of(file, { offset: 0, sizeBytes }, signal);
  } finally {
    await file.handle.close();
  }
}

/** The definition with the images where they lie: it can be defined as it is. */
export function definitionAt(xml: string, directory: string, { disks, images }: ExportPlan): string {
  const { root } = parseXml(xml, 'domain', 'the exported definition');
  const paths = new Map(disks.map(({ target, href }) => [target, join(directory, href)]));
  const pathsOfImages = new Map(images.map(({ target, href }) => [target, join(directory, href)]));
  for (const disk of childrenAt(root, 'devices/disk')) {
    const target = attr(child(disk, 'target'), 'dev') ?? '';
    const path = paths.get(target);
    const image = pathsOfImages.get(target);
    if (path !== undefined) applySource(disk, { path, format: 'qcow2' });
    if (image !== undefined) applyImage(disk, image);
  }
  return serializeXml(root);
}
