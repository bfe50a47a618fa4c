/**
 * An OVA, or an OVF descriptor with its files beside it. QEMU reads each image where it stands, unless it is packed: then it is unpacked into
 * a spare file first. Nothing is believed of an image but what it proves (`appliance/image/`).
 */
import { stat } from 'node:fs/promises';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import {
  type AppliancePackage,
  chunksOf,
  inspectImage,
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
import { makeNewFile } from '../new-file.ts';
import type { ForeignDisk, ForeignFile } from './foreign.ts';
import { requireSame, sparePath } from './spare.ts';

export interface OvfChoice {
  /** Empty: the only one, the default one. */
  system: string;
  configuration: string;
}

/** The members that hold a disk's image, in their order; none: it is an empty disk. */
type Parts = readonly Member[];

/**
 * @throws VirtkeepError appliance_invalid, ovf_invalid, ovf_version_unsupported, ovf_system_ambiguous, ovf_system_unknown,
 * ovf_configuration_unknown, ovf_disk_unusable, not_a_file, path_outside_pool, io_failed, canceled
 */
export async function openForeignOvf(
  { path, filename }: { path: string; filename: string },
  { system, configuration }: OvfChoice,
  context: OperationContext,
): Promise<ForeignFile> {
  const opened = await openAppliance(path, context.signal);
  try {
    const appliance = applianceOf(readOvf(opened.descriptor.bytes, filename), {
      ...(system === '' ? {} : { system }),
      ...(configuration === '' ? {} : { configuration }),
    });
    requireUsableDisks(appliance);
    return await new ForeignOvf(opened, appliance).prepared();
  } catch (error) {
    await opened.close();
    throw error;
  }
}

class ForeignOvf implements ForeignFile {
  readonly appliance: Appliance;
  readonly warnings: string[] = [];
  created = new Date(0);
  dataBytes = 0;
  spareBytes = 0;
  readonly #opened: AppliancePackage;
  /** By the index of the disk. */
  readonly #parts: Parts[] = [];
  #marks: SourceMark[] = [];
  #spares = 0;

  constructor(opened: AppliancePackage, appliance: Appliance) {
    this.#opened = opened;
    this.appliance = appliance;
  }

  async prepared(): Promise<this> {
    const { path } = this.#opened;
    const { mtime } = await stat(path).catch((error: unknown) => {
      throw fromIoError(error, 'reading', path);
    });
    this.created = mtime;
    const { name, disks } = this.appliance;
    for (const { diskId, file, populatedSizeBytes } of disks) {
      const parts = file === null ? [] : await this.#partsOf(file);
      if (parts === undefined)
        throw new VirtkeepError('ovf_disk_unusable', {
          name: `"${name}"`,
          disk: `"${diskId}"`,
          reason: `its file "${file!.href}" is not there`,
        });
      this.#parts.push(parts);
      const sizeBytes = parts.reduce((sum, part) => sum + part.sizeBytes, 0);
      this.dataBytes += Math.max(sizeBytes, populatedSizeBytes ?? 0);
      for (const part of parts) if (part.place === null) this.spareBytes += part.sizeBytes;
      if (file !== null && isPacked(file, parts)) this.spareBytes += sizeBytes;
    }
    const places = this.#parts.flat().flatMap(({ place }) => place?.path ?? []);
    this.#marks = await markSources([path, ...places]);
    return this;
  }

  async readDisks(context: OperationContext, directory: string): Promise<ForeignDisk[]> {
    await this.#verify(context);
    const unpacked = await this.#unpackMembers(context, directory);
    const disks: ForeignDisk[] = [];
    for (const [index, { file, capacityBytes }] of this.appliance.disks.entries()) {
      const sources = this.#parts[index]!.map(part => sourceOf(part, unpacked));
      if (file === null) disks.push(emptyDisk(capacityBytes!));
      else disks.push(await this.#readDisk(context, directory, { index, file, sources }));
    }
    return disks;
  }

  requireSame(): Promise<void> {
    return requireSame(this.#opened.path, this.#marks);
  }

  close(): Promise<void> {
    return this.#opened.close();
  }

  /** Undefined: a part of it is not there. */
  async #partsOf({ paths, chunkSizeBytes }: OvfFile): Promise<Parts | undefined> {
    for (const name of paths) {
      const member = await this.#opened.find(name);
      if (member !== undefined) return [member];
    }
    return chunkSizeBytes === null ? undefined : chunksOf(this.#opened, paths[0]!);
  }

  async #verify({ signal, progress }: OperationContext): Promise<void> {
    const names = this.#parts.flat().map(({ name }) => name);
    const onProgress = (doneBytes: number, totalBytes: number) => {
      progress.total(totalBytes);
      progress.done(doneBytes);
    };
    this.warnings.push(...(await verifyMembers(this.#opened, { signal, names, onProgress })));
  }

  /** Those that stand in something packed, in one pass. @returns paths, by their names */
  async #unpackMembers(context: OperationContext, directory: string): Promise<Map<string, string>> {
    const targets = new Map<string, string>();
    for (const { name, place } of this.#parts.flat())
      if (place === null && !targets.has(name)) targets.set(name, await this.#spare(context, directory));
    if (targets.size === 0) return targets;
    const onProgress = (doneBytes: number, totalBytes: number) => {
      context.progress.total(totalBytes);
      context.progress.done(doneBytes);
    };
    await unpackMembers(this.#opened, targets, { signal: context.signal, onProgress, isMade: true });
    return targets;
  }

  async #readDisk(
    context: OperationContext,
    directory: string,
    { index, file, sources }: { index: number; file: OvfFile; sources: Source[] },
  ): Promise<ForeignDisk> {
    const { signal } = context;
    const { format, capacityBytes } = this.appliance.disks[index]!;
    let source = sources[0]!;
    if (isPacked(file, sources)) {
      const path = await this.#spare(context, directory);
      const { compression } = file;
      const mostBytes = mostOfDisk(capacityBytes ?? 0);
      const sizeBytes = await unpackDisk(sources, path, { signal, compression, mostBytes, isMade: true });
      source = { path, offset: 0, sizeBytes, name: source.name };
    }
    const image = await inspectImage(source, format ?? undefined, signal);
    this.warnings.push(...image.warnings);
    return { sizeBytes: image.virtualSizeBytes, content: { blockdev: image.blockdev } };
  }

  async #spare(context: OperationContext, directory: string): Promise<string> {
    for (;;) {
      const path = sparePath(context, directory, this.#spares);
      this.#spares += 1;
      // another VM of the file has its own of the same operation
      if (await exists(path)) continue;
      await makeNewFile(context, path, false);
      return path;
    }
  }
}

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
