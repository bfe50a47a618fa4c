import type { FileHandle } from 'node:fs/promises';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { nameOf } from '@virtkeep/shared/beneath';
import { readAt } from '@virtkeep/shared/file-bytes';
import { flattened, type ReadTar, type WalkedMember, walkTar } from '../../archive/index.ts';
import { MAX_DESCRIPTOR_BYTES, MAX_KEPT_BYTES } from '../bounds.ts';
import { rangeOf } from '../bytes.ts';
import { Fault, shown } from '../fault.ts';
import { type Container, checkNames, findAmong, type Member, type Take } from './container.ts';
import { ForwardReader } from './forward.ts';

type TarMember = Member & { dataOffset: number };

/** A tar whose members are read where they stand. */
export class PlainTar implements Container {
  readonly members: readonly TarMember[];
  readonly find: Container['find'];
  readonly #file: FileHandle;

  private constructor(members: readonly TarMember[], file: FileHandle) {
    this.members = members;
    this.find = findAmong(members);
    this.#file = file;
  }

  /** @throws Fault, VirtkeepError canceled; the file system's own error */
  static async open(file: FileHandle, signal: AbortSignal): Promise<PlainTar> {
    const { size } = await file.stat();
    const read: ReadTar = (offset, lengthBytes) => {
      throwIfAborted(signal);
      return offset >= size ? Promise.resolve(Buffer.alloc(0)) : readAt(file, offset, lengthBytes);
    };
    const walked: WalkedMember[] = [];
    const members = await listed(read, walked, size);
    const path = nameOf(file);
    return new PlainTar(
      members.map(member => ({ ...member, place: { path, offset: member.dataOffset } })),
      file,
    );
  }

  async read(names: ReadonlySet<string>, take: Take, signal: AbortSignal): Promise<void> {
    for (const member of this.members)
      if (names.has(member.name))
        await take(member, rangeOf(this.#file, member.dataOffset, member.sizeBytes, signal));
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/** Brings the tar's bytes, from the beginning each time. */
export type Unpack = (signal: AbortSignal) => AsyncIterable<Buffer>;

/** Texts that are read anyway, wherever in the stream they stand. */
const isText = ({ name, sizeBytes }: WalkedMember): boolean =>
  /\.(ovf|mf|cert)$/i.test(name) && sizeBytes <= MAX_DESCRIPTOR_BYTES;

/** A tar inside something compressed: whatever is wanted of it costs a pass. */
export class PackedTar implements Container {
  readonly members: readonly TarMember[];
  readonly find: Container['find'];
  readonly #unpack: Unpack;
  readonly #kept: ReadonlyMap<number, Buffer>;
  readonly #close: () => Promise<void>;

  private constructor(
    members: readonly TarMember[],
    { unpack, kept, close }: { unpack: Unpack; kept: Map<number, Buffer>; close: () => Promise<void> },
  ) {
    this.members = members;
    this.find = findAmong(members);
    this.#unpack = unpack;
    this.#kept = kept;
    this.#close = close;
  }

  /**
   * Lists the members, which takes one pass to the stream's end.
   * @param close what the stream is of
   * @throws Fault, VirtkeepError canceled, or as the stream does
   */
  static async open(unpack: Unpack, signal: AbortSignal, close: () => Promise<void>): Promise<PackedTar> {
    const reader = new ForwardReader(unpack(signal));
    const walked: WalkedMember[] = [];
    const kept = new Map<number, Buffer>();
    let room = MAX_KEPT_BYTES;
    const read: ReadTar = async (offset, lengthBytes) => {
      const last = walked.at(-1);
      if (last !== undefined && isText(last) && last.sizeBytes <= room && !kept.has(last.dataOffset)) {
        kept.set(last.dataOffset, await reader.read(last.dataOffset, last.sizeBytes));
        room -= last.sizeBytes;
      }
      return reader.read(offset, lengthBytes);
    };
    try {
      const members = await listed(read, walked);
      await reader.drain();
      return new PackedTar(members, { unpack, kept, close });
    } finally {
      await reader.close();
    }
  }

  async read(names: ReadonlySet<string>, take: Take, signal: AbortSignal): Promise<void> {
    const wanted = this.members.filter(({ name }) => names.has(name));
    for (const member of wanted) {
      const kept = this.#kept.get(member.dataOffset);
      if (kept !== undefined) await take(member, piecesOf(kept));
    }
    const packed = wanted.filter(({ dataOffset }) => !this.#kept.has(dataOffset));
    if (packed.length === 0) return;
    const reader = new ForwardReader(this.#unpack(signal));
    try {
      for (const member of packed) await take(member, whole(reader, member));
    } finally {
      await reader.close();
    }
  }

  close(): Promise<void> {
    return this.#close();
  }
}

async function* piecesOf(bytes: Buffer): AsyncGenerator<Buffer> {
  yield bytes;
}

async function* whole(reader: ForwardReader, { name, dataOffset, sizeBytes }: TarMember) {
  let bytes = 0;
  for await (const piece of reader.range(dataOffset, sizeBytes)) {
    bytes += piece.length;
    yield piece;
  }
  if (bytes < sizeBytes) throw new Fault(`the member ${shown(name)} is cut off`);
}

/**
 * The members of a tar, all of them plain files with names that stay inside.
 * @param walked filled as the tar is walked
 * @param tarBytes when it is known before its end is reached
 * @throws Fault that names the member; as `read` does
 */
async function listed(read: ReadTar, walked: WalkedMember[], tarBytes?: number): Promise<TarMember[]> {
  let block: Buffer = Buffer.alloc(0);
  const remember: ReadTar = async (offset, lengthBytes) => {
    block = await read(offset, lengthBytes);
    return block;
  };
  const { fault } = await walkTar(remember, walked);
  for (const { name, isFile, dataOffset, sizeBytes } of walked) {
    if (!isFile) throw new Fault(`the member ${shown(name)} is a link, a device, or packed with holes`);
    if (tarBytes !== undefined && dataOffset + sizeBytes > tarBytes)
      throw new Fault(`the member ${shown(name)} is cut off, or its size of ${sizeBytes} bytes is forged`);
  }
  if (fault !== undefined) throw new Fault(`it is no sound tar: ${fault}${placeOf(block, walked)}`);
  const members = flattened(walked);
  checkNames(members.map(({ name }) => name));
  return members.map(({ name, sizeBytes, dataOffset }) => ({ name, sizeBytes, dataOffset, place: null }));
}

/** Where a walk ended: at a header that still tells its member's name, or after a member. */
function placeOf(block: Buffer, walked: readonly WalkedMember[]): string {
  const name = block.toString('latin1', 0, 100).replace(/\0.*$/s, '');
  if (block.length === 512 && /^[\x20-\x7e]+$/.test(name)) return `, at ${shown(name)}`;
  const last = walked.at(-1);
  return last === undefined ? '' : `, after ${shown(last.name)}`;
}
