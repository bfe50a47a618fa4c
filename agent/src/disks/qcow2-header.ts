/**
 * The header of a qcow2 image, read without QEMU (docs/interop/qcow2.txt of QEMU). Two uses: the inventory asks for the
 * sizes and chains of hundreds of disks and cannot start a process for each, and a foreign image must be judged before
 * QEMU opens it, since QEMU opens the files it names.
 */
import { constants, type Stats } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { fromIoError } from '@virtkeep/shared/errors';
import { notAFile, specialKindOf } from '@virtkeep/shared/foreign-file';
import { roundUp } from '@virtkeep/shared/units';

export interface ImageHeader {
  format: 'qcow2' | 'raw';
  /** Bytes the guest sees. */
  virtualSize: number;
  /** Bytes allocated on the file system. */
  allocatedSize: number;
  /** Bytes of the file or device. */
  fileSize: number;
  /** The backing file as written: a path, or `json:…`. */
  backingFile?: string;
  /** Its absolute path, when it is a plain file. */
  backingPath?: string;
  backingFormat?: string;
  /** The guest's data lie in another file (qcow2's external data file). */
  dataFile: boolean;
  encrypted: boolean;
  /** How many internal states lie in it, which read the files below it as they are now; absent: none. */
  internalStates?: number;
  /** Incompatible feature bits that this reader does not know. */
  unknownFeatures: boolean;
}

/** The smallest unit of every disk in QEMU. */
export const SECTOR_BYTES = 512;
const MAGIC = 0x514649fb;
const MAX_NAME_BYTES = 1023;
const MAX_HEADER_BYTES = 64 * 1024;
const EXTENSION_BACKING_FORMAT = 0xe2792aca;
const EXTENSION_DATA_FILE = 0x44415441;
/** Incompatible features: dirty, corrupt, external data file, compression type, extended L2 entries. */
const KNOWN_FEATURES = 0b11111n;
const FEATURE_DATA_FILE = 0b100n;

/**
 * Reads an image's header; anything that is not qcow2 is raw, of its file's or device's size.
 * @param offset where the image begins in the file (a layer inside an archive)
 * @throws VirtkeepError io_failed, not_a_file
 */
export async function readImageHeader(path: string, offset = 0): Promise<ImageHeader> {
  let file: FileHandle | undefined;
  try {
    // opening alone does something to many devices; and who comes between must not make the agent wait for a pipe, or take a terminal
    requireImage(path, await stat(path));
    file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
    const found = await file.stat();
    requireImage(path, found);
    const start = Buffer.alloc(MAX_HEADER_BYTES);
    const { bytesRead } = await file.read(start, 0, start.length, offset);
    const allocatedSize = found.blocks * 512;
    const fileSize = found.isBlockDevice() ? await deviceSize(file) : found.size;
    const head = start.subarray(0, bytesRead);
    const isQcow2 = head.length >= 72 && head.readUInt32BE(0) === MAGIC;
    return { ...(isQcow2 ? parseQcow2(head, path) : rawOf(fileSize)), allocatedSize, fileSize };
  } catch (error) {
    throw fromIoError(error, 'reading', path);
  } finally {
    await file?.close();
  }
}

/**
 * The header of an image that is not a file yet: a member of an archive. A relative name of what it stands on is told as one below `/`.
 * @param head the first 64 KiB, or all of a smaller one
 */
export function imageHeaderOf(head: Buffer, sizeBytes: number): Omit<ImageHeader, 'allocatedSize'> {
  const isQcow2 = head.length >= 72 && head.readUInt32BE(0) === MAGIC;
  return { ...(isQcow2 ? parseQcow2(head, '/image') : rawOf(sizeBytes)), fileSize: sizeBytes };
}

function requireImage(path: string, found: Stats): void {
  const what = found.isBlockDevice() ? undefined : specialKindOf(found);
  if (what !== undefined) throw notAFile(path, what);
}

type Parsed = Omit<ImageHeader, 'allocatedSize' | 'fileSize'>;

