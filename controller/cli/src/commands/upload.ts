import { createReadStream } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { resolve as absolute, basename, dirname, join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { Presets, SingleBar } from 'cli-progress';
import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { bytes, note, print, printJson } from '../output.ts';
import { resolve } from '../resolve.ts';

interface UploadOptions {
  pool: string;
  sha256?: string;
}

/** A file here, and its name in the data pool. */
interface Source {
  path: string;
  filename: string;
  sizeBytes: number;
}

/** A connection that is cut is tried again so often without a byte in between. */
const TRIES = 10;
const PAUSE_MS = 2_000;
const MAX_FILES = 1_000;

/** `library upload <path…>`: files, or directories of an OVF descriptor and what it needs, into a data pool. */
export function addUpload(library: Command): void {
  library
    .command('upload <path...>')
    .description('send backups, appliances, or directories of an OVF with its disks into a data pool')
    .requiredOption('--pool <pool>', 'data pool')
    .option('--sha256 <hex>', 'of the one file: with another one it is not kept')
    .action(async (paths: string[], options: UploadOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      const sources = (await Promise.all(paths.map(sourcesOf))).flat();
      if (options.sha256 !== undefined && sources.length !== 1)
        throw new CliError('--sha256 is of one file, and there are several.', ExitCode.usage);
      await withClient(async client => {
        const pool = await resolve(client, 'data-pools', options.pool);
        const done: Json[] = [];
        for (const source of sources) {
          const upload = await send(client, source, {
            datapool: String(pool.id),
            sha256: options.sha256 ?? '',
          });
          done.push(upload);
          if (!json) print(`${source.filename}  ${bytes(source.sizeBytes)}  ${upload.sha256}`);
        }
        if (json) printJson(done);
      });
    });
}

/** An OVF descriptor brings its directory; descriptors come last, so that nobody sees one before its disks. */
async function sourcesOf(path: string): Promise<Source[]> {
  const found = await statOf(path);
  const isDescriptor = path.toLowerCase().endsWith('.ovf');
  if (found.isFile() && !isDescriptor) return [{ path, filename: basename(path), sizeBytes: found.size }];
  const directory = absolute(found.isFile() ? dirname(path) : path);
  const entries = await readdir(directory, { withFileTypes: true });
  const files = entries
    .filter(entry => entry.isFile() && !entry.name.startsWith('.'))
    .map(({ name }) => name);
  if (files.length === 0) throw new CliError(`${path} has no files.`, ExitCode.usage);
  if (files.length > MAX_FILES)
    throw new CliError(`${path} has more than ${MAX_FILES} files.`, ExitCode.usage);
  const isLast = (name: string) => Number(name.toLowerCase().endsWith('.ovf'));
  files.sort((a, b) => isLast(a) - isLast(b) || (a < b ? -1 : 1));
  return Promise.all(
    files.map(async name => {
      const { size } = await statOf(join(directory, name));
      return { path: join(directory, name), filename: `${basename(directory)}/${name}`, sizeBytes: size };
    }),
  );
}

const statOf = (path: string) =>
  stat(path).catch((error: Error) => {
    throw new CliError(`Cannot read ${path}: ${error.message}`, ExitCode.usage);
  });

/** Sends a file part by part until all of it is there. @returns the record of the upload */
async function send(
  client: Client,
  { path, filename, sizeBytes }: Source,
  target: { datapool: string; sha256: string },
): Promise<Json> {
  const at = await client.tusCreate('/api/library/upload/', sizeBytes, { ...target, filename });
  const bar = progressBar(sizeBytes);
  try {
    let offset = 0;
    for (let failed = 0; offset < sizeBytes; ) {
      const before = offset;
      try {
        const stream = createReadStream(path, { start: offset });
        stream.on('data', chunk => bar.add(chunk.length));
        offset = await client.tusSend(at, offset, sizeBytes - offset, stream);
      } catch (error) {
        if (!isPassing(error) || failed >= TRIES) throw error;
        await pause(PAUSE_MS);
        offset = await client.tusOffset(at).catch(() => before);
        bar.set(offset);
        note(`${filename}: the connection was cut; going on at ${bytes(offset)}`);
        failed = offset > before ? 0 : failed + 1;
      }
    }
  } finally {
    bar.stop();
  }
  return client.get(at);
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
