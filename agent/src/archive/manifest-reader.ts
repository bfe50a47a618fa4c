import { createHash } from 'node:crypto';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { MAX_CHAIN_BYTES, MAX_CHAIN_MANIFESTS, MAX_MANIFEST_BYTES, MAX_MEMBERS } from './bounds.ts';
import {
  digestOf,
  type Manifest,
  type ManifestPart,
  type MemberRecord,
  manifestFault,
  parseManifest,
} from './manifest.ts';
import { GROUP, type ManifestPlace, wholeOf } from './manifest-chain.ts';
import { isManifestName } from './names.ts';
import { type Seal, sealOf } from './seal.ts';
import type { TarSource } from './tar-source.ts';

type Place = Pick<ManifestPlace, 'dataOffset' | 'sizeBytes'> &
  Partial<Pick<MemberRecord, 'sha256' | 'digest'>>;

/** A manifest out of the file, with what was read to make it whole. */
export interface ReadManifest {
  manifest: Manifest;
  sha256: string;
  seal: Seal;
}

/**
 * Reads the manifests of one archive and makes each whole by those it continues (manifest-chain.ts). In place of one that
 * is damaged one of its successors is taken, which says the same.
 *
 * A chain goes backwards in the file, each manifest in it is read once, and all of them together are bounded, so that a
 * forged archive cannot keep the reader busy.
 */
export class ManifestReader {
  readonly #source: TarSource;
  readonly #path: string;
  /** Manifests that others continue, by their offset. */
  readonly #bases = new Map<number, Promise<ReadManifest>>();
  #baseBytes = 0;

  constructor(source: TarSource, path: string) {
    this.#source = source;
    this.#path = path;
  }

  /** @throws VirtkeepError archive_damaged, archive_unsupported, io_failed */
  async read(place: Place): Promise<ReadManifest> {
    const read = await this.#read(place);
    this.#check(read.manifest);
    return read;
  }

  /** The same of bytes that were read already, and where they stand. Errors as above. */
  async newest(bytes: Buffer, dataOffset: number): Promise<ReadManifest> {
    const read = await this.#parse(bytes, dataOffset);
    this.#check(read.manifest);
    return read;
  }

  async #read({ dataOffset, sizeBytes, sha256 = null, digest }: Place): Promise<ReadManifest> {
    if (sizeBytes > MAX_MANIFEST_BYTES || dataOffset + sizeBytes > this.#source.tarBytes)
      throw this.#damaged('a manifest is too large, or behind its end');
    const bytes = await this.#source.read(dataOffset, sizeBytes);
    const recorded = digestOf({ sha256, digest });
    const read = await this.#parse(bytes, dataOffset);
    if (recorded !== null && recorded !== read.sha256)
      throw this.#damaged('a manifest is not what its successor says');
    return read;
  }

  async #parse(bytes: Buffer, dataOffset: number): Promise<ReadManifest> {
    const part = parseManifest(bytes, this.#path);
    const { manifest, isBound } =
      part.continues === undefined
        ? { manifest: part, isBound: true }
        : await this.#continued(part, dataOffset);
    if (manifest.members.length > MAX_MEMBERS || manifest.states.length > MAX_MEMBERS)
      throw this.#damaged('its manifests list too much');
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    return { manifest, sha256, seal: sealOf(bytes, isBound) };
  }

  #check(manifest: Manifest): void {
    const fault = manifestFault(manifest);
    if (fault !== undefined) throw this.#damaged(fault);
  }

  /** A manifest that others are going to continue. Errors as above. */
  base(place: Place): Promise<ReadManifest> {
    const known = this.#bases.get(place.dataOffset);
    if (known) return known;
    this.#baseBytes += place.sizeBytes;
    const tooMany = this.#baseBytes > MAX_CHAIN_BYTES || this.#bases.size >= MAX_CHAIN_MANIFESTS;
    const read = tooMany ? Promise.reject(this.#damaged('its manifests are too many')) : this.#read(place);
    read.catch(() => {});
    this.#bases.set(place.dataOffset, read);
    return read;
  }

  async #continued(
    part: ManifestPart,
    dataOffset: number,
  ): Promise<{ manifest: Manifest; isBound: boolean }> {
    const { continues, members } = part;
    // the record of the one that is continued is the first of the members that come after it
    const successors = members.filter(({ name }) => isManifestName(name)).slice(1, GROUP);
    let reason: VirtkeepError | undefined;
    for (const place of [continues!, ...successors]) {
      if (place.dataOffset + place.sizeBytes > dataOffset) break;
      try {
        const base = await this.base(place);
        const whole = wholeOf(part, base.manifest);
        const isBound = digestOf(place) === base.sha256 && base.seal.isBound;
        if (typeof whole !== 'string') return { manifest: whole, isBound };
        reason ??= this.#damaged(whole);
      } catch (error) {
        if (!hasKey(error, 'archive_damaged', 'archive_unsupported')) throw error;
        reason ??= error;
      }
    }
    throw reason ?? this.#damaged('a manifest continues one that comes after it');
  }

  #damaged(reason: string): VirtkeepError {
    return new VirtkeepError('archive_damaged', { path: this.#path, reason });
  }
}
