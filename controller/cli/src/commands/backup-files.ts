import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError } from '../exit-codes.ts';
import { runAction } from '../follow.ts';
import { fileOrUpload } from '../local-file.ts';
import { count, level, network } from '../options.ts';
import { bytes, clean, print, printJson } from '../output.ts';
import { resolve, resolveFile } from '../resolve.ts';
import { addDownload } from './download.ts';
import { addExport } from './export.ts';

interface Verified {
  ok: boolean;
  unproven_members?: number;
  problems: { member: string; reason: string }[];
  restorable_states: number[] | null;
}

/** `backups verify|compress|unpack|convert|export|trim|download|remove|scan`. */
export function addFileActions(backups: Command): void {
  addVerify(backups);
  addConversions(backups);
  addExport(backups);
  addTrim(backups);
  addDownload(backups);
  backups
    .command('remove <backup>')
    .description('delete a backup file')
    .action(async (nameOrId: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const file = await resolveFile(client, nameOrId);
        const task = await runAction(client, `/api/library/${file.id}/remove/`, {}, { quiet: json });
        if (json) printJson(task);
        else print(`${file.filename}: removed`);
      });
    });
  backups
    .command('scan <pool>')
    .description('find the backup files on a data pool')
    .action(async (nameOrId: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const pool = await resolve(client, 'data-pools', nameOrId);
        const task = await runAction(client, `/api/data-pools/${pool.id}/scan/`, {}, { quiet: json });
        if (json) printJson(task);
        else print(`${pool.verbose_name}: scanned`);
      });
    });
}

function addVerify(backups: Command): void {
  backups
    .command('verify <backup>')
    .description('read the whole file and compare its checksums and hashes')
    .action(async (nameOrId: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const file = await resolveFile(client, nameOrId);
        const task = await runAction(client, `/api/library/${file.id}/verify/`, {}, { quiet: json });
        const { response } = await client.get<{ response: Verified }>(`/api/tasks/${task.id}/response/`);
        if (json) printJson({ ...task, response });
        else if (response.ok) print(`${file.filename}: ${proofText(response)}`);
        if (!response.ok) throw new CliError(damageText(file.filename, response));
      });
    });
}

function proofText({ unproven_members: unproven }: Verified): string {
  // a controller of before does not tell
  if (!unproven) return 'verified';
  return `read without a problem, but not proved: ${unproven} of its members have no hashes (backup --hash makes them)`;
}

/** What is wrong, member by member, and what can be restored all the same. */
function damageText(filename: string, { problems, restorable_states: states }: Verified): string {
  const lines = problems.map(({ member, reason }) => `  ${clean(member)}: ${clean(reason)}`);
  const restorable =
    states === null || states.length === 0
      ? 'No state is known to be restorable.'
      : `States that can be restored: ${states.join(', ')}.`;
  return [`${filename} is damaged:`, ...lines, restorable].join('\n');
}

const SIGN = 'have the node sign the new file when nobody vouches for the old one (administrators only)';

const INJECT_DRIVERS = 'with --virtio: virt-v2v on the node puts the drivers into a copy of the disks';

const KEEP = 'the old file stays, as it always does on a read-only or outside pool';

