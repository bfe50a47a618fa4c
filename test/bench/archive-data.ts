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
const BLOCK_BYTES = 4096;
/** So much of /usr is used again and again: further than any compressor here looks back. */
const SAMPLE_BYTES = 64 * CHUNK_BYTES;
const CONVERT_MS = 900_000;
/** Of 16 chunks: one is a hole, three are incompressible (media, encrypted), the rest is what a system disk holds. */
const PATTERN = 'uuuruuuuruhuuuru';
/** The same without holes. */
export const DENSE = 'uuuruuuuruuuuuru';

let sample: Buffer | undefined;

/**
 * Writes a disk-like image: files of /usr in a fixed order, pseudo-random bytes from a fixed key, holes.
 * The same machine yields the same image every time.
 */
export function writeImage(path: string, sizeBytes: number, pattern = PATTERN): void {
  const fd = openSync(path, 'w');
  sample ??= sampleOf('/usr');
  const cipher = createCipheriv('aes-128-ctr', Buffer.alloc(16, 7), Buffer.alloc(16));
  for (let at = 0; at < sizeBytes; at += CHUNK_BYTES) {
    const kind = pattern[(at / CHUNK_BYTES) % pattern.length];
    if (kind === 'h') continue;
    const from = at % SAMPLE_BYTES;
    const bytes =
      kind === 'r' ? cipher.update(Buffer.alloc(CHUNK_BYTES)) : sample.subarray(from, from + CHUNK_BYTES);
    writeSync(fd, bytes, 0, Math.min(CHUNK_BYTES, sizeBytes - at), at);
  }
  ftruncateSync(fd, sizeBytes);
  fsyncSync(fd);
  closeSync(fd);
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

/** Files of /usr as a file system has them, each from a multiple of 4096 on: reading small files takes longer than all that is measured. */
function sampleOf(root: string): Buffer {
  const files = Buffer.alloc(SAMPLE_BYTES);
  let at = 0;
  for (const path of walk(root)) {
    const bytes = readFileSync(path);
    bytes.copy(files, at);
    at += Math.ceil(bytes.length / BLOCK_BYTES) * BLOCK_BYTES;
    if (at >= files.length) break;
  }
  return files;
}
