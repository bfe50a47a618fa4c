/** The blocks of an OVA: a tar of the format ustar, the descriptor first, then the manifest, then the files in its order (DSP0243, 5.3). Pure. */
import { roundUp } from '@virtkeep/shared/units';
import { Header } from 'tar';

export const BLOCK_BYTES = 512;
/** What tar programs write at a time, and some expect. */
const RECORD_BYTES = 20 * BLOCK_BYTES;

export interface PackageFile {
  href: string;
  sizeBytes: number;
  sha256: string;
}

/** A header block. Sizes from 8 GiB on, which ustar's digits cannot say, stand as binary numbers, as GNU tar and others write them. */
export function headerBlock(name: string, sizeBytes: number, modified: Date): Buffer {
  const header = new Header({
    ...{ path: name, mode: 0o644, uid: 0, gid: 0, size: sizeBytes, mtime: modified },
    ...{ type: 'File', uname: 'root', gname: 'root' },
  });
  header.encode();
  return header.block!;
}

/** Where the header of what follows stands. */
export const afterMember = (headerOffset: number, sizeBytes: number): number =>
  headerOffset + BLOCK_BYTES + roundUp(sizeBytes, BLOCK_BYTES);

/** Size of the whole, with the two empty blocks that end it. */
export const endOf = (headerOffset: number): number => roundUp(headerOffset + 2 * BLOCK_BYTES, RECORD_BYTES);

/** The manifest as DSP0243 has it: of the descriptor and of each file. */
export const manifestText = (files: readonly Pick<PackageFile, 'href' | 'sha256'>[]): string =>
  files.map(({ href, sha256 }) => `SHA256(${href})= ${sha256}\n`).join('');

/** Blank lines behind the last element, which XML allows: the text gets a size that was known before that of the files. */
export function paddedTo(text: string, sizeBytes: number): Buffer {
  const bytes = Buffer.alloc(sizeBytes, '\n');
  bytes.write(text);
  return bytes;
}
