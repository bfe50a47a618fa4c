import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { follow, type Started } from '../follow.ts';
import { bytes, print, printFields, printJson, printTable } from '../output.ts';
import { type Named, resolve, resolveFile } from '../resolve.ts';

interface BackupOptions {
  pool?: string;
  compress?: boolean;
  hash?: boolean;
  iso: boolean;
  excludeDisk?: string[];
  requireConsistency?: boolean;
  protect?: boolean;
  description?: string;
  wait: boolean;
}

/** `backup <vm>`: makes a full backup and follows it. */
export function addBackup(program: Command): void {
  program
    .command('backup <vm>')
    .description('back up a VM, running or off')
    .option('--pool <pool>', "data pool for the file (default: the node's base data pool)")
    .option('--compress', 'compress with zstd')
    .option('--hash', 'record a SHA-256 of every member')
    .option('--no-iso', 'leave the mounted ISO images out')
    .option('--exclude-disk <id...>', 'leave these disks out')
    .option('--require-consistency', 'fail when the guest agent cannot freeze the file systems')
    .option('--protect', 'protect the file against deletion')
    .option('--description <text>', 'free text kept with the file')
    .option('--no-wait', 'print the task and return at once')
    .action(async (word: string, options: BackupOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const domain = await resolve(client, 'domains', word);
        const pool = options.pool ? await resolve(client, 'data-pools', options.pool) : undefined;
        const started = await client.post<Started>(
          '/api/domains/backup/',
          backupBody(domain.id, pool?.id, options),
          { async: 1 },
        );
        if (!options.wait) return json ? printJson(started) : print(started._task.id);
        await follow(client, started._task.id, json);
        const file = await client.get<Named>(`/api/library/${started.entity}/`);
        if (json) printJson(file);
        else print(`${file.filename}  ${bytes(file.size)}  ${file.id}`);
      });
    });
}

function backupBody(domain: string, datapool: string | undefined, options: BackupOptions): Json {
  return {
    domain,
    ...(datapool ? { datapool } : {}),
    ...(options.compress ? { compress: true } : {}),
    ...(options.hash ? { hash_sum: true } : {}),
    ...(options.iso ? {} : { exclude_iso: true }),
    ...(options.excludeDisk ? { exclude_vdisks: options.excludeDisk } : {}),
    ...(options.requireConsistency ? { require_consistency: true } : {}),
    ...(options.protect ? { protected: true } : {}),
    ...(options.description ? { description: options.description } : {}),
  };
}

/** `backups`: list, show, verify, remove, scan. */
export function addBackups(program: Command): void {
  const backups = program.command('backups').description('list the backup files, or act on one');
  backups
    .command('list', { isDefault: true })
    .description('list the backup files')
    .option('--vm <vm>', 'only those of one VM')
    .option('--pool <pool>', 'only those on one data pool')
    .action(async (options: { vm?: string; pool?: string }, command: Command) => {
      const files = await withClient(async client => {
        const domain = options.vm ? (await resolve(client, 'domains', options.vm)).id : undefined;
        const datapool = options.pool ? (await resolve(client, 'data-pools', options.pool)).id : undefined;
        return client.all('/api/library/', { domain, datapool, ordering: '-created' });
      });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(files);
      printTable(
        ['FILE', 'VM', 'TYPE', 'SIZE', 'STATUS', 'POOL', 'CREATED', 'ID'],
        files.map(file => [
          file.filename,
          (file.domain as Named | null)?.verbose_name,
          file.type,
          bytes(file.size),
          file.status,
          (file.datapool as Named).verbose_name,
          file.created,
          file.id,
        ]),
      );
    });
  backups
    .command('show <backup>')
    .description('show the configuration of the VM that a backup would restore')
    .action(async (word: string, _options, command: Command) => {
      const shown = await withClient(async client =>
        client.post('/api/domains/show-backup/', { file: (await resolveFile(client, word)).id }),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(shown);
      printShown(shown);
    });
  addFileActions(backups);
}

function printShown(shown: Json): void {
  const configuration = (shown.configuration ?? {}) as Json;
  const plain = Object.entries(configuration).filter(
    ([, value]) => value !== null && typeof value !== 'object',
  );
  printFields(plain.map(([name, value]): [string, unknown] => [name, value]));
  for (const disk of (configuration.disks ?? configuration.vdisks ?? []) as Json[]) {
    print(`disk ${disk.target_dev}  ${bytes(disk.virtual_size)}  ${disk.path ?? ''}`);
  }
  for (const warning of (shown.warnings ?? []) as Json[]) print(`warning: ${warning.text ?? warning.detail}`);
}

function addFileActions(backups: Command): void {
  backups
    .command('verify <backup>')
    .description('read the whole file and compare its checksums and hashes')
    .action(async (word: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const file = await resolveFile(client, word);
        const started = await client.post<Started>(`/api/library/${file.id}/verify/`, {}, { async: 1 });
        const task = await follow(client, started._task.id, json);
        if (json) printJson(task);
        else print(`${file.filename}: verified`);
      });
    });
  backups
    .command('remove <backup>')
    .description('delete a backup file')
    .action(async (word: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const file = await resolveFile(client, word);
        const started = await client.post<Started>(`/api/library/${file.id}/remove/`, {}, { async: 1 });
        const task = await follow(client, started._task.id, json);
        if (json) printJson(task);
        else print(`${file.filename}: removed`);
      });
    });
  backups
    .command('scan <pool>')
    .description('find the backup files on a data pool')
    .action(async (word: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const pool = await resolve(client, 'data-pools', word);
        const started = await client.post<Started>(`/api/data-pools/${pool.id}/scan/`, {}, { async: 1 });
        const task = await follow(client, started._task.id, json);
        if (json) printJson(task);
        else print(`${pool.verbose_name}: scanned`);
      });
    });
}
