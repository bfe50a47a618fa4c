import { throwIfAborted } from '@virtkeep/shared/abort';
import { rename, rm } from '@virtkeep/shared/beneath';
import { fromIoError, hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { digestOf, type Manifest } from '../format/manifest.ts';
import { GROUP, partOf } from '../format/manifest-chain.ts';
import { isContent, partialPathOf, partialPathsOf, sha256PathOf } from '../format/names.ts';
import type { FinishedArchive, FinishOptions, WriterOptions } from '../format/types.ts';
import type { Archive } from '../read/reader.ts';
import { keepName, publishNew } from '../system/publish.ts';
import { encodeChained } from './chained-manifest.ts';
import { checkedLevel, checkSize, MemberWriter, type WrittenManifest } from './member-writer.ts';
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
  /** What later manifests may continue, by the number of their state. */
  readonly #bases = new Map<number, WrittenManifest>();
  readonly #written: { states: number };
  #closed = false;

  private constructor(options: WriterOptions, partialPath: string, output: Output) {
    const { hash, sign, signal, onProgress, throttle } = options;
    const spare = spareOf(partialPath);
    const written = { states: 0 };
    super({
      file: partialPath,
      spare,
      hash,
      sign,
      get sameSigner() {
        return options.isOwn && written.states > 0 ? true : undefined;
      },
      signal,
      throttle,
      members: [],
      tarOffset: 0,
      maxFrames: options.maxFrames,
      ...(onProgress && { onProgress }),
    });
    this.attach(output);
    this.#written = written;
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
   * Copies a member of another archive, which stays open and unchanged meanwhile: shared where the file system can, and what is
   * compressed as it is.
   * @throws VirtkeepError member_not_found, hash_mismatch, archive_damaged, archive_unsupported, and what writing can raise
   */
  async addMember(from: Archive, name: string): Promise<void> {
    const data = await from.dataOf(name);
    const { kind, formerPath } = data.member;
    if (isContent(kind) || kind === 'memory') {
      await this.addData(data, from.path);
      return;
    }
    const bytes = await from.readMember(name, this.#options.signal);
    const { member, modified } = data;
    const hashedLater = digestOf(member) === null || member.hashedLater === true;
    await this.addBytes(name, kind, bytes, { formerPath: formerPath ?? undefined, modified, hashedLater });
  }

  /** Writes the manifest of a state that others follow. Errors as finish raises them. */
  async endState(options: FinishOptions): Promise<void> {
    const written = await this.writeManifest(options);
    this.#written.states += 1;
    if (options.stateNumber % GROUP === 0) this.#bases.set(options.stateNumber, written);
  }

  protected override encoded(manifest: Manifest): Promise<Buffer> {
    return encodeChained(manifest, async number => {
      const base = this.#bases.get(number);
      return base && partOf(manifest, base.manifest, base.place);
    });
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
