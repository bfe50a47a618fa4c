import type { WalkedMember } from '../format/tar-format.ts';
import type { FilePlace } from '../system/syscalls.ts';
import { createRingMemory, Ring } from '../threads/ring.ts';
import { type FaultPaths, type Progress, settled, Thread } from '../threads/thread.ts';
import type { StreamAnswer, StreamOrder } from './stream.worker.ts';

export interface StreamScan {
  members: WalkedMember[];
  /** By their data's offsets the beginnings of members: texts whole, of the others what an image's header takes; as many as there is room for. */
  heads: ReadonlyMap<number, Uint8Array>;
  /** Every frame has a checksum of its content. */
  checked: boolean;
  /** Undefined when the archive ends as it must. */
  fault?: string;
}

export interface ScanOptions {
  signal: AbortSignal;
  /** Most bytes that are unpacked. */
  mostBytes: number;
  onProgress?: Progress;
}

/**
 * Lists the members of a zstd tar without seek table by decompressing all of it, in a thread of its own.
 * @throws VirtkeepError archive_damaged, archive_unsupported when it holds more than is unpacked, io_failed, canceled
 */
export async function scanStream(
  fd: number,
  path: string,
  { signal, mostBytes, onProgress }: ScanOptions,
): Promise<StreamScan> {
  const order = { op: 'scan', fd, mostBytes } as const;
  const answer = await ask(order, { source: path, target: path }, signal, onProgress);
  return answer.scan!;
}

/** Copies `lengthBytes` from `offset` of the tar into an open file and makes it durable. Errors as above. */
export async function extractStream(
  order: Omit<Extract<StreamOrder, { op: 'extract' }>, 'op'>,
  paths: FaultPaths,
  signal: AbortSignal,
  onProgress?: Progress,
): Promise<void> {
  await ask({ op: 'extract', ...order }, paths, signal, onProgress);
}

/** Reads a small piece of the tar. Errors as above. */
export async function readStream(
  place: FilePlace,
  lengthBytes: number,
  path: string,
  signal: AbortSignal,
): Promise<Buffer> {
  const order = { op: 'read', ...place, lengthBytes } as const;
  const answer = await ask(order, { source: path, target: path }, signal);
  return Buffer.from(answer.bytes!);
}

async function ask(
  order: StreamOrder,
  paths: FaultPaths,
  signal: AbortSignal,
  onProgress?: Progress,
): Promise<StreamAnswer> {
  const memory = createRingMemory(1);
  const ring = new Ring(memory);
  const thread = new Thread(new URL('./stream.worker.ts', import.meta.url), memory);
  try {
    return (await settled(ring, signal, paths, [thread.ask(order, onProgress)])) as StreamAnswer;
  } finally {
    await thread.stop();
  }
}
