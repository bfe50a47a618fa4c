import type { Command } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { follow, type Started } from '../follow.ts';
import { fileOrUpload } from '../local-file.ts';
import { bandwidth, network } from '../options.ts';
import { print, printJson } from '../output.ts';
import { type Named, resolve } from '../resolve.ts';

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
  all?: boolean;
  virtio?: boolean;
  injectDrivers?: boolean;
  /** False: --no-iso. */
  iso?: boolean;
  keepMacs?: boolean;
  wait: boolean;
}

/** `restore <backup>`: restores a VM and follows it. */
export function addRestore(program: Command): void {
  program
    .command('restore <backup>')
    .description(
      'restore a VM from a backup, as a new VM or in place of a lost one; or from an OVA, an OVF with its disks or an archive of Proxmox VE (administrators only); a file here is uploaded first',
    )
    .option('--node <node>', 'node to restore on (default: the only one)')
    .option(
      '--pool <pool>',
      'data pool for disks and images (default: their former paths; of a foreign file the pool where it lies)',
    )
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
      'a VM without disks, from a domain XML, an OVF descriptor, an OVA or an archive of Proxmox VE; administrators only, with --node, --name and the options below but --all',
    )
    .option('--system <vm>', 'which VM of an OVF descriptor (default: the only one)')
    .option('--all', 'every VM of an OVF descriptor: all of them or none')
    .option('--configuration <id>', 'which configuration of it (default: its default one)')
    .option(
      '--network <name=network>',
      'connect a network of the file to this network or bridge',
      network,
      {},
    )
    .option('--virtio', 'disks and network adapters of a foreign file become virtio')
    .option(
      '--inject-drivers',
      'with --virtio: virt-v2v on the node puts the drivers into the disks of a foreign file',
    )
    .option('--no-iso', 'leave out the images in drives of a foreign file')
    .option('--keep-macs', 'MAC addresses stay but for those that a VM of the node has')
    .option('--no-wait', 'print the task and return at once')
    .action(async (nameOrId: string, options: RestoreOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      refuseMixed(options);
      await withClient(async client => {
        const node = options.node
          ? await resolve(client, 'nodes', options.node)
          : onlyNode(await client.all<Named>('/api/nodes/'));
        const pool = options.pool ? await resolve(client, 'data-pools', options.pool) : undefined;
        const file = await fileOrUpload(client, nameOrId, { pool, node: node.id });
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
const WITH_DISKS: readonly OptionName[] = [
  ...(['pool', 'state', 'keepIdentity', 'start', 'flatten', 'instant'] as const),
  ...(['bandwidth', 'lun', 'allowForeign', 'all', 'injectDrivers'] as const),
];

/** What would do nothing is not taken; what a file of its type does not know refuses the controller. */
function refuseMixed(options: RestoreOptions): void {
  const flagOf = (name: OptionName) => `--${name.replaceAll(/[A-Z]/g, letter => `-${letter.toLowerCase()}`)}`;
  if (!options.configOnly) return;
  const given = WITH_DISKS.find(name => options[name] !== undefined);
  const wrong = given ? flagOf(given) : options.iso === false ? '--no-iso' : undefined;
  if (wrong !== undefined) throw new CliError(`${wrong} does not go with --config-only.`, ExitCode.usage);
}

function configBody(file: string, node: string, options: RestoreOptions): Json {
  return { file, node, ...(options.name ? { verbose_name: options.name } : {}), ...foreignBody(options) };
}

/** What is chosen of a foreign file. */
function foreignBody({
  system,
  all,
  configuration,
  network: networks = {},
  ...options
}: RestoreOptions): Json {
  return {
    ...(system ? { system } : {}),
    ...(all ? { all: true } : {}),
    ...(configuration ? { configuration } : {}),
    ...(Object.keys(networks).length > 0 ? { networks } : {}),
    ...(options.virtio ? { virtio: true } : {}),
    ...(options.injectDrivers ? { inject_drivers: true } : {}),
    ...(options.keepMacs ? { keep_macs: true } : {}),
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
    ...(options.iso === false ? { exclude_iso: true } : {}),
    ...foreignBody(options),
  };
}
