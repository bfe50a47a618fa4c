/**
 * A directory of files: an OVF descriptor with its manifest, disks and images, or qcow2 images with the domain XML. The file that makes a
 * package of them gets its name last.
 */
import { join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Element } from '@xmldom/xmldom';
import {
  applyIdentity,
  applyImage,
  applyMetadata,
  applyNvram,
  applySource,
  attr,
  child,
  childrenAt,
  dropChains,
  NO_METADATA,
  parseDomain,
  parseXml,
  remove,
  sanitizeTree,
  serializeXml,
  type XmlGate,
} from '../../domain-xml/index.ts';
import { isOwnFile, type OwnFile } from '../../images/index.ts';
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
  const made: OwnFile[] = [];
  const files = [...(await writeDisks(context, work, made)), ...(await writeImages(context, work, made))];
  const unpublished = await describe(context, work, files, xml);
  // they are listed as disk images until the package is there, and may have been removed as such
  for (const file of made)
    if (!(await isOwnFile(file))) {
      const reason = 'somebody else has removed it';
      throw new VirtkeepError('io_failed', { operation: 'writing', path: file.path, reason });
    }
  return unpublished;
}

/** What makes a package of them. */
async function describe(
  context: OperationContext,
  { plan, stem, directory }: DirectoryWork,
  files: readonly PackageFile[],
  xml: string,
): Promise<Unpublished> {
  if (plan.format === 'qcow2') {
    const { definition, leftOut } = definitionAt(xml, directory, plan);
    for (const place of leftOut)
      context.warn(`${place}: Left out of the definition, it belongs to this node.`);
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

async function writeDisks(
  context: OperationContext,
  work: DirectoryWork,
  made: OwnFile[],
): Promise<PackageFile[]> {
  const { sources, directory, plan, compress } = work;
  const files: PackageFile[] = [];
  let doneBytes = 0;
  for (const source of sources) {
    const { href, capacityBytes } = source.disk;
    const onProgress = (bytes: number) => context.progress.done(doneBytes + bytes);
    const path = join(directory, href);
    const { mark } = await makeNewFile(context, path, true, { inPool: true });
    made.push({ type: 'file', path, made: mark });
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
  made: OwnFile[],
): Promise<PackageFile[]> {
  const { signal } = context;
  const files: PackageFile[] = [];
  for (const { member, href } of plan.images) {
    const path = join(directory, href);
    const { mark } = await makeNewFile(context, path, true, { inPool: true });
    made.push({ type: 'file', path, made: mark });
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

/**
 * The definition of a new VM with the images where they lie: it can be defined as it is, beside the one that was backed up. It passes the
 * gate for foreign XML, since it is made for wherever it is taken, and says no password.
 */
export function definitionAt(
  xml: string,
  directory: string,
  { disks, images }: Pick<ExportPlan, 'disks' | 'images'>,
): { definition: string; leftOut: string[] } {
  const { root } = parseXml(xml, 'domain', SUBJECT);
  const { name } = parseDomain(xml, SUBJECT);
  const pathsOf = (files: readonly { target: string; href: string }[]) =>
    new Map(files.map(({ target, href }) => [target, join(directory, href)]));
  const [paths, pathsOfImages] = [pathsOf(disks), pathsOf(images)];
  dropChains(root);
  for (const disk of childrenAt(root, 'devices/disk')) {
    const target = attr(child(disk, 'target'), 'dev') ?? '';
    const path = paths.get(target);
    if (path !== undefined) applySource(disk, { path, format: 'qcow2' });
    else if (['cdrom', 'floppy'].includes(attr(disk, 'device') ?? 'disk'))
      applyImage(disk, pathsOfImages.get(target) ?? null);
    else remove(disk);
  }
  applyNvram(root, null);
  const known = { disk: new Set(paths.values()), drive: new Set(pathsOfImages.values()) };
  const gate: XmlGate = {
    strict: true,
    fileAt: (path, use) => {
      if (use === 'disk' && known.disk.has(path)) return { format: 'qcow2' };
      return use === 'drive' && known.drive.has(path) ? { format: 'raw' } : undefined;
    },
    devices: new Map(),
  };
  const { root: gated, leftOut } = sanitizeTree(root, gate);
  applyMetadata(gated, NO_METADATA);
  applyIdentity(gated, { name, uuid: newId() });
  const passwords = dropPasswords(gated);
  return { definition: serializeXml(gated), leftOut: [...leftOut, ...passwords] };
}

const SUBJECT = 'the exported definition';

/** @returns where there was one */
function dropPasswords(domain: Element): string[] {
  return childrenAt(domain, 'devices/graphics').flatMap(graphics => {
    const had = graphics.hasAttribute('passwd');
    graphics.removeAttribute('passwd');
    graphics.removeAttribute('passwdValidTo');
    return had ? ['devices/graphics@passwd'] : [];
  });
}
