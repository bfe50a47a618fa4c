import { type ChildProcess, spawn } from 'node:child_process';
import type { FileHandle } from 'node:fs/promises';
import { open } from 'node:fs/promises';
import { pipeline, Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { createGunzip } from 'node:zlib';
import { abortReason } from '@virtkeep/shared/abort';
import { nameOf } from '@virtkeep/shared/beneath';
import { errnoOf } from '@virtkeep/shared/errors';
import { KiB, MiB } from '@virtkeep/shared/units';
import zstd from 'zstd-napi/binding.js';
import { XZ_ADDRESS_BYTES, XZ_MEMORY_BYTES } from '../bounds.ts';
import { Fault } from '../fault.ts';

/** Unpacks gzip. @throws zlib's own error; as the pieces do */
export async function* gunzipped(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const gunzip = createGunzip({ chunkSize: 256 * KiB });
  // errors of both come out of the second
  pipeline(Readable.from(pieces, { objectMode: false }), gunzip, () => {});
  yield* gunzip as AsyncIterable<Buffer>;
}

const ZSTD_PIECE_BYTES = 256 * KiB;
/** Some milliseconds of work. What shrinks to a thousandth brings much more out of one read. */
const TURN_BYTES = 4 * MiB;

/**
 * Unpacks zstd, of any number of frames: zlib's own stream ends silently behind the first. Memory: the window, at most 128 MiB. It is done
 * in this thread, a little at a time: whatever else the agent does has its turn in between.
 * @throws Fault; as the pieces do
 */
export async function* unzstded(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const context = new zstd.DCtx();
  let isOpen = false;
  let sinceTurnBytes = 0;
  for await (let piece of pieces) {
    // a step that filled its room may have more to give
    for (let isFull = false; piece.length > 0 || isFull; ) {
      const output = Buffer.allocUnsafe(ZSTD_PIECE_BYTES);
      const { hint, written, consumed } = zstdStep(context, output, piece);
      isOpen = hint !== 0;
      isFull = isOpen && written === output.length;
      piece = piece.subarray(consumed);
      if (written > 0) yield output.subarray(0, written);
      sinceTurnBytes += written;
      if (sinceTurnBytes < TURN_BYTES) continue;
      sinceTurnBytes = 0;
      await setImmediate();
    }
  }
  if (isOpen) throw new Fault('it ends inside a zstd frame');
}

interface ZstdStep {
  /** 0 at the end of a frame. */
  hint: number;
  written: number;
  consumed: number;
}

function zstdStep(context: InstanceType<typeof zstd.DCtx>, output: Buffer, input: Buffer): ZstdStep {
  try {
    const [hint, written, consumed] = context.decompressStream(output, input);
    return { hint, written, consumed };
  } catch (error) {
    throw new Fault(`its zstd data is damaged: ${(error as Error).message}`);
  }
}

const XZ = ['xz', '--decompress', '--stdout', '--threads=1', `--memlimit-decompress=${XZ_MEMORY_BYTES}`];
const LZOP = ['lzop', '--decompress', '--stdout', '--quiet'];

/** Unpacks a file by the `xz` program, which is held to little memory. @throws Fault; VirtkeepError canceled */
export const unxzed = (file: FileHandle, signal: AbortSignal): AsyncGenerator<Buffer> =>
  unpackedBy(XZ, file, signal);

/** The same by the `lzop` program. */
export const unlzoped = (file: FileHandle, signal: AbortSignal): AsyncGenerator<Buffer> =>
  unpackedBy(LZOP, file, signal);

const MAX_MESSAGE_BYTES = 2 * KiB;

async function* unpackedBy(
  command: readonly string[],
  file: FileHandle,
  signal: AbortSignal,
): AsyncGenerator<Buffer> {
  const limits = [`--as=${XZ_ADDRESS_BYTES}`, '--core=0'];
  // opened anew: the position in a file is shared by all to whom a descriptor is handed on
  const own = await open(nameOf(file));
  const child = spawn('prlimit', [...limits, ...command], {
    stdio: [own.fd, 'pipe', 'pipe'],
    // no options of the program from elsewhere
    env: { PATH: process.env.PATH, LC_ALL: 'C' },
  });
  const ended = endOf(child, command[0]!);
  const kill = () => child.kill('SIGKILL');
  signal.addEventListener('abort', kill, { once: true });
  try {
    if (signal.aborted) throw abortReason(signal);
    yield* child.stdout! as AsyncIterable<Buffer>;
    const failure = await ended;
    if (signal.aborted) throw abortReason(signal);
    if (failure !== undefined) throw new Fault(`it cannot be unpacked: ${failure}`);
  } finally {
    signal.removeEventListener('abort', kill);
    kill();
    child.stdout!.destroy();
    await ended;
    await own.close();
  }
}

/** What `prlimit` ends with when there is no such program. */
const NOT_FOUND = 127;

/** Why a program failed; undefined when it did not. */
function endOf(child: ChildProcess, program: string): Promise<string | undefined> {
  let message = '';
  child.stderr!.on('data', (piece: Buffer) => {
    message = (message + piece.toString('utf8')).slice(0, MAX_MESSAGE_BYTES);
  });
  return new Promise(resolve => {
    child.once('error', error =>
      resolve(errnoOf(error) === 'ENOENT' ? `${program} is missing` : error.message),
    );
    child.once('close', (code, signalName) => {
      if (code === 0) resolve(undefined);
      else if (code === NOT_FOUND) resolve(`the program ${program} is not installed on the node`);
      else resolve(message.trim() || `${program} ended with ${code ?? signalName}`);
    });
  });
}
