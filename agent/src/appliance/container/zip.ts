import type { FileHandle } from 'node:fs/promises';
import { crc32 } from 'node:zlib';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { errnoOf, isVirtkeepError, reasonOf } from '@virtkeep/shared/errors';
import { type Entry, fromFdPromise, type ZipFile } from 'yauzl';
import { flattened } from '../../archive/index.ts';
import { MAX_MEMBERS, mostUnpacked } from '../bounds.ts';
import { Fault, shown } from '../fault.ts';
import { type Container, checkNames, findAmong, type Member, type Take } from './container.ts';
import { PackedTar } from './tar.ts';

type ZipMember = Member & { entry: Entry };

/** File types of Unix, as a zip that was made there keeps them. */
const TYPE_MASK = 0o170000;
const REGULAR = 0o100000;
const MADE_ON_UNIX = 3;

/** The members of an appliance in a zip, or of the one tar in it. @throws Fault, VirtkeepError canceled */
export async function openZip(file: FileHandle, signal: AbortSignal): Promise<Container> {
  const { size } = await file.stat();
  const { zip, entries } = await told(() => entriesOf(file.fd, signal));
  const total = entries.reduce((sum, { entry }) => sum + entry.uncompressedSize, 0);
  if (total > mostUnpacked(size))
    throw new Fault(`it says that it holds ${total} bytes, more than are unpacked of it`);
  const [only] = entries;
  if (entries.length === 1 && /\.(ova|tar)$/i.test(only!.name)) {
    const unpack = (own: AbortSignal) => contentOf(zip, only!.entry, own);
    return PackedTar.open(unpack, signal, () => file.close());
  }
  const members = flattened(entries).map(({ name, entry }) => ({
    name,
    sizeBytes: entry.uncompressedSize,
    place: null,
    entry,
  }));
  return new Zip(zip, members, file);
}

async function entriesOf(fd: number, signal: AbortSignal) {
  const zip = await fromFdPromise(fd, { autoClose: false, strictFileNames: true });
  if (zip.entryCount > 2 * MAX_MEMBERS) throw new Fault(`it has ${zip.entryCount} entries`);
  const entries: { name: string; entry: Entry }[] = [];
  for await (const entry of zip.eachEntry()) {
    throwIfAborted(signal);
    if (entry.fileName.endsWith('/')) continue;
    const fault = faultOf(entry);
    if (fault !== undefined) throw new Fault(`the member ${shown(entry.fileName)} ${fault}`);
    entries.push({ name: entry.fileName.replace(/^(\.\/)+/, ''), entry });
  }
  checkNames(entries.map(({ name }) => name));
  return { zip, entries };
}

function faultOf(entry: Entry): string | undefined {
  const type = (entry.externalFileAttributes >>> 16) & TYPE_MASK;
  if (entry.versionMadeBy >>> 8 === MADE_ON_UNIX && type !== 0 && type !== REGULAR)
    return 'is a link or a device';
  if (entry.isEncrypted()) return 'is encrypted';
  if (!entry.canDecodeFileData()) return 'is compressed in a way that is not read';
  return undefined;
}

class Zip implements Container {
  readonly members: readonly ZipMember[];
  readonly find: Container['find'];
  readonly #zip: ZipFile;
  readonly #file: FileHandle;

  constructor(zip: ZipFile, members: readonly ZipMember[], file: FileHandle) {
    this.#zip = zip;
    this.members = members;
    this.find = findAmong(members);
    this.#file = file;
  }

  async read(names: ReadonlySet<string>, take: Take, signal: AbortSignal): Promise<void> {
    for (const member of this.members)
      if (names.has(member.name)) await take(member, contentOf(this.#zip, member.entry, signal));
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/** The size is held to what the directory says by yauzl, the checksum here. */
async function* contentOf(zip: ZipFile, entry: Entry, signal: AbortSignal): AsyncGenerator<Buffer> {
  const stream = await told(() => zip.openReadStreamPromise(entry));
  const pieces = (stream as AsyncIterable<Buffer>)[Symbol.asyncIterator]();
  let checksum = 0;
  try {
    for (;;) {
      throwIfAborted(signal);
      const { value, done } = await told(() => pieces.next());
      if (done) break;
      checksum = crc32(value, checksum);
      yield value;
    }
  } finally {
    stream.destroy();
  }
  if (checksum !== entry.crc32)
    throw new Fault(`the member ${shown(entry.fileName)} has a wrong checksum: it is damaged`);
}

/** What yauzl says is about the file; the file system's own errors stay theirs. */
async function told<T>(work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isVirtkeepError(error) || error instanceof Fault || errnoOf(error) !== undefined) throw error;
    throw new Fault(`it is no sound zip: ${reasonOf(error).slice(0, 300)}`);
  }
}
