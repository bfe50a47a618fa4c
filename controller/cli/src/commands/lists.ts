import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { bandwidth, milliseconds } from '../options.ts';
import { bytes, clean, print, printFields, printJson, printTable } from '../output.ts';
import { outputForm } from '../output-form.ts';
import { type Named, resolve } from '../resolve.ts';

interface GuestUtils {
  qemu_state?: boolean;
  hostname?: string | null;
  ipv4?: string[];
}

const POWER = ['undefined', 'off', 'suspended', 'on'];

function ref(value: unknown): string {
  return (value as { verbose_name?: string } | null)?.verbose_name ?? '';
}

function refs(value: unknown): string {
  return (value as { verbose_name: string }[]).map(one => one.verbose_name).join(', ');
}

/** `pools`, `vms`: lists, `pools set` and `vms show`. */
export function addLists(program: Command): void {
  addPools(program);
  addVms(program);
}

interface Forecast {
  state: string;
  days: number | null;
  basis: string | null;
}

function fullIn({ state, days, basis }: Forecast): string {
  if (days === null) return state === 'steady' ? 'shrinking or steady' : 'not known yet';
  return `about ${days} d${basis === 'backups' ? ', if no backup is removed' : ''}`;
}

function addPools(program: Command): void {
  const pools = program.command('pools').description('list the data pools, or change one');
  pools
    .command('list', { isDefault: true })
    .description('list the data pools')
    .action(async (_options, command: Command) => {
      const listed = await withClient(client => client.all('/api/data-pools/'));
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(listed);
      const isWide = outputForm() === 'wide';
      printTable(
        ['NAME', 'TYPE', 'STATUS', 'FREE', 'SIZE', 'NODES', 'PATH', 'ID', ...(isWide ? ['FULL IN'] : [])],
        listed.map(pool => [
          pool.verbose_name,
          pool.type,
          pool.status,
          bytes(pool.free_space),
          bytes(pool.size),
          refs(pool.nodes_connected),
          pool.path,
          pool.id,
          ...(isWide ? [fullIn(pool.forecast as Forecast)] : []),
        ]),
      );
    });
  pools
    .command('set <pool>')
    .description('change what is noted of a data pool')
    .option(
      '--backup-bandwidth <bytes>',
      'most bytes per second of all backups that go to it, e.g. 50M; 0: no limit',
      rate,
    )
    .option(
      '--latency-target <ms>',
      'slow backups down while VMs wait longer than this for its disks; 0: no limit',
      milliseconds,
    )
    .option('--readonly', 'nothing is changed in it')
    .option('--no-readonly', 'it is changed')
    .option('--outside', 'it belongs to others: nothing is written to it')
    .option('--no-outside', 'it belongs to us')
    .option('--description <text>', 'free text')
    .action(
      async (
        nameOrId: string,
        options: {
          backupBandwidth?: number;
          latencyTarget?: number;
          readonly?: boolean;
          outside?: boolean;
          description?: string;
        },
        command: Command,
      ) => {
        const changes = {
          ...(options.readonly === undefined ? {} : { readonly: options.readonly }),
          ...(options.outside === undefined ? {} : { outside: options.outside }),
          ...(options.backupBandwidth === undefined ? {} : { backup_bandwidth: options.backupBandwidth }),
          ...(options.latencyTarget === undefined ? {} : { latency_target: options.latencyTarget }),
          ...(options.description === undefined ? {} : { description: options.description }),
        };
        const changed = await withClient(async client => {
          const pool = await resolve(client, 'data-pools', nameOrId);
          return client.put<Named>(`/api/data-pools/${pool.id}/`, changes);
        });
        if (command.optsWithGlobals<GlobalOptions>().json) printJson(changed);
        else print(`${clean(changed.verbose_name)}: changed`);
      },
    );
}

const rate = (text: string): number => (text === '0' ? 0 : bandwidth(text));

function addVms(program: Command): void {
  const vms = program.command('vms').alias('vm').description('list the VMs, or act on one');
  vms
    .command('list', { isDefault: true })
    .description('list the VMs')
    .action(async (_options, command: Command) => {
      const domains = await withClient(client => client.all('/api/domains/'));
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(domains);
      printTable(
        ['NAME', 'POWER', 'STATUS', 'CPUS', 'MEMORY', 'DISKS', 'NODE', 'ID'],
        domains.map(domain => [
          domain.verbose_name,
          power(domain),
          domain.status,
          domain.cpu_count,
          `${domain.memory_count} MiB`,
          domain.vdisks_count,
          ref(domain.node),
          domain.id,
        ]),
      );
    });
  vms
    .command('show <vm>')
    .description('show one VM, by name or id')
    .action(async (nameOrId: string, _options, command: Command) => {
      const domain = await withClient(async client =>
        client.get<Named>(`/api/domains/${(await resolve(client, 'domains', nameOrId)).id}/`),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(domain);
      const utils = (domain.guest_utils ?? {}) as GuestUtils;
      const { frozen_since: frozen } = (domain.guest_info ?? {}) as { frozen_since?: string | null };
      printFields([
        ['name', domain.verbose_name],
        ['id', domain.id],
        ['power', power(domain)],
        ['node', ref(domain.node)],
        ['cpus', domain.cpu_count],
        ['memory', `${domain.memory_count} MiB`],
        ['guest', `${domain.os_type} ${domain.os_version}`],
        ['agent', utils.qemu_state ? 'connected' : 'not connected'],
        ['hostname', utils.hostname],
        ['addresses', (utils.ipv4 ?? []).join(', ')],
        ...protectionFields(domain),
        ...(frozen ? ([['frozen since', frozen]] as [string, unknown][]) : []),
        ...(domain.vdisks as Json[]).map((disk): [string, unknown] => [
          `disk ${disk.target_dev}`,
          `${disk.verbose_name} ${bytes(disk.size)} ${disk.id}`,
        ]),
      ]);
    });
}

/** A controller of before tells nothing of it. */
function protectionFields({ protection }: Json): [string, unknown][] {
  if (protection === undefined) return [];
  const { state, last_good: lastGood } = protection as { state: string; last_good: string | null };
  return [
    ['protection', state],
    ['last good', lastGood ?? 'no backup'],
  ];
}

function power(domain: Json): string {
  return POWER[Number(domain.user_power_state)] ?? 'undefined';
}
