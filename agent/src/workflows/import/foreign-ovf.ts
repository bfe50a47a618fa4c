/**
 * An OVA, or an OVF descriptor with its files beside it. QEMU reads each image where it stands, unless it is packed: then it is unpacked into
 * a spare file first. Nothing is believed of an image but what it proves (`appliance/image/`).
 */
import { type FileHandle, stat } from 'node:fs/promises';
import { nameOf } from '@virtkeep/shared/beneath';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import {
  type AppliancePackage,
  checkCertificate,
  chunksOf,
  inspectImage,
  MAX_DRIVE_IMAGE_BYTES,
  type MadeFile,
  type Member,
  mostOfDisk,
  openAppliance,
  type Source,
  unpackDisk,
  unpackMembers,
  verifyMembers,
} from '../../appliance/index.ts';
import { markSources, type SourceMark } from '../../disks/index.ts';
import { type Appliance, applianceOf, type OvfFile, readOvf, requireUsableDisks } from '../../ovf/index.ts';
import type { OperationContext } from '../context.ts';
import { makeHeldFile } from '../new-file.ts';
import type { ForeignDisk, ForeignFile, ForeignImage } from './foreign.ts';
import { requireSame, sparePath } from './spare.ts';

export interface OvfChoice {
  /** Empty: the only one, the default one. */
  system: string;
  configuration: string;
  /** Images in drives stay behind. */
  excludeIso: boolean;
  /** Certificates (PEM) of those who may vouch for it; undefined: nobody asks. */
  authorities?: string | undefined;
}

/** The members that hold an image, in their order; none: it is an empty disk, or an empty drive. */
type Parts = readonly Member[];
/** An image, and where its parts stand by now. */
interface Parted {
  file: OvfFile;
  parts: Parts;
}

/**
 * @throws VirtkeepError appliance_invalid, ovf_invalid, ovf_version_unsupported, ovf_system_ambiguous, ovf_system_unknown,
 * ovf_configuration_unknown, ovf_disk_unusable, not_a_file, path_outside_pool, io_failed, canceled
 */
export async function openForeignOvf(
  { path, filename }: { path: string; filename: string },
  { system, configuration, excludeIso, authorities }: OvfChoice,
  context: OperationContext,
): Promise<ForeignFile> {
  const opened = await openAppliance(path, context.signal);
  try {
    const appliance = applianceOf(readOvf(opened.descriptor.bytes, filename), {
      ...(system === '' ? {} : { system }),
      ...(configuration === '' ? {} : { configuration }),
    });
    requireUsableDisks(appliance);
    const { signer, warnings } = await checkCertificate(
      opened,
      authorities === undefined ? undefined : { pem: authorities },
    );
    return await new ForeignOvf(opened, appliance, { signedBy: signer, warnings, excludeIso }).prepared();
  } catch (error) {
    await opened.close();
    throw error;
  }
}

class ForeignOvf implements ForeignFile {
  readonly appliance: Appliance;
  readonly warnings: string[];
  readonly signedBy: string | null;
  created = new Date(0);
  dataBytes = 0;
  spareBytes = 0;
  readonly #opened: AppliancePackage;
  readonly #excludeIso: boolean;
  /** By the index of the disk, and of the drive. */
  readonly #parts: Parts[] = [];
  readonly #imageParts: Parts[] = [];
  /** Paths of what stood in something packed, by the members' names. */
  #unpacked: ReadonlyMap<string, string> = new Map();
  #marks: SourceMark[] = [];
  #spareNumber = 0;
  readonly #spares: FileHandle[] = [];

  constructor(
    opened: AppliancePackage,
    appliance: Appliance,
    { signedBy, warnings, excludeIso }: { signedBy: string | null; warnings: string[]; excludeIso: boolean },
  ) {
    this.#opened = opened;
    this.appliance = appliance;
    this.signedBy = signedBy;
    this.warnings = warnings;
    this.#excludeIso = excludeIso;
  }

  /** Of all disks and images. */
  get #members(): Member[] {
    return [...this.#parts, ...this.#imageParts].flat();
  }

