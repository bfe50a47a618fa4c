import { throwIfAborted } from '@virtkeep/shared/abort';
import zstd from 'zstd-napi/binding.js';
import { MAX_FRAMES } from '../format/bounds.ts';
import { COMPRESSED_ROOM } from '../format/layout.ts';
import type { SeekTable } from '../format/seek-table.ts';
import type { ArchiveFile } from './tar-source.ts';

/** Largest content of a frame that is taken for one of ours; they hold 4 MiB. */
const MAX_CONTENT_BYTES = 32 * 1024 * 1024;
const ZSTD_MAGIC = 0xfd2fb528;

/**
 * The seek table of a compressed archive that has lost it, by walking its frames from the beginning: up to the first
 * thing that is no whole frame with a content size. Reads the file once and decompresses nothing.
 * @throws VirtkeepError io_failed, canceled
 */
export async function walkFrames(file: ArchiveFile, signal: AbortSignal): Promise<SeekTable> {
  const fileOffsets = [0];
  const rawOffsets = [0];
  let buffer: Buffer = Buffer.alloc(0);
  let bufferOffset = 0;
  for (let at = 0; at < file.sizeBytes && fileOffsets.length <= MAX_FRAMES; ) {
    throwIfAborted(signal);
    let frame = frameIn(buffer.subarray(at - bufferOffset));
    if (frame === undefined) {
      buffer = await file.read(at, Math.min(COMPRESSED_ROOM, file.sizeBytes - at));
      bufferOffset = at;
      frame = frameIn(buffer);
    }
    if (frame === undefined) break;
    at += frame.fileBytes;
    fileOffsets.push(at);
    rawOffsets.push(rawOffsets.at(-1)! + frame.rawBytes);
  }
  return {
    frameCount: fileOffsets.length - 1,
    fileOffsets: Float64Array.from(fileOffsets),
    rawOffsets: Float64Array.from(rawOffsets),
  };
}

/** The whole frame with which the bytes begin; undefined when they hold none. */
function frameIn(bytes: Buffer): { fileBytes: number; rawBytes: number } | undefined {
  if (bytes.length < 4 || bytes.readUInt32LE(0) !== ZSTD_MAGIC) return undefined;
  try {
    const rawBytes = Number(zstd.getFrameContentSize(bytes));
    const fileBytes = zstd.findFrameCompressedSize(bytes);
    if (Number.isNaN(rawBytes) || rawBytes <= 0 || rawBytes > MAX_CONTENT_BYTES) return undefined;
    return { fileBytes, rawBytes };
  } catch {
    return undefined;
  }
}
