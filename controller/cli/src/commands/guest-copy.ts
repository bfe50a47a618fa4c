/** `vm cp`: one file into a guest or out of it, piece by piece through its agent; no network of the guest is needed. */
import { createReadStream, realpathSync, renameSync, rmSync, type Stats, statSync } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { Presets, SingleBar } from 'cli-progress';
import type { Command } from 'commander';
import { withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { type GuestOf, guestCommand } from '../guest-command.ts';
import { bytes, note } from '../output.ts';
import { resolve } from '../resolve.ts';

interface Place {
  /** Undefined: here. */
  vm: string | undefined;
  path: string;
}

const WRITE_BYTES = 192 * 1024;
const READ_BYTES = 512 * 1024;
/** Seconds for one piece: a guest may be slow. */
const PIECE_TIMEOUT_S = 30;

export function addCopy(vms: Command): void {
  vms
    .command('cp <source> <target>')
    .description('copy a file into a guest or out of it; the one in the guest is vm:/path')
    .action(async (sourceText: string, targetText: string) => {
      const source = placeOf(sourceText);
      const target = placeOf(targetText);
      if ((source.vm === undefined) === (target.vm === undefined))
        throw new CliError(
          'One of the two is a file in a guest, vm:/path, and the other is here; ./a:b is a file here.',
          ExitCode.usage,
        );
      const vm = source.vm ?? target.vm!;
      const copied = await withClient(async client => {
        const { id } = await resolve(client, 'domains', vm);
        return source.vm === undefined
          ? upload({ client, vmId: id }, source.path, target.path)
          : download({ client, vmId: id }, source.path, target.path);
      });
      note(`${bytes(copied)} copied`);
    });
}

/** What stands before the first colon names a VM, unless it has a slash, as with scp. */
function placeOf(text: string): Place {
  const [, vm, path] = /^([^/:]+):(.*)$/s.exec(text) ?? [];
  if (vm === undefined || path === undefined) return { vm: undefined, path: text };
  if (path === '') throw new CliError(`Which file of "${vm}"? Give ${vm}:/path.`, ExitCode.usage);
  return { vm, path };
}

async function upload(guest: GuestOf, from: string, to: string): Promise<number> {
  const size = sizeOf(from);
  const path = /[/\\]$/.test(to) ? `${to}${basename(from)}` : to;
  return withGuestFile(guest, { path, mode: 'w' }, async (handle, check) => {
    const progress = reporter(basename(from), size);
    let done = 0;
    try {
      for await (const chunk of createReadStream(from, { highWaterMark: WRITE_BYTES }))
        for (let rest = chunk as Buffer; rest.length > 0; ) {
          check();
          const fargs = { handle, 'buf-b64': rest.toString('base64') };
          const { count } = await guestCommand<{ count: number }>(
            guest,
            'guest-file-write',
            fargs,
            PIECE_TIMEOUT_S,
          );
          if (!(count > 0)) throw new CliError(`The guest takes no more of ${path}; is its disk full?`);
          rest = rest.subarray(count);
          done += count;
          progress.update(done);
        }
      await guestCommand(guest, 'guest-file-flush', { handle }, PIECE_TIMEOUT_S);
      return done;
    } catch (error) {
      const exitCode = error instanceof CliError ? error.exitCode : ExitCode.failed;
      throw new CliError(`${(error as Error).message}\n${path} in the guest is not complete.`, exitCode);
    } finally {
      progress.stop();
    }
  });
}

async function download(guest: GuestOf, from: string, to: string): Promise<number> {
  const name = from.split(/[/\\]/).at(-1) ?? '';
  const target = found(to)?.isDirectory() ? join(to, name) : to;
  return withGuestFile(guest, { path: from, mode: 'r' }, async (handle, check) => {
    const size = await lengthOf(guest, handle);
    const { file, keep, drop } = await openHere(target);
    try {
      const done = await readAll({ guest, handle }, file, reporter(name, size), check);
      await file.close();
      keep();
      return done;
    } catch (error) {
      await file.close().catch(() => {});
      drop();
      throw error;
    }
  });
}

async function readAll(
  { guest, handle }: { guest: GuestOf; handle: number },
  file: FileHandle,
  progress: Progress,
  check: () => void,
): Promise<number> {
  let done = 0;
  try {
    for (let isEnd = false; !isEnd; ) {
      check();
      const fargs = { handle, count: READ_BYTES };
      const piece = await guestCommand<{ count: number; 'buf-b64': string; eof: boolean }>(
        guest,
        'guest-file-read',
        fargs,
        PIECE_TIMEOUT_S,
      );
      const data = Buffer.from(piece['buf-b64'] ?? '', 'base64');
      await file.writeFile(data);
      done += data.length;
      progress.update(done);
      isEnd = piece.eof || data.length === 0;
    }
  } finally {
    progress.stop();
  }
  return done;
}

/**
 * Opens a file of the guest and closes it, whatever happens; one that stays open is closed by the node in time.
 * @param work is to call `check` between two pieces: it throws once Ctrl-C was pressed. Pressed again that ends all at once.
 */
async function withGuestFile<T>(
  guest: GuestOf,
  { path, mode }: { path: string; mode: 'r' | 'w' },
  work: (handle: number, check: () => void) => Promise<T>,
): Promise<T> {
  let isInterrupted = false;
  const interrupt = () => {
    isInterrupted = true;
  };
  for (const name of SIGNALS) process.once(name, interrupt);
  try {
    const handle = await guestCommand<number>(guest, 'guest-file-open', { path, mode });
    const close = () => guestCommand(guest, 'guest-file-close', { handle });
    const check = () => {
      if (isInterrupted) throw new CliError('Interrupted.', ExitCode.interrupted);
    };
    const result = await work(handle, check).catch(async (error: unknown) => {
      await close().catch(() => {});
      throw error;
    });
    await close();
    return result;
  } finally {
    for (const name of SIGNALS) process.removeListener(name, interrupt);
  }
}

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;

/** Undefined for what has none: a device, a file of /proc. */
async function lengthOf(guest: GuestOf, handle: number): Promise<number | undefined> {
  const seek = (offset: number, whence: 'set' | 'end') =>
    guestCommand<{ position: number }>(guest, 'guest-file-seek', { handle, offset, whence });
  try {
    const { position } = await seek(0, 'end');
    await seek(0, 'set');
    return position;
  } catch {
    return undefined;
  }
}

function sizeOf(path: string): number {
  try {
    const found = statSync(path);
    if (!found.isDirectory()) return found.size;
  } catch (error) {
    throw new CliError(`Cannot read ${path}: ${(error as Error).message}`, ExitCode.usage);
  }
  throw new CliError(`${path} is a directory; only files are copied.`, ExitCode.usage);
}

interface Here {
  file: FileHandle;
  /** It is complete. */
  keep: () => void;
  drop: () => void;
}

/**
 * Opens the target: a file beside it that takes its place when it is complete, with the access rights of the one before. A
 * device or a pipe is written as it is, and what a symbolic link points to is what is replaced.
 */
async function openHere(target: string): Promise<Here> {
  const before = found(target);
  const cannot = (error: Error): never => {
    throw new CliError(`Cannot write ${target}: ${error.message}`, ExitCode.usage);
  };
  if (before && !before.isFile())
    return { file: await open(target, 'w').catch(cannot), keep: () => {}, drop: () => {} };
  const path = before ? realpathSync(target) : target;
  const part = `${path}.${process.pid}.part`;
  return {
    file: await open(part, 'wx', before ? before.mode & 0o777 : 0o666).catch(cannot),
    keep: () => renameSync(part, path),
    drop: () => rmSync(part, { force: true }),
  };
}

function found(path: string): Stats | undefined {
  return statSync(path, { throwIfNoEntry: false });
}

interface Progress {
  update(done: number): void;
  stop(): void;
}

/** A bar on a terminal; nothing in a pipe. */
function reporter(name: string, total: number | undefined): Progress {
  if (!process.stderr.isTTY || !total) return { update() {}, stop() {} };
  const format = '{name} {bar} {percentage}%  {amount}';
  const bar = new SingleBar({ format, stream: process.stderr, hideCursor: true }, Presets.shades_classic);
  bar.start(total, 0, { name, amount: '' });
  return {
    update: done => bar.update(done, { amount: `${bytes(done)} of ${bytes(total)}` }),
    stop: () => bar.stop(),
  };
}