/** What a raw image's header would say, if it had one. A guest sees whole sectors: QEMU fills the last one with zeros. */
export function rawOf(fileSize: number): Parsed {
  const virtualSize = roundUp(fileSize, SECTOR_BYTES);
  return { format: 'raw', virtualSize, dataFile: false, encrypted: false, unknownFeatures: false };
}

function parseQcow2(head: Buffer, path: string): Parsed {
  const version = head.readUInt32BE(4);
  const features = version >= 3 && head.length >= 104 ? head.readBigUInt64BE(72) : 0n;
  const backingFile = backingName(head);
  const backingPath = backingFile ? plainPath(backingFile, path) : undefined;
  const extensions = readExtensions(head, version);
  const backingFormat = extensions.get(EXTENSION_BACKING_FORMAT)?.toString('utf8');
  const internalStates = head.readUInt32BE(60);
  return {
    format: 'qcow2',
    virtualSize: Number(head.readBigUInt64BE(24)),
    ...(backingFile && { backingFile }),
    ...(backingPath !== undefined && { backingPath }),
    ...(backingFormat !== undefined && { backingFormat }),
    dataFile: (features & FEATURE_DATA_FILE) !== 0n || extensions.has(EXTENSION_DATA_FILE),
    encrypted: head.readUInt32BE(32) !== 0,
    ...(internalStates > 0 && { internalStates }),
    unknownFeatures: version < 2 || version > 3 || (features & ~KNOWN_FEATURES) !== 0n,
  };
}

function backingName(head: Buffer): string | undefined {
  const offset = Number(head.readBigUInt64BE(8));
  const length = head.readUInt32BE(16);
  if (offset === 0 || length === 0) return undefined;
  // QEMU keeps the name inside the first cluster and refuses longer ones
  if (length > MAX_NAME_BYTES || offset + length > head.length) return '\uFFFD';
  return head.toString('utf8', offset, offset + length);
}

function readExtensions(head: Buffer, version: number): Map<number, Buffer> {
  const found = new Map<number, Buffer>();
  let at = version >= 3 && head.length >= 104 ? head.readUInt32BE(100) : 72;
  while (at + 8 <= head.length) {
    const [type, length] = [head.readUInt32BE(at), head.readUInt32BE(at + 4)];
    if (type === 0 || at + 8 + length > head.length) break;
    found.set(type, head.subarray(at + 8, at + 8 + length));
    at += 8 + Math.ceil(length / 8) * 8;
  }
  return found;
}

/** The file behind a backing name: a path beside the image, an absolute one, or QEMU's JSON form of a plain file. */
function plainPath(name: string, imagePath: string): string | undefined {
  if (name.startsWith('json:')) return jsonPath(name.slice('json:'.length));
  if (name.startsWith('file:')) return resolve(dirname(imagePath), name.slice('file:'.length));
  const colon = name.indexOf(':');
  if (colon >= 0 && !name.slice(0, colon).includes('/')) return undefined;
  return resolve(dirname(imagePath), name);
}

function jsonPath(json: string): string | undefined {
  try {
    let node = JSON.parse(json) as Record<string, unknown>;
    for (let depth = 0; depth < 8; depth++) {
      const name = node.filename ?? node['file.filename'] ?? node['file.file.filename'];
      if (typeof name === 'string') return name.startsWith('/') ? resolve(name) : undefined;
      if (typeof node.file !== 'object' || node.file === null) return undefined;
      node = node.file as Record<string, unknown>;
    }
  } catch {
    // not JSON: no plain file then
  }
  return undefined;
}

/** A block device tells its size through the end of the file; stat says 0. */
async function deviceSize(file: FileHandle): Promise<number> {
  let [low, high] = [0, 2 ** 52];
  const probe = Buffer.alloc(1);
  // binary search: read(2) past the end returns 0 bytes; 52 reads at most
  while (low < high) {
    const middle = Math.floor((low + high) / 2);
    const { bytesRead } = await file.read(probe, 0, 1, middle).catch(() => ({ bytesRead: 0 }));
    if (bytesRead > 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
