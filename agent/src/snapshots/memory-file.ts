/**
 * libvirt's memory file (`virsh save`, a state with memory): a header with the domain's XML, then QEMU's stream.
 *
 * Layout (measured on 9.0): 16 bytes magic, then little-endian u32 version (2), dataLength, wasRunning, compressed,
 * cookieOffset and 14 unused; 92 bytes in all. Then dataLength bytes: XML, NUL, cookie, NUL, padding (about 64 KiB of
 * it is spare). libvirt refuses another name or uuid than the header's, so a restored copy needs a patched one.
 */
import { type FileHandle, open } from 'node:fs/promises';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';

const HEADER_BYTES = 92;
const MAGIC = 'LibvirtQemudSave';
const VERSION = 2;
const AT = { version: 16, dataLength: 20, wasRunning: 24, compressed: 28, cookieOffset: 32 } as const;
/** More XML than libvirt would ever write. */
const MAX_DATA_BYTES = 16 * MiB;

interface MemoryHeader {
  header: Buffer;
  xml: string;
  /** Empty when there is none. */
  cookie: Buffer;
  dataLength: number;
}

/** The domain XML inside a memory file. @throws VirtkeepError archive_damaged when it is none, io_failed */
export async function memoryFileXml(path: string): Promise<string> {
  return withFile(path, 'r', async file => (await readHeader(file, path)).xml);
}

/**
 * Replaces the domain XML inside a memory file, in place and durably.
 * @throws VirtkeepError archive_damaged when it is none, or the new XML does not fit into the space of the old one
 */
export async function editMemoryFile(path: string, edit: (xml: string) => string): Promise<void> {
  await withFile(path, 'r+', async file => {
    const { header, xml, cookie, dataLength } = await readHeader(file, path);
    const text = Buffer.from(edit(xml));
    const needed = text.length + 1 + (cookie.length > 0 ? cookie.length + 1 : 0);
    if (needed > dataLength)
      throw damaged(path, `its header has no room for ${needed - dataLength} more bytes`);
    const data = Buffer.alloc(dataLength);
    text.copy(data);
    cookie.copy(data, text.length + 1);
    header.writeUInt32LE(cookie.length > 0 ? text.length + 1 : 0, AT.cookieOffset);
    await file.write(Buffer.concat([header, data]), 0, HEADER_BYTES + dataLength, 0);
    await file.datasync();
  });
}

async function readHeader(file: FileHandle, path: string): Promise<MemoryHeader> {
  const header = Buffer.alloc(HEADER_BYTES);
  const { bytesRead } = await file.read(header, 0, HEADER_BYTES, 0);
  if (bytesRead < HEADER_BYTES || header.toString('latin1', 0, 16) !== MAGIC)
    throw damaged(path, 'it is not a memory file of libvirt');
  const version = header.readUInt32LE(AT.version);
  const dataLength = header.readUInt32LE(AT.dataLength);
  if (version !== VERSION || dataLength === 0 || dataLength > MAX_DATA_BYTES)
    throw damaged(path, `its header is of version ${version} with ${dataLength} bytes of data`);
  const data = Buffer.alloc(dataLength);
  const read = await file.read(data, 0, dataLength, HEADER_BYTES);
  if (read.bytesRead < dataLength) throw damaged(path, 'it ends inside its header');
  const cookieOffset = header.readUInt32LE(AT.cookieOffset);
  return {
    header,
    xml: upToNul(data, 0).toString('utf8'),
    cookie: cookieOffset > 0 && cookieOffset < dataLength ? upToNul(data, cookieOffset) : Buffer.alloc(0),
    dataLength,
  };
}

function upToNul(data: Buffer, from: number): Buffer {
  const end = data.indexOf(0, from);
  return data.subarray(from, end < 0 ? data.length : end);
}

function damaged(path: string, reason: string): VirtkeepError {
  return new VirtkeepError('archive_damaged', { path, reason });
}

async function withFile<T>(path: string, flags: string, work: (file: FileHandle) => Promise<T>): Promise<T> {
  let file: FileHandle | undefined;
  try {
    file = await open(path, flags);
    return await work(file);
  } catch (error) {
    throw fromIoError(error, 'reading the header of', path);
  } finally {
    await file?.close();
  }
}
