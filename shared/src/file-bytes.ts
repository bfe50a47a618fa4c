/** Reads and writes of a part of an open file; the kernel may take fewer bytes at a time than it is asked to. */
import type { FileHandle } from 'node:fs/promises';

/** Fills a buffer. @returns bytes read, fewer than it has only at the end of the file. @throws the file system's own error */
export async function fillFrom(file: FileHandle, buffer: Uint8Array, offset: number): Promise<number> {
  let done = 0;
  while (done < buffer.length) {
    const { bytesRead } = await file.read(buffer, done, buffer.length - done, offset + done);
    if (bytesRead === 0) break;
    done += bytesRead;
  }
  return done;
}

/** Reads a range; fewer bytes only at the end of the file. @throws the file system's own error */
export async function readAt(file: FileHandle, offset: number, lengthBytes: number): Promise<Buffer> {
  const buffer = Buffer.alloc(lengthBytes);
  return buffer.subarray(0, await fillFrom(file, buffer, offset));
}

/** Writes all of the bytes. @throws the file system's own error */
export async function writeAt(file: FileHandle, bytes: Uint8Array, offset: number): Promise<void> {
  for (let done = 0; done < bytes.length; )
    done += (await file.write(bytes, done, bytes.length - done, offset + done)).bytesWritten;
}
