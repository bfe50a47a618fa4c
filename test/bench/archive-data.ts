import { createCipheriv } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  ftruncateSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { run } from '../lab/run.ts';

const CHUNK_BYTES = 4 * 1024 * 1024;
const CONVERT_MS = 900_000;
/** Of 16 chunks: one is a hole, three are incompressible (media, encrypted), the rest is what a system disk holds. */
const PATTERN = 'uuurUuuuruhUuuru';
/** The same without holes. */
export const DENSE = 'uuurUuuuruuUuuru';

/**
 * Writes a disk-like image: files of /usr in a fixed order, pseudo-random bytes from a fixed key, holes.
 * The same machine yields the same image every time.
 */
export function writeImage(path: string, sizeBytes: number, pattern = PATTERN): void {
  const fd = openSync(path, 'w');
  const files = usrFiles('/usr');
  const cipher = createCipheriv('aes-128-ctr', Buffer.alloc(16, 7), Buffer.alloc(16));
  for (let at = 0; at < sizeBytes; at += CHUNK_BYTES) {
    const kind = pattern[(at / CHUNK_BYTES) % pattern.length];
    if (kind === 'h') continue;
    const bytes = kind === 'r' ? cipher.update(Buffer.alloc(CHUNK_BYTES)) : nextBytes(files);
    writeSync(fd, bytes, 0, Math.min(CHUNK_BYTES, sizeBytes - at), at);
  }
  ftruncateSync(fd, sizeBytes);
  fsyncSync(fd);
  closeSync(fd);
}

interface FileStream {
  paths: Generator<string>;
  rest: Buffer;
}

function usrFiles(root: string): FileStream {
  return { paths: walk(root), rest: Buffer.alloc(0) };
}

/** The same as a qcow2 image, for a VM. */
export async function writeQcow2(path: string, bytes: number): Promise<void> {
  const raw = `${path}.raw`;
  writeImage(raw, bytes);
  await run(['qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2', raw, path], { timeoutMs: CONVERT_MS });
  rmSync(raw);
}

function* walk(directory: string): Generator<string> {
  const entries = readdirSync(directory, { withFileTypes: true });
  entries.sort((first, second) => (first.name < second.name ? -1 : 1));
  for (const entry of entries) {
    const path = join(directory, entry.name);
    if (entry.isDirectory()) yield* walk(path);
    else if (entry.isFile()) yield path;
  }
}

/** The next chunk of the files, each starting at a multiple of 4096 as in a file system. */
function nextBytes(files: FileStream): Buffer {
  const pieces: Buffer[] = [files.rest];
  let length = files.rest.length;
  while (length < CHUNK_BYTES) {
    const next = files.paths.next();
    if (next.done === true) {
      files.paths = walk('/usr');
      continue;
    }
    const bytes = readFileSync(next.value);
    const padding = Buffer.alloc((4096 - (bytes.length % 4096)) % 4096);
    pieces.push(bytes, padding);
    length += bytes.length + padding.length;
  }
  const all = Buffer.concat(pieces, length);
  files.rest = all.subarray(CHUNK_BYTES);
  return all.subarray(0, CHUNK_BYTES);
}
