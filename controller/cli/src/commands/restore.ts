import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { follow, type Started } from '../follow.ts';
import { bandwidth, network } from '../options.ts';
import { print, printJson } from '../output.ts';
import { type Named, resolve, resolveFile } from '../resolve.ts';

interface RestoreOptions {
  node?: string;
  pool?: string;
  name?: string;
  state?: string;
  keepIdentity?: boolean;
  start?: boolean;
  flatten?: boolean;
  instant?: boolean;
  bandwidth?: number;
  lun?: string[];
  allowForeign?: boolean;
  configOnly?: boolean;
  system?: string;
  configuration?: string;
  network?: Record<string, string>;
  virtio?: boolean;
  keepMacs?: boolean;
  wait: boolean;
}

/** `restore <backup>`: restores a VM and follows it. */
export function addRestore(program: Command): void {
  program
    .command('restore <backup>')
    .description('restore a VM from a backup, as a new VM or in place of a lost one')
    .option('--node <node>', 'node to restore on (default: the only one)')
    .option('--pool <pool>', 'data pool for disks and images (default: their former paths)')
    .option('--name <name>', 'name of the restored VM')
    .option('--state <state>', 'number or name of the state (default: the newest)')
    .option('--keep-identity', 'in place of the lost original: same name, uuid and MACs')
    .option('--start', 'start the VM when it is restored')
    .option('--flatten', "without the VM's saved states: every disk becomes one image")
    .option('--instant', 'start the VM at once and bring its data over while it runs (plain backups)')
    .option(
      '--bandwidth <bytes>',
      'most bytes per second and disk of an instant restore, e.g. 50M',
      bandwidth,
    )
    .option('--lun <target...>', 'attach these LUNs and network disks (they must be unused on all nodes)')
    .option(
      '--allow-foreign',
      'also of a backup that nobody vouches for (see backups show); administrators only',
    )
    .option(
      '--config-only',
      'a VM without disks, from a domain XML, an OVF descriptor or an archive of Proxmox VE; administrators only, with --node, --name and the options below',
    )
    .option('--system <vm>', 'which VM of an OVF descriptor (default: the only one)')
    .option('--configuration <id>', 'which configuration of it (default: its default one)')
    .option(
      '--network <name=network>',
      'connect a network of the file to this network or bridge',
      network,
      {},
    )
    .option('--virtio', 'network adapters of an OVF or of Proxmox VE become virtio')
    .option('--keep-macs', 'MAC addresses stay but for those that a VM of the node has')
    .option('--no-wait', 'print the task and return at once')
    .action(async (nameOrId: string, options: RestoreOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      refuseMixed(options);
      await withClient(async client => {
        const file = await resolveFile(client, nameOrId);
        const node = options.node
          ? await resolve(client, 'nodes', options.node)
          : onlyNode(await client.all<Named>('/api/nodes/'));
        const pool = options.pool ? await resolve(client, 'data-pools', options.pool) : undefined;
        const started = options.configOnly
          ? await client.post<Started>(
              '/api/domains/config-restore/',
              configBody(file.id, node.id, options),
              {
                async: 1,
              },
            )
          : await client.post<Started>(
              '/api/domains/automated-restore/',
              restoreBody(file.id, node.id, pool?.id, options),
              { async: 1 },
            );
        if (!options.wait) return json ? printJson(started) : print(started._task.id);
        await follow(client, started._task.id, json);
        const domain = await client.get<Named>(`/api/domains/${started.entity}/`);
        if (json) printJson(domain);
        else print(`${domain.verbose_name}  ${domain.id}`);
      });
    });
}

function onlyNode(nodes: Named[]): Named {
  const [node, another] = nodes;
  if (!node || another) throw new CliError('Which node? Give --node.', ExitCode.usage);
  return node;
}

type OptionName = keyof RestoreOptions;
const OF_ARCHIVES: readonly OptionName[] = [
  ...(['pool', 'state', 'keepIdentity', 'start', 'flatten', 'instant'] as const),
  ...(['bandwidth', 'lun', 'allowForeign'] as const),
];
const OF_DEFINITIONS: readonly OptionName[] = ['system', 'configuration', 'virtio', 'keepMacs'];

/** What would do nothing is not taken. */
function refuseMixed(options: RestoreOptions): void {
  const flagOf = (name: OptionName) => `--${name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`;
  const given = (names: readonly OptionName[]) => names.filter(name => options[name] !== undefined);
  const hasNetworks = Object.keys(options.network ?? {}).length > 0;
  const [wrong] = options.configOnly
    ? given(OF_ARCHIVES)
    : [...given(OF_DEFINITIONS), ...(hasNetworks ? (['network'] as const) : [])];
  if (wrong === undefined) return;
  const text = options.configOnly ? 'does not go with' : 'needs';
  throw new CliError(`${flagOf(wrong)} ${text} --config-only.`, ExitCode.usage);
}

function configBody(file: string, node: string, options: RestoreOptions): Json {
  const { name, system, configuration, network: networks = {}, virtio, keepMacs } = options;
  return {
    file,
    node,
    ...(name ? { verbose_name: name } : {}),
    ...(system ? { system } : {}),
    ...(configuration ? { configuration } : {}),
    ...(Object.keys(networks).length > 0 ? { networks } : {}),
    ...(virtio ? { virtio: true } : {}),
    ...(keepMacs ? { keep_macs: true } : {}),
  };
}

function restoreBody(
  file: string,
  node: string,
  datapool: string | undefined,
  options: RestoreOptions,
): Json {
  return {
    file,
    node,
    ...(datapool ? { datapool } : {}),
    ...(options.name ? { verbose_name: options.name } : {}),
    ...(options.state ? { state: options.state } : {}),
    ...(options.keepIdentity ? { keep_identity: true } : {}),
    ...(options.start ? { start_on: true } : {}),
    ...(options.flatten ? { flatten: true } : {}),
    ...(options.instant ? { instant: true } : {}),
    ...(options.bandwidth === undefined ? {} : { bandwidth: options.bandwidth }),
    ...(options.lun ? { luns: options.lun } : {}),
    ...(options.allowForeign ? { allow_foreign: true } : {}),
  };
}
