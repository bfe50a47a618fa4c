import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { createdId, follow, type Started } from '../follow.ts';
import { bandwidth, type LayerOptions, layerFields, network, withLayerOptions } from '../options.ts';
import { bytes, clean, note, print, printFields, printJson, printTable } from '../output.ts';
import { type Named, resolve, resolveFile } from '../resolve.ts';
import { addFileActions } from './backup-files.ts';

interface BackupOptions extends LayerOptions {
  pool?: string;
  incremental?: boolean;
  extend?: string;
  increment?: boolean;
  hold?: boolean;
  compress?: boolean;
  hash?: boolean;
  iso: boolean;
  excludeDisk?: string[];
  requireConsistency?: boolean;
  protect?: boolean;
  description?: string;
  bandwidth?: number;
  wait: boolean;
}

/** `backup <vm>`: makes a backup, or an increment of one, and follows it. */
export function addBackup(program: Command): void {
  withLayerOptions(program.command('backup <vm>'))
    .description('back up a VM, running or off')
    .option('--pool <pool>', "data pool for the file (default: the node's base data pool)")
    .option('--incremental', 'make a backup that can be extended later')
    .option('--extend <backup>', 'extend this backup with what has changed since')
    .option('--increment', 'extend the newest backup that can be extended, else make a new one')
    .option('--hold', 'keep all saved states of increments on the VM, not the latest only')
    .option('--compress', 'compress with zstd; a plain backup that is extended is converted first')
    .option('--no-compress', 'a compressed backup that is extended is unpacked first')
    .option('--hash', 'record a SHA-256 of every member, also of those that an extended backup has already')
    .option('--no-iso', 'leave the mounted ISO images out')
    .option('--exclude-disk <id...>', 'leave these disks out')
    .option('--require-consistency', 'fail when the guest agent cannot freeze the file systems')
    .option(
      '--bandwidth <bytes>',
      "most bytes per second that are read of the VM's disks, e.g. 50M",
      bandwidth,
    )
    .option('--protect', 'protect the file against deletion')
    .option('--description <text>', 'free text kept with the file')
    .option('--no-wait', 'print the task and return at once')
    .action(async (nameOrId: string, options: BackupOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const domain = await resolve(client, 'domains', nameOrId);
        const pool = options.pool ? await resolve(client, 'data-pools', options.pool) : undefined;
        const extended = options.extend ? await resolveFile(client, options.extend) : undefined;
        const body = backupBody(domain.id, options);
        const started = await client.post<Started>(
          '/api/domains/backup/',
          {
            ...body,
            ...(pool ? { datapool: pool.id } : {}),
            ...(extended ? { backup: extended.id } : {}),
          },
          { async: 1 },
        );
        if (!options.wait) return json ? printJson(started) : print(started._task.id);
        const task = await follow(client, started._task.id, json);
        const file = await client.get<Named>(`/api/library/${createdId(task, 'file')}/`);
        if (json) return printJson(file);
        const isNew = (file.states as Json[]).length === 1;
        if (isNew && file.fallback_reason) note(`not an increment: ${clean(file.fallback_reason)}`);
        print(`${file.filename}  ${bytes(file.size)}  ${file.id}`);
      });
    });
}

function backupBody(domain: string, options: BackupOptions): Json {
  return {
    domain,
    ...(options.incremental ? { can_be_incremental: true } : {}),
    ...(options.increment ? { increment: true } : {}),
    ...(options.hold ? { hold_states: true } : {}),
    ...(options.compress === undefined ? {} : { compress: options.compress }),
    ...(options.hash ? { hash_sum: true } : {}),
    ...(options.iso ? {} : { exclude_iso: true }),
    ...(options.excludeDisk ? { exclude_vdisks: options.excludeDisk } : {}),
    ...(options.requireConsistency ? { require_consistency: true } : {}),
    ...layerFields(options),
    ...(options.protect ? { protected: true } : {}),
    ...(options.bandwidth === undefined ? {} : { bandwidth: options.bandwidth }),
    ...(options.description ? { description: options.description } : {}),
  };
}

interface ListOptions {
  vm?: string;
  pool?: string;
  extendable?: boolean;
}

