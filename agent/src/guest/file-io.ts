/** Whole files of a guest, read and written through its agent. They are small: each piece is a command of its own. */
import type { Domain } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { KiB, MiB } from '@virtkeep/shared/units';
import { nameOf } from './failures.ts';
import { nonsense } from './programs.ts';
import { guestCommand } from './session.ts';

const READ_BYTES = 512 * KiB;
/** In base64, within what a request may have. */
export const WRITE_BYTES = 64 * KiB;
/** Default bound of a whole file. */
const MAX_FILE_BYTES = 16 * MiB;

/**
 * Reads a file of the guest.
 * @throws VirtkeepError guest_agent_failed (it does not exist, it may not be read, it is longer than `maxBytes`); as
 *   `guestCommand`
 */
export async function readGuestFile(
  domain: Domain,
  path: string,
  options: { maxBytes?: number },
  signal: AbortSignal,
): Promise<Buffer> {
  const { maxBytes = MAX_FILE_BYTES } = options;
  return withFile(domain, path, 'r', signal, async handle => {
    const pieces: Buffer[] = [];
    for (let [length, isEnd] = [0, false]; !isEnd; ) {
      const answer = await guestCommand(domain, 'guest-file-read', { handle, count: READ_BYTES }, { signal });
      const {
        'buf-b64': data = '',
        eof,
        count,
      } = answer as { 'buf-b64'?: string; eof?: boolean; count?: number };
      const piece = Buffer.from(data, 'base64');
      pieces.push(piece);
      length += piece.length;
      isEnd = eof === true || !count;
      if (length > maxBytes) throw tooLong(domain, path, maxBytes);
    }
    return Buffer.concat(pieces);
  });
}

/**
 * Writes a file of the guest, made when it is not there, with the agent's rights and umask.
 * @param options.append adds to its end instead of replacing what it holds
 * @throws VirtkeepError guest_agent_failed (it cannot be opened or written); as `guestCommand`
 */
export async function writeGuestFile(
  domain: Domain,
  path: string,
  data: Buffer | string,
  options: { append?: boolean },
  signal: AbortSignal,
): Promise<void> {
  const bytes = typeof data === 'string' ? Buffer.from(data) : data;
  await withFile(domain, path, options.append ? 'a' : 'w', signal, async handle => {
    for (let offset = 0; offset < bytes.length; ) {
      throwIfAborted(signal);
      const piece = bytes.subarray(offset, offset + WRITE_BYTES).toString('base64');
      const answer = await guestCommand(domain, 'guest-file-write', { handle, 'buf-b64': piece }, { signal });
      const { count } = answer as { count?: number };
      if (!count) throw nonsense(domain, 'guest-file-write');
      offset += count;
    }
    await guestCommand(domain, 'guest-file-flush', { handle }, { signal });
  });
}

async function withFile<T>(
  domain: Domain,
  path: string,
  mode: string,
  signal: AbortSignal,
  work: (handle: number) => Promise<T>,
): Promise<T> {
  const handle = await guestCommand(domain, 'guest-file-open', { path, mode }, { signal });
  if (typeof handle !== 'number') throw nonsense(domain, 'guest-file-open');
  const close = () => guestCommand(domain, 'guest-file-close', { handle });
  const result = await work(handle).catch(async (error: unknown) => {
    await close().catch(() => {});
    throw error;
  });
  await close();
  return result;
}

function tooLong(domain: Domain, path: string, maxBytes: number): VirtkeepError {
  const reason = `${path} is longer than ${maxBytes} bytes`;
  return new VirtkeepError('guest_agent_failed', {
    domain: nameOf(domain),
    command: 'guest-file-read',
    reason,
  });
}
