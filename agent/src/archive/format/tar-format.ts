import { VirtkeepError } from '@virtkeep/shared/errors';
import { Header, Pax } from 'tar';
import { MAX_MEMBERS } from './bounds.ts';
import { DATA_ALIGN, roundUp, TAR_BLOCK } from './layout.ts';
import { nameFault } from './names.ts';

/** Largest extension header (pax, GNU long name) that is read. */
const MAX_EXTENSION_BYTES = 1024 * 1024;
/** A pax header, one block of records (a 255-byte name, a size and a comment fit), and the header itself. */
const PAX_HEADER_BYTES = 3 * TAR_BLOCK;

/** Where the data of a member starts whose header is written at `offset`. */
export function dataOffsetFor(offset: number, name: string, aligned: boolean): number {
  if (aligned) return roundUp(offset + PAX_HEADER_BYTES, DATA_ALIGN);
  return offset + (needsPax(name) ? PAX_HEADER_BYTES : TAR_BLOCK);
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: the range is "ASCII"
const needsPax = (name: string): boolean => name.length > 99 || !/^[\u0000-\u007f]*$/.test(name);

/**
 * The header blocks of a member, exactly `headerBytes` long. What exceeds a plain header is filled with a pax
 * `comment` record: readers must ignore comments (POSIX pax), which makes it the one portable padding.
 */
export function encodeHeader(name: string, sizeBytes: number, mtime: Date, headerBytes: number): Buffer {
  const header = new Header({
    path: name,
    mode: 0o600,
    uid: 0,
    gid: 0,
    size: sizeBytes,
    mtime,
    type: 'File',
    uname: 'root',
    gname: 'root',
  });
  header.encode();
  if (headerBytes === TAR_BLOCK) return header.block!;
  const pax = { path: name, size: sizeBytes, mtime };
  const bodyBytes = headerBytes - 2 * TAR_BLOCK;
  const commentBytes = bodyBytes - Buffer.byteLength(new Pax(pax).encodeBody()) - 24;
  const comment = 'padding so that the data starts at a multiple of 4096 '.padEnd(commentBytes, '.');
  const encoded = new Pax({ ...pax, comment: comment.slice(0, commentBytes) }).encode();
  return Buffer.concat([encoded, header.block!], headerBytes);
}

/** A member found by walking the headers. */
export interface WalkedMember {
  name: string;
  headerOffset: number;
  dataOffset: number;
  sizeBytes: number;
  /** True for a plain file whose bytes stand in the tar as they are. */
  isFile: boolean;
}

export interface WalkEnd {
  /** Offset of the end-of-archive blocks, or of the place where the walk had to stop. */
  endOffset: number;
  /** Undefined when the tar ends as it must. */
  fault?: string;
}

/** Reads bytes of the uncompressed tar; returns fewer only at its end. Offsets only grow during a walk. */
export type ReadAt = (offset: number, lengthBytes: number) => Promise<Buffer>;

/**
 * Walks a tar by its headers without reading the data. Damage ends the walk and is returned, not thrown, so that
 * a verification can name what it saw before; cancellation and disk errors come through from `readAt`.
 */
export async function walkTar(readAt: ReadAt, members: WalkedMember[]): Promise<WalkEnd> {
  let offset = 0;
  let headerOffset = 0;
  let extension: Extension = {};
  for (let blocks = 0; blocks < MAX_MEMBERS * 2; blocks++) {
    const block = await readAt(offset, TAR_BLOCK);
    if (block.length < TAR_BLOCK)
      return { endOffset: offset, fault: 'it ends without an end-of-archive mark' };
    if (isZero(block)) {
      const second = await readAt(offset + TAR_BLOCK, TAR_BLOCK);
      const torn = second.length < TAR_BLOCK || !isZero(second);
      return torn ? { endOffset: offset, fault: 'its end-of-archive mark is torn' } : { endOffset: offset };
    }
    const header = decodeHeader(block, extension);
    if (typeof header === 'string') return { endOffset: offset, fault: header };
    offset += TAR_BLOCK;
    if (header.extension) {
      if (header.sizeBytes > MAX_EXTENSION_BYTES)
        return { endOffset: offset, fault: 'an extension header is too large' };
      const body = await readAt(offset, header.sizeBytes);
      if (body.length < header.sizeBytes) return { endOffset: offset, fault: 'it is cut inside a header' };
      const fault = readExtension(header.type, body, extension);
      if (fault !== undefined) return { endOffset: offset, fault };
    } else {
      if (members.length >= MAX_MEMBERS) return { endOffset: offset, fault: 'it has too many members' };
      const { sizeBytes, isFile } = header;
      // Directories hold nothing; GNU tar writes one for ".".
      if (header.type !== '5')
        members.push({ name: header.name, headerOffset, dataOffset: offset, sizeBytes, isFile });
      extension = {};
    }
    offset += roundUp(header.sizeBytes, TAR_BLOCK);
    if (!header.extension) headerOffset = offset;
    if (!Number.isSafeInteger(offset)) return { endOffset: offset, fault: 'a member is impossibly large' };
  }
  return { endOffset: offset, fault: 'it has too many headers' };
}

interface Extension {
  path?: string;
  /** What a sparse member is called: its `path` is then a made-up one. */
  sparsePath?: string;
  sizeBytes?: number;
  sparse?: boolean;
}

interface DecodedHeader {
  name: string;
  sizeBytes: number;
  type: string;
  extension: boolean;
  isFile: boolean;
  modified: Date | undefined;
}

/** Decodes one header block, or says what is wrong with it. */
export function decodeHeader(block: Buffer, extension: Extension = {}): DecodedHeader | string {
  let header: Header;
  try {
    header = new Header(block);
  } catch {
    return 'a header cannot be read';
  }
  if (!header.cksumValid) return 'a header has a wrong checksum';
  const type = String.fromCharCode(block[156]!);
  const isExtension = 'xgLK'.includes(type);
  const sizeBytes = isExtension ? header.size : (extension.sizeBytes ?? header.size);
  if (sizeBytes === undefined || !Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
    return 'a header has an impossible size';
  const hasNoData = '123456'.includes(type);
  const isFile = '0\u00007'.includes(type) && extension.sparse !== true;
  const path = extension.sparsePath ?? extension.path ?? header.path ?? '';
  const name = path.replace(/^(\.\/)+/, '');
  const modified = header.mtime;
  return { name, sizeBytes: hasNoData ? 0 : sizeBytes, type, extension: isExtension, isFile, modified };
}

function readExtension(type: string, body: Buffer, extension: Extension): string | undefined {
  if (type === 'L') extension.path = body.toString('utf8').replace(/\0.*$/s, '');
  if (type !== 'x') return undefined;
  const text = body.toString('utf8');
  if (text.includes(' GNU.sparse.')) extension.sparse = true;
  const sparsePath = sparseNameIn(text);
  if (sparsePath !== undefined) extension.sparsePath = sparsePath;
  const pax = Pax.parse(text);
  if (pax.path !== undefined) extension.path = pax.path;
  if (pax.size === undefined) return undefined;
  if (!Number.isSafeInteger(pax.size) || pax.size < 0) return 'a pax header has an impossible size';
  extension.sizeBytes = pax.size;
  return undefined;
}

const SPARSE_NAME = ' GNU.sparse.name=';

/** The first such name that is not empty. A stranger wrote the text: it is gone through once, whatever it holds. */
function sparseNameIn(text: string): string | undefined {
  let at = text.indexOf(SPARSE_NAME);
  while (at >= 0) {
    const start = at + SPARSE_NAME.length;
    const end = text.indexOf('\n', start);
    if (end !== start) return end < 0 ? undefined : text.slice(start, end);
    at = text.indexOf(SPARSE_NAME, end);
  }
  return undefined;
}

/**
 * The members of a tar that was packed one directory up: the name that all of theirs begin with is taken off. All other names stay, to
 * be refused or not.
 */
export function flattened<T extends { name: string }>(members: readonly T[]): T[] {
  const directory = /^([^/]+)\/[^/]/.exec(members[0]?.name ?? '')?.[1];
  if (directory === undefined || directory === '..') return [...members];
  const start = `${directory}/`;
  if (!members.every(({ name }) => name.startsWith(start))) return [...members];
  return members.map(member => ({ ...member, name: member.name.slice(start.length) }));
}

const ZERO_BLOCK = Buffer.alloc(TAR_BLOCK);
const isZero = (block: Buffer): boolean => ZERO_BLOCK.equals(block);

/** Refuses names that could leave the target directory and names that occur twice. */
export function checkMemberNames(members: readonly { name: string }[], path: string): void {
  const seen = new Set<string>();
  for (const { name } of members) {
    const fault = nameFault(name);
    if (fault !== undefined)
      throw new VirtkeepError('archive_unsupported', {
        path,
        reason: `the member name ${JSON.stringify(name.slice(0, 80))} is not allowed: ${fault}`,
      });
    if (seen.has(name))
      throw new VirtkeepError('archive_damaged', { path, reason: `the member "${name}" occurs twice` });
    seen.add(name);
  }
}
