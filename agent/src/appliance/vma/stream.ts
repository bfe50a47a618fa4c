/** One pass over the bytes of a VMA. */
import { throwIfAborted } from '@virtkeep/shared/abort';
import { Fault, shown } from '../fault.ts';
import {
  BLOCK_BYTES,
  CLUSTER_BYTES,
  EXTENT_HEADER_BYTES,
  type ExtentCluster,
  headerBytes,
  parseExtent,
  parseHeader,
  partsOf,
  TABLES_BYTES,
  type VmaDevice,
  type VmaHeader,
} from './format.ts';

/** Bytes of a device, none of them beyond its end. What never comes is zero. */
export interface VmaData {
  device: VmaDevice;
  offset: number;
  bytes: Buffer;
}

/** What a pass has seen of a device. */
interface Seen {
  device: VmaDevice;
  clusters: number;
  count: number;
  /** A bit for each cluster, in pieces that are made when they are needed; of memory, which comes in order, none. */
  bits: Map<number, Buffer>;
}

/** Clusters of a piece: 4 GiB of a device. */
const PIECE_CLUSTERS = 65_536;

export class VmaStream {
  readonly header: VmaHeader;
  readonly #bytes: ByteStream;
  readonly #seen = new Map<number, Seen>();

  private constructor(header: VmaHeader, bytes: ByteStream) {
    this.header = header;
    this.#bytes = bytes;
    for (const device of header.devices) {
      const clusters = Math.ceil(device.sizeBytes / CLUSTER_BYTES);
      this.#seen.set(device.id, { device, clusters, count: 0, bits: new Map() });
    }
  }

  /** Reads the header. @throws Fault; as the pieces do */
  static async open(pieces: AsyncIterable<Buffer>): Promise<VmaStream> {
    const bytes = new ByteStream(pieces);
    try {
      const tables = await bytes.take(TABLES_BYTES);
      const rest = await bytes.take(headerBytes(tables) - tables.length);
      return new VmaStream(parseHeader(Buffer.concat([tables, rest])), bytes);
    } catch (error) {
      await bytes.close();
      throw error;
    }
  }

  /**
   * The data of all devices, in the order of the archive, once. Memory: what the pieces take, a cluster, and a bit for each cluster.
   * @throws Fault naming the extent, also at the end when clusters are missing; VirtkeepError canceled; as the pieces do
   */
  async *data(signal: AbortSignal): AsyncGenerator<VmaData> {
    for (let number = 1; ; number++) {
      throwIfAborted(signal);
      const at = this.#bytes.position;
      const where = `extent ${number}, at byte ${at}`;
      const header = await this.#bytes.take(EXTENT_HEADER_BYTES);
      if (header.length === 0) break;
      yield* this.#extent(header, where);
    }
    for (const seen of this.#seen.values()) requireWhole(seen);
  }

  /** Ends what brings the bytes. */
  close(): Promise<void> {
    return this.#bytes.close();
  }

  async *#extent(header: Buffer, where: string): AsyncGenerator<VmaData> {
    if (header.length < EXTENT_HEADER_BYTES) throw new Fault(`it ends inside ${where}`);
    const clusters = inPlace(where, () => parseExtent(header, this.header.uuid));
    for (const cluster of clusters) {
      const seen = inPlace(where, () => this.#note(cluster));
      const { device } = seen;
      for (const { offset, lengthBytes } of partsOf(cluster)) {
        const bytes = await this.#bytes.take(lengthBytes);
        if (bytes.length < lengthBytes) throw new Fault(`it ends inside ${where}`);
        const left = device.sizeBytes - offset;
        // the last block may be cut
        if (left <= lengthBytes - BLOCK_BYTES)
          throw new Fault(`${where}: it has data beyond the end of ${shown(device.name)}`);
        yield { device, offset, bytes: bytes.subarray(0, left) };
      }
    }
  }

  /** Each cluster comes once. @throws Fault */
  #note({ device: id, cluster }: ExtentCluster): Seen {
    const seen = this.#seen.get(id);
    if (!seen) throw new Fault(`it has data of device ${id}, which the header does not have`);
    const { device, clusters, bits } = seen;
    const name = shown(device.name);
    if (cluster >= clusters) throw new Fault(`it has cluster ${cluster} of ${name}, which has ${clusters}`);
    if (device.isMemory) {
      if (cluster !== seen.count) throw new Fault(`it has cluster ${cluster} of ${name} out of order`);
    } else if (!setBit(bits, cluster)) throw new Fault(`it has cluster ${cluster} of ${name} again`);
    seen.count += 1;
    return seen;
  }
}

function inPlace<T>(where: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw error instanceof Fault ? new Fault(`${where}: ${error.message}`) : error;
  }
}

/** @returns false when it was set */
function setBit(bits: Map<number, Buffer>, cluster: number): boolean {
  const index = Math.floor(cluster / PIECE_CLUSTERS);
  const piece = bits.get(index) ?? Buffer.alloc(PIECE_CLUSTERS / 8);
  bits.set(index, piece);
  const [byte, bit] = [Math.floor((cluster % PIECE_CLUSTERS) / 8), 1 << (cluster % 8)];
  if ((piece[byte]! & bit) !== 0) return false;
  piece[byte]! |= bit;
  return true;
}

/** How much memory was saved is known only afterwards: its size in the header is room for it. */
function requireWhole({ device, clusters, count, bits }: Seen): void {
  if (device.isMemory || count === clusters) return;
  let first = 0;
  while (hasBit(bits, first)) first += 1;
  throw new Fault(
    `it ends with ${clusters - count} clusters of ${shown(device.name)} missing, first ${first}`,
  );
}

function hasBit(bits: Map<number, Buffer>, cluster: number): boolean {
  const byte = bits.get(Math.floor(cluster / PIECE_CLUSTERS))?.[Math.floor((cluster % PIECE_CLUSTERS) / 8)];
  return byte !== undefined && (byte & (1 << (cluster % 8))) !== 0;
}

/** Bytes that come once and in order. */
class ByteStream {
  readonly #pieces: AsyncIterator<Buffer>;
  #left: Buffer = Buffer.alloc(0);
  position = 0;

  constructor(pieces: AsyncIterable<Buffer>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  /** The next bytes, fewer only at the end. */
  async take(lengthBytes: number): Promise<Buffer> {
    const parts: Buffer[] = [];
    let missing = lengthBytes;
    while (missing > 0) {
      if (this.#left.length === 0) {
        const { value, done } = await this.#pieces.next();
        if (done) break;
        this.#left = value;
        continue;
      }
      const part = this.#left.subarray(0, missing);
      this.#left = this.#left.subarray(part.length);
      missing -= part.length;
      parts.push(part);
    }
    this.position += lengthBytes - missing;
    return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }

  async close(): Promise<void> {
    await this.#pieces.return?.();
  }
}
