import { throwIfAborted } from '@virtkeep/shared/abort';
import { rename, rm } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { partialPathOf, partialPathsOf, sha256PathOf } from '../format/names.ts';
import type { FinishedArchive, FinishOptions, WriterOptions } from '../format/types.ts';
import { keepName, publishNew } from '../system/publish.ts';
import { checkedLevel, checkSize, MemberWriter } from './member-writer.ts';
import { type Output, ZstdOutput } from './output.ts';
import { PlainOutput } from './plain-output.ts';
import { writeHashes } from './sidecar.ts';

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
    const { hash, sign, signal, onProgress } = options;
    const spare = spareOf(partialPath);
    super({
      file: partialPath,
      spare,
      hash,
      sign,
      signal,
      members: [],
      tarOffset: 0,
      maxFrames: options.maxFrames,
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
   * its name, never over an existing one, and its hash file.
   * @throws VirtkeepError file_exists, and what writing can raise; abort() is to be called then
   */
  async finish(options: FinishOptions): Promise<FinishedArchive> {
    const { manifest, sizeBytes } = await this.writeEnd(options);
    await this.#close();
    await checkSize(this.partialPath, sizeBytes);
    throwIfAborted(this.#options.signal);
    if (this.#options.hash) await writeHashes(this.partialPath, this.records);
    const sha256Path = await publishWithHashes(this.partialPath, this.path, this.#options.hash);
    return { path: this.path, sizeBytes, sha256Path, manifest };
  }

  /** Stops the threads and removes the partial file; harmless after finish and when repeated. */
  async abort(): Promise<void> {
    await this.#close();
    for (const path of partialPathsOf(this.partialPath)) await rm(path, { force: true });
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

/**
 * Gives a finished archive its name, and then the hash file that was written beside the partial one: who does not get the
 * name touches nothing of who has it.
 * @returns path of the hash file, null without one
 * @throws VirtkeepError file_exists, io_failed
 */
export async function publishWithHashes(
  partialPath: string,
  path: string,
  hashed: boolean,
): Promise<string | null> {
  await publishNew(partialPath, path);
  if (!hashed) return null;
  const sha256Path = sha256PathOf(path);
  try {
    await rename(sha256PathOf(partialPath), sha256Path);
  } catch (error) {
    throw fromIoError(error, 'publishing', sha256Path);
  }
  await keepName(sha256Path);
  return sha256Path;
}
