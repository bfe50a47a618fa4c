import { createHash } from 'node:crypto';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { MAX_CHAIN_BYTES, MAX_CHAIN_MANIFESTS, MAX_MANIFEST_BYTES, MAX_MEMBERS } from '../format/bounds.ts';
import {
  digestOf,
  type Manifest,
  type ManifestPart,
  type MemberRecord,
  manifestFault,
  parseManifest,
} from '../format/manifest.ts';
import { GROUP, type ManifestPlace, wholeOf } from '../format/manifest-chain.ts';
import { isManifestName } from '../format/names.ts';
import { type Seal, sealOf } from '../format/seal.ts';
import type { TarSource } from './tar-source.ts';

type Place = Pick<ManifestPlace, 'dataOffset' | 'sizeBytes'> &
  Partial<Pick<MemberRecord, 'sha256' | 'digest'>>;

/** A manifest out of the file, made whole. */
interface Whole {
  manifest: Manifest;
  /** Of its bytes. */
  sha256: string;
  /** See {@link Seal}. */
  isBound: boolean;
}

/** The same with its bytes. */
interface Parsed extends Whole {
  bytes: Buffer;
}

/** A manifest that others continue. */
interface Base {
  whole: Promise<Whole>;
  sizeBytes: number;
  /** Of its bytes, once they have been read and are well. */
  sha256?: string;
}

/** A manifest that somebody asked for by itself, and not for another that continues it. */
export interface ReadManifest extends Pick<Whole, 'manifest' | 'sha256'> {
  seal: Seal;
}

/**
 * Reads the manifests of one archive and completes each by the manifests that it continues (manifest-chain.ts). In place of a
 * damaged manifest one of its successors is taken, which says the same.
 *
 * The newest one lists all others. Once it is known, each is read by what it says of them and not by what they say of one
 * another: those of before signatures list no digests, and a signature stands for what the newest one lists. What was read on the way to
 * it is kept when all of that is as it says.
 *
 * A chain goes backwards in the file, each manifest in it is read once, and all of them together are bounded, so that a
 * forged archive cannot keep the reader busy.
 */
export class ManifestReader {
  readonly #source: TarSource;
  readonly #path: string;
  /** Manifests that others continue, by their offset. */
  readonly #bases = new Map<number, Base>();
  #baseBytes = 0;
  /** What the newest manifest lists, by offset. */
  #listed: ReadonlyMap<number, Place> | undefined;

  constructor(source: TarSource, path: string) {
    this.#source = source;
    this.#path = path;
  }

  /** @throws VirtkeepError archive_damaged, archive_unsupported, io_failed */
  async read(place: Place): Promise<ReadManifest> {
    return this.#sealed(await this.#read(place));
  }

  /** The same of bytes that were read already, and where they stand. Errors as above. */
  async newest(bytes: Buffer, dataOffset: number): Promise<ReadManifest> {
    const read = this.#sealed(await this.#parse(bytes, dataOffset));
    this.goBy(read, { dataOffset, sizeBytes: bytes.length });
    return read;
  }

  /** From now on this manifest counts as the newest. */
  goBy({ manifest, sha256 }: ReadManifest, { dataOffset, sizeBytes }: Place): void {
    const own: Place = { dataOffset, sizeBytes, sha256 };
    this.#listed = new Map([...manifest.members, own].map(place => [place.dataOffset, place]));
    if (this.#basesAreAsListed()) return;
    this.#bases.clear();
    this.#baseBytes = 0;
  }

  /** Whether all that was read before it was known what it must be was just that. */
  #basesAreAsListed(): boolean {
    return [...this.#bases].every(([dataOffset, { sizeBytes, sha256 }]) => {
      const listed = this.#listed!.get(dataOffset);
      if (sha256 === undefined || listed?.sizeBytes !== sizeBytes) return false;
      return (digestOf(listed) ?? sha256) === sha256;
    });
  }

  async #read(place: Place): Promise<Parsed> {
    const { dataOffset, sizeBytes } = place;
    if (sizeBytes > MAX_MANIFEST_BYTES || dataOffset + sizeBytes > this.#source.tarBytes)
      throw this.#damaged('a manifest is too large, or behind its end');
    const bytes = await this.#source.read(dataOffset, sizeBytes);
    const listed = this.#listed?.get(dataOffset);
    if (this.#listed && listed?.sizeBytes !== sizeBytes)
      throw this.#damaged('a manifest is none that the newest one lists');
    const recorded = digestOf(listed ?? {}) ?? digestOf(place);
    const read = await this.#parse(bytes, dataOffset);
    if (recorded !== null && recorded !== read.sha256)
      throw this.#damaged('a manifest is not what a later one says');
    return read;
  }

  async #parse(bytes: Buffer, dataOffset: number): Promise<Parsed> {
    const part = parseManifest(bytes, this.#path);
    const { manifest, isBound } =
      part.continues === undefined
        ? { manifest: part, isBound: true }
        : await this.#continued(part, dataOffset);
    if (manifest.members.length > MAX_MEMBERS || manifest.states.length > MAX_MEMBERS)
      throw this.#damaged('its manifests list too much');
    const sha256 = createHash('sha256').update(bytes).digest('hex');
    return { manifest, sha256, isBound, bytes };
  }

  #sealed({ manifest, sha256, isBound, bytes }: Parsed): ReadManifest {
    const fault = manifestFault(manifest);
    if (fault !== undefined) throw this.#damaged(fault);
    return { manifest, sha256, seal: sealOf(bytes, isBound) };
  }

  /** A manifest that others are going to continue. Errors as above. */
  base(place: Place): Promise<Whole> {
    const { dataOffset, sizeBytes } = place;
    const known = this.#bases.get(dataOffset);
    if (known) return known.whole;
    this.#baseBytes += sizeBytes;
    const tooMany = this.#baseBytes > MAX_CHAIN_BYTES || this.#bases.size >= MAX_CHAIN_MANIFESTS;
    const whole = tooMany
      ? Promise.reject<Whole>(this.#damaged('its manifests are too many'))
      : this.#readBase(place);
    const base: Base = { whole, sizeBytes };
    // before anybody who waits for it goes on
    whole.then(
      ({ sha256 }) => {
        base.sha256 = sha256;
      },
      () => {},
    );
    this.#bases.set(dataOffset, base);
    return whole;
  }

  async #readBase(place: Place): Promise<Whole> {
    const { manifest, sha256, isBound } = await this.#read(place);
    return { manifest, sha256, isBound };
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
        const isBound = digestOf(place) === base.sha256 && base.isBound;
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