  async prepared(): Promise<this> {
    const { path } = this.#opened;
    const { mtime } = await stat(path).catch((error: unknown) => {
      throw fromIoError(error, 'reading', path);
    });
    this.created = mtime;
    const { name, disks, drives } = this.appliance;
    for (const { diskId, file, populatedSizeBytes } of disks) {
      const parts = file === null ? [] : await this.#partsOf(file);
      if (parts === undefined)
        throw new VirtkeepError('ovf_disk_unusable', {
          name: `"${name}"`,
          disk: `"${diskId}"`,
          reason: `its file "${file!.href}" is not there`,
        });
      this.#parts.push(parts);
      this.#count(file, parts, populatedSizeBytes ?? 0);
      this.#compare(file, parts);
    }
    for (const { file } of drives) {
      const parts = file === null || this.#excludeIso ? [] : await this.#imagePartsOf(file);
      this.#imageParts.push(parts);
      this.#count(file, parts, 0);
    }
    const places = this.#members.flatMap(({ place }) => place?.path ?? []);
    this.#marks = await markSources([path, ...places]);
    return this;
  }

  async readDisks(context: OperationContext, directory: string): Promise<ForeignDisk[]> {
    await this.#verify(context);
    this.#unpacked = await this.#unpackMembers(context, directory);
    const disks: ForeignDisk[] = [];
    for (const [index, { file, capacityBytes }] of this.appliance.disks.entries()) {
      if (file === null) disks.push(emptyDisk(capacityBytes!));
      else disks.push(await this.#readDisk(context, directory, { index, file, parts: this.#parts[index]! }));
    }
    return disks;
  }

  async readImages(context: OperationContext, directory: string): Promise<(ForeignImage | undefined)[]> {
    const images: (ForeignImage | undefined)[] = [];
    for (const [index, { file }] of this.appliance.drives.entries()) {
      const parts = this.#imageParts[index]!;
      images.push(
        parts.length === 0
          ? undefined
          : await this.#joined(context, directory, { file: file!, parts, mostBytes: MAX_DRIVE_IMAGE_BYTES }),
      );
    }
    return images;
  }

  requireSame(): Promise<void> {
    return requireSame(this.#opened.path, this.#marks);
  }

  async close(): Promise<void> {
    // one that cannot be closed keeps no other open
    await Promise.allSettled(this.#spares.map(file => file.close()));
    await this.#opened.close();
  }

  /** Undefined: a part of it is not there. */
  async #partsOf({ paths, chunkSizeBytes }: OvfFile): Promise<Parts | undefined> {
    for (const name of paths) {
      const member = await this.#opened.find(name);
      if (member !== undefined) return [member];
    }
    return chunkSizeBytes === null ? undefined : chunksOf(this.#opened, paths[0]!);
  }

  /** An image that is not there, or empty, is none that a disk needs: it leaves the drive empty. */
  async #imagePartsOf(file: OvfFile): Promise<Parts> {
    const parts = (await this.#partsOf(file)) ?? [];
    if (parts.some(({ sizeBytes }) => sizeBytes > 0)) return parts;
    const what = parts.length === 0 ? 'is not there' : 'is empty';
    this.warnings.push(`"${file.href}", the image of a drive, ${what}.`);
    return [];
  }

  #count(file: OvfFile | null, parts: Parts, atLeastBytes: number): void {
    const sizeBytes = parts.reduce((sum, part) => sum + part.sizeBytes, 0);
    this.dataBytes += Math.max(sizeBytes, atLeastBytes);
    for (const part of parts) if (part.place === null) this.spareBytes += part.sizeBytes;
    if (file !== null && isPacked(file, parts)) this.spareBytes += sizeBytes;
  }

  /** A raw image tells nothing of its size, and nothing of a piece that is missing at its end. */
  #compare(file: OvfFile | null, parts: Parts): void {
    const sizeBytes = parts.reduce((sum, part) => sum + part.sizeBytes, 0);
    if (file === null || sizeBytes >= (file.sizeBytes ?? 0)) return;
    this.warnings.push(cutOff(file.href, sizeBytes, file.sizeBytes!));
  }

  async #verify({ signal, progress }: OperationContext): Promise<void> {
    const names = this.#members.map(({ name }) => name);
    const onProgress = (doneBytes: number, totalBytes: number) => {
      progress.total(totalBytes);
      progress.done(doneBytes);
    };
    this.warnings.push(...(await verifyMembers(this.#opened, { signal, names, onProgress })));
  }

  /** Those that stand in something packed, in one pass. @returns paths, by their names */
  async #unpackMembers(context: OperationContext, directory: string): Promise<Map<string, string>> {
    const targets = new Map<string, MadeFile>();
    for (const { name, place } of this.#members)
      if (place === null && !targets.has(name)) targets.set(name, await this.#spare(context, directory));
    if (targets.size === 0) return new Map();
    const onProgress = (doneBytes: number, totalBytes: number) => {
      context.progress.total(totalBytes);
      context.progress.done(doneBytes);
    };
    await unpackMembers(this.#opened, targets, { signal: context.signal, onProgress });
    return new Map([...targets].map(([name, { file }]) => [name, nameOf(file)]));
  }

  async #readDisk(
    context: OperationContext,
    directory: string,
    { index, ...parted }: Parted & { index: number },
  ): Promise<ForeignDisk> {
    const { format, capacityBytes } = this.appliance.disks[index]!;
    const mostBytes = mostOfDisk(capacityBytes ?? 0);
    const source = await this.#joined(context, directory, { ...parted, mostBytes });
    const image = await inspectImage(source, format ?? undefined, context.signal);
    this.warnings.push(...image.warnings);
    const { virtualSizeBytes } = image;
    if (image.format === 'raw' && virtualSizeBytes < (capacityBytes ?? 0))
      this.warnings.push(cutOff(parted.file.href, virtualSizeBytes, capacityBytes!));
    return { sizeBytes: virtualSizeBytes, content: { blockdev: image.blockdev } };
  }

  /** An image as a whole: one that is packed, or in pieces, in a spare file. */
  async #joined(
    context: OperationContext,
    directory: string,
    { file, parts, mostBytes }: Parted & { mostBytes: number },
  ): Promise<Source> {
    const sources = parts.map(part => sourceOf(part, this.#unpacked));
    if (!isPacked(file, parts)) return sources[0]!;
    const { signal } = context;
    const { compression } = file;
    const spare = await this.#spare(context, directory);
    const sizeBytes = await unpackDisk(sources, spare, { signal, compression, mostBytes });
    return { path: nameOf(spare.file), offset: 0, sizeBytes, name: sources[0]!.name };
  }

  /** Held until this is closed. */
  async #spare(context: OperationContext, directory: string): Promise<MadeFile> {
    for (;;) {
      const path = sparePath(context, directory, this.#spareNumber);
      this.#spareNumber += 1;
      // another VM of the file has its own of the same operation
      if (await exists(path)) continue;
      const { file } = await makeHeldFile(context, path, false);
      this.#spares.push(file);
      return { path, file };
    }
  }
}

const cutOff = (name: string, sizeBytes: number, toldBytes: number): string =>
  `"${name}" has ${sizeBytes} bytes, and ${toldBytes} by the descriptor: its end may be missing.`;

const isPacked = ({ compression }: OvfFile, parts: readonly unknown[]): boolean =>
  compression !== 'none' || parts.length > 1;

const sourceOf = ({ name, sizeBytes, place }: Member, unpacked: ReadonlyMap<string, string>): Source => ({
  ...(place ?? { path: unpacked.get(name)!, offset: 0 }),
  sizeBytes,
  name,
});

/** One that the descriptor declares without a file. */
const emptyDisk = (sizeBytes: number): ForeignDisk => ({
  sizeBytes,
  content: { blockdev: { driver: 'null-co', size: sizeBytes, 'read-zeroes': true } },
});
