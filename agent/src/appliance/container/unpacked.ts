import { type ChildProcess, spawn } from 'node:child_process';
import type { FileHandle } from 'node:fs/promises';
import { open } from 'node:fs/promises';
import { pipeline, Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import { abortReason } from '@virtkeep/shared/abort';
import { nameOf } from '@virtkeep/shared/beneath';
import { errnoOf } from '@virtkeep/shared/errors';
import { KiB } from '@virtkeep/shared/units';
import { XZ_ADDRESS_BYTES, XZ_MEMORY_BYTES } from '../bounds.ts';
import { Fault } from '../fault.ts';

/** Unpacks gzip. @throws zlib's own error; as the pieces do */
export async function* gunzipped(pieces: AsyncIterable<Buffer>): AsyncGenerator<Buffer> {
  const gunzip = createGunzip({ chunkSize: 256 * KiB });
  // errors of both come out of the second
  pipeline(Readable.from(pieces, { objectMode: false }), gunzip, () => {});
  yield* gunzip as AsyncIterable<Buffer>;
}

const MAX_MESSAGE_BYTES = 2 * KiB;

/**
 * Unpacks a file by the `xz` program, which is held to little memory.
 * @throws Fault; VirtkeepError canceled
 */
export async function* unxzed(file: FileHandle, signal: AbortSignal): AsyncGenerator<Buffer> {
  const limits = [`--as=${XZ_ADDRESS_BYTES}`, '--core=0'];
  const xz = ['xz', '--decompress', '--stdout', '--threads=1', `--memlimit-decompress=${XZ_MEMORY_BYTES}`];
  // opened anew: the position in a file is shared by all to whom a descriptor is handed on
  const own = await open(nameOf(file));
  const child = spawn('prlimit', [...limits, ...xz], {
    stdio: [own.fd, 'pipe', 'pipe'],
    // no options of xz from elsewhere
    env: { PATH: process.env.PATH, LC_ALL: 'C' },
  });
  const ended = endOf(child);
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

/** Why a program failed; undefined when it did not. */
function endOf(child: ChildProcess): Promise<string | undefined> {
  let message = '';
  child.stderr!.on('data', (piece: Buffer) => {
    message = (message + piece.toString('utf8')).slice(0, MAX_MESSAGE_BYTES);
  });
  return new Promise(resolve => {
    child.once('error', error => resolve(errnoOf(error) === 'ENOENT' ? 'xz is missing' : error.message));
    child.once('close', (code, signalName) =>
      resolve(code === 0 ? undefined : message.trim() || `xz ended with ${code ?? signalName}`),
    );
  });
}