function addConversions(backups: Command): void {
  const convert = async (
    action: string,
    nameOrId: string,
    options: Json & { pool?: string; node?: string },
    command: Command,
  ) => {
    const { json } = command.optsWithGlobals<GlobalOptions>();
    await withClient(async client => {
      const pool = options.pool ? await resolve(client, 'data-pools', options.pool) : undefined;
      const node = options.node ? await resolve(client, 'nodes', options.node) : undefined;
      const file =
        action === 'convert-backup'
          ? await fileOrUpload(client, nameOrId, { pool, node: node?.id })
          : await resolveFile(client, nameOrId);
      const body = {
        ...(node ? { node: node.id } : {}),
        ...(pool ? { datapool: pool.id } : {}),
        ...(options.level ? { level: options.level } : {}),
        ...(options.sign ? { sign: true } : {}),
        ...(options.keep ? { keep_source: true } : {}),
        ...(options.compress ? { compress: true } : {}),
        ...(options.hash ? { hash_sum: true } : {}),
        ...(options.virtio ? { virtio: true } : {}),
        ...(options.injectDrivers ? { inject_drivers: true } : {}),
        ...(options.iso === false ? { exclude_iso: true } : {}),
        ...(options.system ? { system: options.system } : {}),
        ...(options.all ? { all: true } : {}),
        ...(options.configuration ? { configuration: options.configuration } : {}),
        ...(options.state ? { state: options.state } : {}),
        ...(Object.keys(options.network ?? {}).length > 0 ? { networks: options.network } : {}),
      };
      const task = await runAction(client, `/api/library/${file.id}/${action}/`, body, { quiet: json });
      const { response } = await client.get<{ response: Json }>(`/api/tasks/${task.id}/response/`);
      if (json) printJson(response);
      else print(`${response.filename}  ${bytes(response.size)}  ${response.id}`);
    });
  };
  backups
    .command('compress <backup>')
    .description('compress a plain backup with zstd')
    .option('--pool <pool>', 'data pool for the new file (default: in place of the old one)')
    .option('--level <level>', '1 to 9', level)
    .option('--keep', KEEP)
    .option('--sign', SIGN)
    .action((nameOrId: string, options, command: Command) => convert('compress', nameOrId, options, command));
  backups
    .command('unpack <backup>')
    .description('make a plain backup of a compressed one')
    .option('--pool <pool>', 'data pool for the new file (default: in place of the old one)')
    .option('--keep', KEEP)
    .option('--sign', SIGN)
    .action((nameOrId: string, options, command: Command) => convert('unpack', nameOrId, options, command));
  backups
    .command('convert <file>')
    .description(
      'make a backup of an OVA, an OVF with its disks, an archive of Proxmox VE or a directory of virtnbdbackup, which stays; only ' +
        'administrators may restore it; a file here is uploaded first',
    )
    .option('--node <node>', 'node that does it (default: one that can use the data pools)')
    .option('--pool <pool>', 'data pool for the backup (default: where the archive is)')
    .option('--compress', 'compress with zstd')
    .option('--level <level>', 'of zstd, 1 to 9', level)
    .option('--hash', 'SHA-256 of every member')
    .option('--virtio', 'disks and network adapters become virtio, for which the guest must have drivers')
    .option('--inject-drivers', INJECT_DRIVERS)
    .option('--no-iso', 'leave out the images in drives')
    .option('--system <system>', 'which VM of an OVF descriptor')
    .option('--all', 'every VM of an OVF descriptor: a backup of each, all of them or none')
    .option('--configuration <id>', 'which configuration of it')
    .option('--state <state>', 'which restore point of a backup of virtnbdbackup: its number or name')
    .option(
      '--network <name=network>',
      'connect a network of the file to this network or bridge',
      network,
      {},
    )
    .action((nameOrId: string, options, command: Command) =>
      convert('convert-backup', nameOrId, options, command),
    );
}

function addTrim(backups: Command): void {
  backups
    .command('trim <backup>')
    .description('drop the oldest restore points of a backup that grows')
    .requiredOption('--keep <count>', 'so many of the newest stay', count)
    .action(async (nameOrId: string, options: { keep: number }, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const file = await resolveFile(client, nameOrId);
        const path = `/api/library/${file.id}/trim/`;
        const task = await runAction(client, path, { keep_states: options.keep }, { quiet: json });
        const { response } = await client.get<{ response: Json }>(`/api/tasks/${task.id}/response/`);
        if (json) printJson(response);
        else print(`${response.filename}  ${bytes(response.size)}  ${response.id}`);
      });
    });
}
