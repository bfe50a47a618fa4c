import { rm } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { checkedLevel, checkSize, MemberWriter } from './member-writer.ts';
import { partialPathOf } from './names.ts';
import { type Output, ZstdOutput } from './output.ts';
import { PlainOutput } from './plain-output.ts';
import { publishNew } from './publish.ts';
import { writeHashes } from './sidecar.ts';
import type { FinishedArchive, FinishOptions, WriterOptions } from './types.ts';

/**
 * Writes one archive under a partial name beside its target and publishes it when it is complete.
 *
 * Calls are made one after another. After any error the archive is lost: call abort(), which also stops the threads.
 */
export class ArchiveWriter extends MemberWriter {
  readonly path: string;
  readonly partialPath: string;
  readonly #options: WriterOptions;
  #closed = false;

  private constructor(options: WriterOptions, partialPath: string, output: Output) {
    const { hash, signal, onProgress } = options;
    const spare = spareOf(partialPath);
    super({
      file: partialPath,
      spare,
      hash,
      signal,
      members: [],
      tarOffset: 0,
      ...(onProgress && { onProgress }),
    });
    this.attach(output);
    this.#options = options;
    this.path = options.path;
    this.partialPath = partialPath;
  }

  /**
   * Starts an archive. The target is looked at first, so that hours are not spent on a name that is taken.
   * @throws VirtkeepError file_exists, invalid_field (level), canceled, and what writing can raise
   */
  static async create(options: WriterOptions): Promise<ArchiveWriter> {
    const partialPath = partialPathOf(options.path, options.backupId);
    return new ArchiveWriter(options, partialPath, await createOutput(options, partialPath));
  }

  /**
   * Writes the manifest, the end and the seek table, makes everything durable, checks the size, and gives the file
   * its name, never over an existing one. With hash, `<file>.sha256` is written first.
   * @throws VirtkeepError file_exists, and what writing can raise; abort() is to be called then
   */
  async finish(options: FinishOptions): Promise<FinishedArchive> {
    const { manifest, sizeBytes } = await this.writeEnd(options);
    await this.#close();
    await checkSize(this.partialPath, sizeBytes);
    throwIfAborted(this.#options.signal);
    const sha256Path = this.#options.hash ? await writeHashes(this.path, this.records) : null;
    await publishWithHashes(this.partialPath, this.path, sha256Path);
    return { path: this.path, sizeBytes, sha256Path, manifest };
  }

  /** Stops the threads and removes the partial file; harmless after finish and when repeated. */
  async abort(): Promise<void> {
    await this.#close();
    for (const path of [this.partialPath, spareOf(this.partialPath)]) await rm(path, { force: true });
  }

  async #close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    await this.output.close();
  }
}

const spareOf = (partialPath: string): string => `${partialPath}.qcow2`;

/**
 * Creates the partial file of a new archive.
 * @throws VirtkeepError file_exists (either name), invalid_field (level), canceled, and what writing can raise
 */
export async function createOutput(
  options: Pick<WriterOptions, 'path' | 'compression' | 'workers' | 'signal'>,
  partialPath: string,
): Promise<Output> {
  const { path, compression, workers, signal } = options;
  throwIfAborted(signal);
  const level = compression === null ? null : checkedLevel(compression.level);
  if (await exists(path)) throw new VirtkeepError('file_exists', { path });
  const output = { path: partialPath, workers, signal };
  try {
    return level === null ? await PlainOutput.create(output) : await ZstdOutput.create(output, level);
  } catch (error) {
    if (!hasKey(error, 'file_exists')) await rm(partialPath, { force: true });
    throw error;
  }
}

/** Gives a finished archive its name; a hash file written for it goes when that fails. */
export async function publishWithHashes(
  partialPath: string,
  path: string,
  sha256Path: string | null,
): Promise<void> {
  try {
    await publishNew(partialPath, path);
  } catch (error) {
    if (sha256Path !== null) await rm(sha256Path, { force: true });
    throw error;
  }
}
