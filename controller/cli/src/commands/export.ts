import { type Command, Option } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { runAction } from '../follow.ts';
import { bytes, clean, note, print, printJson } from '../output.ts';
import { type Named, resolve, resolveFile } from '../resolve.ts';
import { downloadTo } from './download.ts';

interface ExportOptions {
  format: 'ova' | 'ovf' | 'qcow2';
  state?: string;
  pool?: string;
  name?: string;
  compress?: boolean;
  allowForeign?: boolean;
  download?: string;
}

type Exported = Named & { filename: string; path: string; files: string[] };

/** `backups export <backup>`: for other hypervisors, into a data pool. */
export function addExport(backups: Command): void {
  backups
    .command('export <backup>')
    .description('write a restore point of a backup for other hypervisors, into a data pool')
    .addOption(
      new Option('--format <format>', 'an OVA, an OVF with its disks, or qcow2 images with the domain XML')
        .choices(['ova', 'ovf', 'qcow2'])
        .makeOptionMandatory(),
    )
    .option('--state <state>', 'number or name of the restore point (default: the newest)')
    .option('--pool <pool>', 'data pool for the export (default: where the backup is)')
    .option('--name <name>', 'of the OVA or of the directory (default: that of the VM with the time)')
    .option('--compress', 'compress qcow2 images; the disks of the other formats always are')
    .option('--allow-foreign', 'also of a backup that nobody vouches for; administrators only')
    .option('--download <directory>', 'copy the OVA to this machine then')
    .action(async (nameOrId: string, options: ExportOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      if (options.download !== undefined && options.format !== 'ova')
        throw new CliError('--download is for --format ova: the others are directories.', ExitCode.usage);
      await withClient(async client => {
        const file = await resolveFile(client, nameOrId);
        const pool = options.pool ? await resolve(client, 'data-pools', options.pool) : undefined;
        const path = `/api/library/${file.id}/export/`;
        const task = await runAction(client, path, bodyOf(options, pool), { quiet: json });
        const { response } = await client.get<{ response: Exported & Json }>(
          `/api/tasks/${task.id}/response/`,
        );
        if (options.download !== undefined) await downloadTo(client, response, options.download);
        if (json) printJson(response);
        else print(`${response.filename}  ${bytes(response.size)}  ${response.id}`);
        if (!json) for (const written of response.files) note(clean(written));
      });
    });
}

function bodyOf({ format, state, name, compress, allowForeign }: ExportOptions, pool?: Named): Json {
  return {
    format,
    ...(state ? { state } : {}),
    ...(pool ? { datapool: pool.id } : {}),
    ...(name ? { filename: name } : {}),
    ...(compress ? { compress: true } : {}),
    ...(allowForeign ? { allow_foreign: true } : {}),
  };
}
