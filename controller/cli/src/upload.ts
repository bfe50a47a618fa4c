/** Files here that go into a data pool, part by part, over cut connections too (tus). After Ctrl-C nothing of an unfinished one stays. */
import { createReadStream, type Stats } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { resolve as absolute, basename, dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { Presets, SingleBar } from 'cli-progress';
import type { Client, Json } from './client.ts';
import { CliError, ExitCode } from './exit-codes.ts';
import { bytes, note } from './output.ts';

/** A file here, and its name in the data pool. */
export interface Source {
  path: string;
  filename: string;
  sizeBytes: number;
  /** When it was changed, in ms since 1970: with its size it tells that it is the same file. */
  modifiedMs: number;
}

export interface Target {
  /** Id of the data pool. */
  datapool: string;
  /** Hex: with another one it is not kept; empty: it is not compared. */
  sha256: string;
  /** Path of the upload that is gone on with; a new one begins without. */
  upload?: string | undefined;
}

/** A connection that is cut is tried again so often without a byte in between. */
const TRIES = 10;
const PAUSE_MS = 2_000;
const MAX_FILES = 1_000;

export const isDescriptor = (name: string): boolean => name.toLowerCase().endsWith('.ovf');

/**
 * The files of a path: itself, or all of a directory. An OVF descriptor brings its directory; descriptors come last, so that nobody sees
 * one before its disks.
 * @throws CliError usage: it cannot be read, or has no files or too many
 */
export async function sourcesOf(path: string): Promise<Source[]> {
  const found = await statOf(path);
  if (found.isFile() && !isDescriptor(path)) return [sourceOf(path, basename(path), found)];
  const directory = absolute(found.isFile() ? dirname(path) : path);
  const entries = await readdir(directory, { withFileTypes: true });
  const files = entries
    .filter(entry => entry.isFile() && !entry.name.startsWith('.'))
    .map(({ name }) => name);
  if (files.length === 0) throw new CliError(`${path} has no files.`, ExitCode.usage);
  if (files.length > MAX_FILES)
    throw new CliError(`${path} has more than ${MAX_FILES} files.`, ExitCode.usage);
  const isLast = (name: string) => Number(isDescriptor(name));
  files.sort((a, b) => isLast(a) - isLast(b) || (a < b ? -1 : 1));
  return Promise.all(
    files.map(async name => {
      const path = join(directory, name);
      return sourceOf(path, `${basename(directory)}/${name}`, await statOf(path));
    }),
  );
}

const sourceOf = (path: string, filename: string, { size, mtimeMs }: Stats): Source => ({
  path,
  filename,
  sizeBytes: size,
  modifiedMs: Math.trunc(mtimeMs),
});

const UPLOADS = '/api/library/upload/';

/** What goes on with an upload: the upload, and which bytes it is of. */
const markOf = (upload: string, { modifiedMs }: Source): string =>
  `${upload.slice(UPLOADS.length, -1)}.${modifiedMs}`;

/**
 * Finds the file whose upload is gone on with.
 * @param mark as a command told that gave it up
 * @returns the file, and the path of its upload
 * @throws CliError usage: it is none of these, or has changed since; as the controller answers
 */
export async function unfinished(
  client: Client,
  sources: readonly Source[],
  mark: string,
): Promise<{ source: Source; upload: string }> {
  const [, id, modified] = /^([0-9a-f-]{36})\.(\d+)$/.exec(mark) ?? [];
  if (id === undefined) throw new CliError(`"${mark}" names no upload.`, ExitCode.usage);
  const upload = `${UPLOADS}${id}/`;
  const { filename, size } = await client.get(upload);
  const named = sources.filter(one => basename(one.filename) === basename(String(filename)));
  if (named.length === 0) throw new CliError(`--resume is of ${filename}.`, ExitCode.usage);
  const source = named.find(one => one.sizeBytes === size && one.modifiedMs === Number(modified));
  if (source === undefined)
    throw new CliError(
      `${named[0]!.path} has changed since: its upload cannot be gone on with.`,
      ExitCode.usage,
    );
  return { source, upload };
}

/** Nothing was wrong with the file or its upload: a login that ended, or a controller or node that is away for long. */
function tellHowToGoOn(error: unknown, source: Source, upload: string | undefined): void {
  const isBroken = isPassing(error) || (error instanceof CliError && error.exitCode === ExitCode.notAllowed);
  if (upload === undefined || !isBroken) return;
  note(
    `${source.filename}: what has come stays for a while; the same command goes on with it by --skip-existing --resume ${markOf(upload, source)}`,
  );
}

const statOf = (path: string) =>
  stat(path).catch((error: Error) => {
    throw new CliError(`Cannot read ${path}: ${error.message}`, ExitCode.usage);
  });

/**
 * Sends a file part by part until all of it is there.
 * @returns the record of the upload
 * @throws CliError as the controller answers; unreachable when the connection is cut again and again
 */
export async function send(client: Client, source: Source, { upload, ...target }: Target): Promise<Json> {
  const { filename, sizeBytes } = source;
  const bar = progressBar(sizeBytes);
  const created =
    upload === undefined
      ? client.tusCreate(UPLOADS, sizeBytes, { ...target, filename })
      : Promise.resolve(upload);
  let isStopped = false;
  const interrupted = () => {
    isStopped = true;
    bar.stop();
    void created
      .then(async at => {
        // one that is done keeps its file
        const { status } = await client.get(at);
        await client.tusEnd(at);
        note(`${filename}: ${status === 'DONE' ? 'it was there already' : 'stopped; nothing of it stays'}`);
      })
      .catch(() => note(`${filename}: stopped; what has come goes when no byte comes for a while`))
      .finally(() => process.exit(ExitCode.interrupted));
  };
  /** Whatever comes of the upload once it is stopped: nothing goes on with it, and the command ends by itself. */
  const orStopped = async <T>(value: T): Promise<T> => (isStopped ? new Promise<T>(() => {}) : value);
  // the node may have begun before its answer is here
  process.once('SIGINT', interrupted);
  try {
    const at = await created;
    let offset = upload === undefined ? 0 : await client.tusOffset(at);
    bar.set(offset);
    for (let failed = 0; offset < sizeBytes; ) {
      const before = offset;
      try {
        const stream = Readable.from(bytesFrom(source, offset, count => bar.add(count)));
        offset = await client.tusSend(at, offset, sizeBytes - offset, stream);
      } catch (error) {
        if (!isPassing(await orStopped(error)) || failed >= TRIES) throw error;
        await pause(PAUSE_MS);
        offset = await client.tusOffset(at).catch(() => before);
        bar.set(offset);
        note(`${filename}: the connection was cut; going on at ${bytes(offset)}`);
        failed = offset > before ? 0 : failed + 1;
      }
    }
    return await orStopped(await client.get(at));
  } catch (error) {
    tellHowToGoOn(await orStopped(error), source, await created.catch(() => undefined));
    throw error;
  } finally {
    process.removeListener('SIGINT', interrupted);
    bar.stop();
  }
}

/** A file of that name is in the data pool. */
export const isThere = (error: unknown): boolean =>
  error instanceof CliError && error.message.includes('(40917)');

/** Exactly the bytes that were announced, although the file may grow meanwhile. @throws CliError it became shorter, or cannot be read */
async function* bytesFrom({ path, sizeBytes }: Source, offset: number, sent: (count: number) => void) {
  let at = offset;
  const failed = (reason: string) => new CliError(`Cannot read ${path}: ${reason}`);
  try {
    for await (const chunk of createReadStream(path, { start: offset, end: sizeBytes - 1 })) {
      const data = chunk as Buffer;
      at += data.length;
      yield data;
      sent(data.length);
    }
  } catch (error) {
    throw failed((error as Error).message);
  }
  if (at < sizeBytes) throw failed('it became shorter while it was sent');
}

/** A cut connection, a node or a controller that restarts; an upload whose other connection still hangs. */
const isPassing = (error: unknown): boolean =>
  error instanceof CliError &&
  (error.exitCode === ExitCode.unreachable || /\(409(87|88)\)/.test(error.message));

/** A bar on a terminal. */
function progressBar(sizeBytes: number): { add(n: number): void; set(n: number): void; stop(): void } {
  if (!process.stderr.isTTY) return { add: () => {}, set: () => {}, stop: () => {} };
  const format = '{bar} {percentage}%  {amount}';
  const bar = new SingleBar({ format, hideCursor: true, stream: process.stderr }, Presets.shades_classic);
  let done = 0;
  const set = (value: number) => {
    done = value;
    bar.update(done, { amount: `${bytes(done)} of ${bytes(sizeBytes)}` });
  };
  bar.start(sizeBytes, 0, { amount: bytes(0) });
  return { add: count => set(done + count), set, stop: () => bar.stop() };
}
