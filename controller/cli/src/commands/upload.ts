import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { bytes, note, print, printJson } from '../output.ts';
import { resolve } from '../resolve.ts';
import { isThere, send, sourcesOf, unfinished } from '../upload.ts';

interface UploadOptions {
  pool: string;
  sha256?: string;
  skipExisting?: true;
  resume?: string;
}

/** `library upload <path…>`: files, or directories of an OVF descriptor and what it needs, into a data pool. */
export function addUpload(library: Command): void {
  library
    .command('upload <path...>')
    .description(
      'send backups, appliances, disk images, or directories of an OVF with its disks into a data pool',
    )
    .requiredOption('--pool <pool>', 'data pool')
    .option('--sha256 <hex>', 'of the one file: with another one it is not kept')
    .option('--skip-existing', 'leave out what is there under its name already; its bytes are not compared')
    .option('--resume <upload>', 'go on with an upload that was given up, as that command told')
    .action(async (paths: string[], options: UploadOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      const sources = (await Promise.all(paths.map(sourcesOf))).flat();
      if (options.sha256 !== undefined && sources.length !== 1)
        throw new CliError('--sha256 is of one file, and there are several.', ExitCode.usage);
      await withClient(async client => {
        const pool = await resolve(client, 'data-pools', options.pool);
        const { resume } = options;
        const begun = resume === undefined ? undefined : await unfinished(client, sources, resume);
        const done: Json[] = [];
        for (const source of sources) {
          const upload = begun?.source === source ? begun.upload : undefined;
          const target = { datapool: String(pool.id), sha256: options.sha256 ?? '', upload };
          const sent = await send(client, source, target).catch((error: unknown) => {
            if (options.skipExisting && isThere(error)) return undefined;
            throw error;
          });
          if (!sent) {
            note(`${source.filename}: is there already`);
            continue;
          }
          done.push(sent);
          if (!json) print(`${source.filename}  ${bytes(source.sizeBytes)}  ${sent.sha256}`);
        }
        if (json) printJson(done);
      });
    });
}