/** `backups`: list, show, and what may be done with a file. */
export function addBackups(program: Command): void {
  const backups = program.command('backups').description('list the backup files, or act on one');
  backups
    .command('list', { isDefault: true })
    .description('list the backup files')
    .option('--vm <vm>', 'only those of one VM')
    .option('--pool <pool>', 'only those on one data pool')
    .option('--extendable', 'only those that can be extended')
    .action(async (options: ListOptions, command: Command) => {
      const files = await withClient(async client => {
        const domain = options.vm ? (await resolve(client, 'domains', options.vm)).id : undefined;
        const datapool = options.pool ? (await resolve(client, 'data-pools', options.pool)).id : undefined;
        const can_be_incremental = options.extendable ? 1 : undefined;
        return client.all('/api/library/', { domain, datapool, can_be_incremental, ordering: '-created' });
      });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(files);
      printTable(
        ['FILE', 'VM', 'TYPE', 'SIZE', 'STATES', 'EXTENDABLE', 'STATUS', 'POOL', 'CREATED', 'ID'],
        files.map(file => [
          file.filename,
          vmNameOf(file),
          file.type,
          bytes(file.size),
          (file.states as Json[]).length,
          file.can_be_incremental ? 'yes' : '',
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
    .option('--state <state>', 'number or name of the state (default: the newest)')
    .option('--system <vm>', 'which VM of an OVF descriptor (default: the only one)')
    .option('--configuration <id>', 'which configuration of it (default: its default one)')
    .option('--virtio', 'a VM of a foreign file as it would be restored with --virtio')
    .option('--network <name=network>', 'the same with a network of the file mapped', network, {})
    .option('--members', 'list the members of the file, by the names that download takes')
    .action(async (nameOrId: string, options: ShowOptions, command: Command) => {
      const shown = await withClient(async client =>
        client.post('/api/domains/show-backup/', {
          file: (await resolveFile(client, nameOrId)).id,
          ...(options.state ? { state: options.state } : {}),
          ...(options.system ? { system: options.system } : {}),
          ...(options.configuration ? { configuration: options.configuration } : {}),
          ...(options.virtio ? { virtio: true } : {}),
          ...(Object.keys(options.network ?? {}).length > 0 ? { networks: options.network! } : {}),
        }),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(shown);
      if (options.members) printMembers(shown.members as Json[]);
      else printShown(shown);
    });
  addFileActions(backups);
}

interface ShowOptions {
  state?: string;
  system?: string;
  configuration?: string;
  virtio?: boolean;
  network?: Record<string, string>;
  members?: boolean;
}

function printMembers(members: Json[]): void {
  printTable(
    ['MEMBER', 'KIND', 'SIZE'],
    members.map(member => [member.name, member.kind, bytes(member.size)]),
  );
}

function signatureLine({ trust, signer, covers_content }: Json): string {
  if (trust !== 'own' && trust !== 'fleet') return 'nobody vouches for it';
  const by = trust === 'own' ? 'by its node alone' : 'not by its node alone';
  return `signed ${by} (last: ${clean(signer)}), disks and images ${covers_content ? '' : 'not '}included`;
}

/** Disks that it leaves out; an older controller tells of none. */
function without({ excluded_disks: disks }: Json): string {
  return Array.isArray(disks) && disks.length > 0 ? `  without ${clean(disks.join(', '))}` : '';
}

/** A foreign file goes by the name of its VM, of which there is none here. */
function vmNameOf({ domain, verbose_name: name, filename, type }: Json): unknown {
  if (domain !== null) return (domain as Named).verbose_name;
  return type === 'disk' || name === filename ? undefined : name;
}

function printSystem({ id, verbose_name, cpu_count, memory_count, disk_count, configurations }: Json): void {
  print(
    `vm ${clean(id)}  ${clean(verbose_name)}  ${cpu_count} CPUs  ${memory_count} MiB  ${disk_count} disks`,
  );
  for (const one of (configurations ?? []) as Json[])
    print(`  configuration ${clean(one.id)}  ${clean(one.label)}${one.default ? '  (default)' : ''}`);
}

/** Null: it cannot be taken, as the command has told then. */
function printImage(image: Json | null): void {
  if (image === null) return;
  const { format, virtual_size, allocated_size } = image;
  print(`disk image  ${clean(format)}  ${bytes(virtual_size)}, of which ${bytes(allocated_size)} are stored`);
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
  const file = (shown.file ?? {}) as Json;
  if (file.type === 'disk') printImage(file.image as Json | null);
  for (const state of (file.states ?? []) as Json[])
    print(
      `state ${state.number}  ${state.created}  ${clean(state.consistency)}  ${clean(state.name)}${without(state)}`,
    );
  if (file.can_be_incremental) print('it can be extended');
  else if (file.not_incremental_reason && file.type !== 'disk')
    print(`it cannot be extended: ${clean(file.not_incremental_reason)}`);
  for (const system of (shown.systems ?? []) as Json[]) printSystem(system);
  print(signatureLine((shown.signature ?? {}) as Json));
  if (shown.signed_by) print(`the appliance is signed by ${clean(shown.signed_by)}`);
  for (const warning of (shown.warnings ?? []) as Json[]) print(`warning: ${warning.text ?? warning.detail}`);
}
