import { createWriteStream } from 'node:fs';
import { open, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { Presets, SingleBar } from 'cli-progress';
import type { Command } from 'commander';
import type { Bytes, Client } from '../client.ts';
import { withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { bytes, note } from '../output.ts';
import { resolveFile } from '../resolve.ts';

interface DownloadOptions {
  output?: string;
  member?: string;
  resume?: boolean;
}

/** `backups download <backup>`: into a file, or to stdout. */
export function addDownload(backups: Command): void {
  backups
    .command('download <backup>')
    .description('copy a backup file, or one member of it, to this machine')
    .option('-o, --output <path>', 'file to write, "-" for stdout (default: its own name, here)')
    .option('--member <name>', 'one member of the archive, uncompressed')
    .option('--resume', 'go on with a download that was broken off')
    .action(async (nameOrId: string, _options, command: Command) => {
      // elsewhere -o is a form of output, and the whole command's
      const options = command.optsWithGlobals<DownloadOptions>();
      await withClient(async client => {
        const file = await resolveFile(client, nameOrId);
        const path = `/api/library/${file.id}/download/`;
        const output = options.output ?? basename(options.member ?? file.filename);
        if (output === '-') return toStdout(await client.bytes(path, { member: options.member }));
        await toFile(client, path, output, options);
      });
    });
}

/** Downloads a whole backup file into a directory, under its own name. */
export async function downloadTo(
  client: Client,
  file: { id: string; filename: string },
  directory: string,
): Promise<void> {
  await toFile(client, `/api/library/${file.id}/download/`, join(directory, basename(file.filename)), {});
}

async function toStdout({ stream }: Bytes): Promise<void> {
  await pipeline(stream, process.stdout, { end: false }).catch(broken);
}

/** Writes beside the target under another name, so that a broken download is never taken for the file. */
async function toFile(client: Client, path: string, output: string, options: DownloadOptions): Promise<void> {
  const partial = `${output}.part`;
  if (await sizeOf(output)) throw new CliError(`${output} exists already.`, ExitCode.conflict);
  const present = options.resume ? await brokenOff(partial) : undefined;
  const { status, stream, length, tag } = await client.bytes(path, { member: options.member }, present);
  const offset = status === 206 && present ? present.offset : 0;
  await writeFile(tagOf(partial), tag ?? '');
  const target = createWriteStream(partial, offset > 0 ? { flags: 'r+', start: offset } : {});
  const stop = showProgress(stream, offset, length);
  await pipeline(stream, target).catch(broken).finally(stop);
  const sizeBytes = (await sizeOf(partial)) ?? 0;
  if (length !== undefined && sizeBytes !== offset + length)
    throw new CliError('The download ended early. Go on with --resume.', ExitCode.unreachable);
  await syncFile(partial);
  await rename(partial, output);
  await rm(tagOf(partial), { force: true });
  note(`${output}: ${bytes(sizeBytes)}`);
}

/** A bar on a terminal, where the length is known. @returns what ends it. */
function showProgress(stream: Bytes['stream'], offset: number, length: number | undefined): () => void {
  if (!process.stderr.isTTY || length === undefined) return () => {};
  const format = '{bar} {percentage}%  {amount}';
  const bar = new SingleBar({ format, hideCursor: true, stream: process.stderr }, Presets.shades_classic);
  let done = offset;
  bar.start(offset + length, done, { amount: bytes(done) });
  stream.on('data', (chunk: Buffer) => {
    done += chunk.length;
    bar.update(done, { amount: `${bytes(done)} of ${bytes(offset + length)}` });
  });
  return () => bar.stop();
}

/** What a broken download left: its length, and the tag of the bytes that it began with. */
async function brokenOff(partial: string): Promise<{ offset: number; tag: string } | undefined> {
  const offset = (await sizeOf(partial)) ?? 0;
  const tag = await readFile(tagOf(partial), 'utf8').catch(() => '');
  return offset > 0 && tag !== '' ? { offset, tag } : undefined;
}

const tagOf = (partial: string): string => `${partial}.tag`;

function broken(error: Error): never {
  throw new CliError(`The download broke off: ${error.message}. Go on with --resume.`, ExitCode.unreachable);
}

async function sizeOf(path: string): Promise<number | undefined> {
  return (await stat(path).catch(() => undefined))?.size;
}

async function syncFile(path: string): Promise<void> {
  const handle = await open(path, 'r');
  await handle.sync();
  await handle.close();
}
