import { type Command, InvalidArgumentError } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { CliError, ExitCode } from '../exit-codes.ts';
import { follow, type Started } from '../follow.ts';
import { fileOrUpload } from '../local-file.ts';
import { count } from '../options.ts';
import { parseBytes, print, printJson } from '../output.ts';
import { type Named, resolve } from '../resolve.ts';

interface ImportOptions {
  node?: string;
  pool?: string;
  format?: string;
  bus?: string;
  vm?: string;
  name?: string;
  memory?: number;
  cpus?: number;
  os?: string;
  uefi?: boolean;
  network?: string;
  virtio: boolean;
  wait: boolean;
}

const MIB = 1024 * 1024;

/** `import disk <file>`: a disk image becomes a disk. */
export function addImport(program: Command): void {
  const group = program.command('import').description('bring in what comes from elsewhere');
  group
    .command('disk <file>')
    .description(
      'a disk image of a data pool, or a file here, which is uploaded first, as the disk of a new VM, or as a further one of a VM; administrators only',
    )
    .option('--node <node>', 'node of the VM (default: the only one, or that of --vm)')
    .option('--pool <pool>', 'data pool for the disk (default: where the image is)')
    .option(
      '--format <format>',
      'what the image is: qcow2, raw, vmdk, vhdx, vhd, vdi (default: as its name ends)',
    )
    .option('--bus <bus>', 'virtio, scsi or sata (default: virtio)')
    .option('--vm <vm>', 'give the disk to this VM, also while it runs; without, a new VM is made')
    .option('--name <name>', 'name of the new VM')
    .option('--memory <size>', 'memory of the new VM, e.g. 2GiB', memory)
    .option('--cpus <count>', 'virtual processors of the new VM', count)
    .option('--os <system>', 'Linux, Windows or Other')
    .option('--uefi', 'the new VM starts with UEFI (default: BIOS)')
    .option('--network <network>', 'network or bridge for an adapter of the new VM (default: no adapter)')
    .option('--no-virtio', 'the new VM has SATA and e1000 in place of virtio')
    .option('--no-wait', 'print the task and return at once')
    .action(async (nameOrId: string, options: ImportOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      refuseMixed(options);
      await withClient(async client => {
        const body = await bodyOf(client, nameOrId, options);
        const started = await client.post<Started>('/api/domains/import-disk/', body, { async: 1 });
        if (!options.wait) return json ? printJson(started) : print(started._task.id);
        await follow(client, started._task.id, json);
        const domain = await client.get<Named>(`/api/domains/${started.entity}/`);
        if (json) printJson(domain);
        else print(`${domain.verbose_name}  ${domain.id}`);
      });
    });
}

/** Whole MiB. */
function memory(text: string): number {
  const value = parseBytes(text);
  if (value === undefined || value < MIB || value % MIB !== 0)
    throw new InvalidArgumentError('It is a size in whole MiB: 512M, 2GiB.');
  return value / MIB;
}

const OF_NEW = ['name', 'memory', 'cpus', 'os', 'uefi', 'network'] as const;

/** A further disk, or a new VM with all that it needs. */
function refuseMixed(options: ImportOptions): void {
  const usage = (text: string) => new CliError(text, ExitCode.usage);
  if (options.vm === undefined) {
    const missing = (['name', 'memory', 'cpus'] as const).find(name => options[name] === undefined);
    if (missing)
      throw usage(`A new VM needs --${missing}; give --vm for a further disk of one that is there.`);
    return;
  }
  const wrong = OF_NEW.find(name => options[name] !== undefined);
  if (wrong) throw usage(`--${wrong} does not go with --vm.`);
  if (!options.virtio) throw usage('--no-virtio does not go with --vm; give --bus.');
}

async function bodyOf(client: Client, nameOrId: string, options: ImportOptions): Promise<Json> {
  const vm = options.vm ? await resolve(client, 'domains', options.vm) : undefined;
  const pool = options.pool ? await resolve(client, 'data-pools', options.pool) : undefined;
  const node = await nodeOf(client, options.node, vm);
  const file = await fileOrUpload(client, nameOrId, { pool, node });
  const { name, memory: memory_count, cpus: cpu_count, os, uefi, network, format, bus, virtio } = options;
  return {
    file: file.id,
    node,
    ...(pool ? { datapool: pool.id } : {}),
    ...(format ? { format } : {}),
    ...(bus ? { target_bus: bus } : {}),
    ...(vm
      ? { domain: vm.id }
      : {
          ...{ verbose_name: name, memory_count, cpu_count },
          ...(os ? { os_type: os } : {}),
          ...(uefi ? { firmware: 'uefi' } : {}),
          ...(network ? { network } : {}),
          ...(virtio ? {} : { virtio: false }),
        }),
  };
}

async function nodeOf(client: Client, given: string | undefined, vm: Named | undefined): Promise<string> {
  if (given) return (await resolve(client, 'nodes', given)).id;
  const own = (vm?.node as { id?: string } | undefined)?.id;
  if (own) return own;
  const [node, another] = await client.all<Named>('/api/nodes/');
  if (!node || another) throw new CliError('Which node? Give --node.', ExitCode.usage);
  return node.id;
}
