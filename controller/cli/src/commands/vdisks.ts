import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { runAction } from '../follow.ts';
import { type LayerOptions, withLayerOptions } from '../options.ts';
import { bytes, print, printFields, printJson, printTable } from '../output.ts';
import { type Named, resolve, resolveVdisk } from '../resolve.ts';

interface ListOptions {
  attachedTo?: string;
  vm?: string;
  pool?: string;
  node?: string;
}

interface LendOptions extends LayerOptions {
  thinClone?: string;
}

/** `vdisks`: list, show; attach and detach disks of another VM. */
export function addVdisks(program: Command): void {
  const vdisks = program.command('vdisks').description('the disks of VMs, and lending them to another VM');
  vdisks
    .command('list', { isDefault: true })
    .description('list disks')
    .option('--attached-to <vm>', 'originals of the disks that this VM has from other VMs')
    .option('--vm <vm>', 'disks of this VM')
    .option('--pool <pool>', 'disks on this data pool')
    .option('--node <node>', 'disks of the VMs on this node')
    .action(async (options: ListOptions, command: Command) => {
      const disks = await withClient(async client =>
        client.all('/api/vdisks/', { all_content: 1, ...(await filters(client, options)) }),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(disks);
      printTable(
        ['VM', 'TARGET', 'NAME', 'SIZE', 'USED', 'POOL', 'STATUS', 'ID'],
        disks.map(disk => [
          nameOf(disk.domain),
          disk.target_dev,
          disk.verbose_name,
          bytes(disk.size),
          bytes(disk.used),
          nameOf(disk.datapool),
          disk.status,
          disk.id,
        ]),
      );
    });
  vdisks
    .command('show <disk>')
    .description('show one disk, by id or name')
    .action(async (nameOrId: string, _options, command: Command) => {
      const disk = await withClient(async client =>
        client.get(`/api/vdisks/${(await resolveVdisk(client, nameOrId)).id}/`),
      );
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(disk);
      printFields([
        ['name', disk.verbose_name],
        ['id', disk.id],
        ['vm', nameOf(disk.domain)],
        ['status', disk.status],
        ['target', `${disk.target_dev} (${disk.target_bus})`],
        ['format', `${disk.driver_type} ${disk.driver_cache}`],
        ['size', bytes(disk.size)],
        ['used', bytes(disk.used)],
        ['pool', nameOf(disk.datapool)],
        ['saved states', (disk.snapshots as Named[]).map(state => state.verbose_name).join(', ')],
      ]);
    });
  addLending(vdisks);
}

function addLending(vdisks: Command): void {
  withLayerOptions(vdisks.command('attach <vm> <disk>'))
    .description('attach a disk of another VM, read-only, as it is at this moment')
    .option('--thin-clone <vm>', 'the thin clone whose state is meant; without it its template is')
    .action(async (vm: string, nameOrId: string, options: LendOptions, command: Command) =>
      lend(command, { action: 'attach', vm, nameOrId }, options, ({ attached, snapshot }) => {
        const instant = snapshot ? `, as of ${String(snapshot.created)}` : '';
        print(`${vm}: attached as ${String(attached?.target_dev)}${instant}`);
      }),
    );
  vdisks
    .command('detach <vm> <disk>')
    .description('detach a disk of another VM, named by its original')
    .option('--thin-clone <vm>', 'the thin clone whose state was attached')
    .action(async (vm: string, nameOrId: string, options: LendOptions, command: Command) =>
      lend(command, { action: 'detach', vm, nameOrId }, options, () => print(`${vm}: detached`)),
    );
}

async function lend(
  command: Command,
  { action, vm, nameOrId }: { action: 'attach' | 'detach'; vm: string; nameOrId: string },
  { thinClone, allowNetworkLayers }: LendOptions,
  tell: (response: { attached?: Json; snapshot?: Json | null }) => void,
): Promise<void> {
  const { json } = command.optsWithGlobals<GlobalOptions>();
  await withClient(async client => {
    const domain = await resolve(client, 'domains', vm);
    const clone = thinClone === undefined ? undefined : await resolve(client, 'domains', thinClone);
    const likely = action === 'detach' ? { another_domain: domain.id } : { domain: clone?.id };
    const disk = await resolveVdisk(client, nameOrId, likely);
    const body = { vdisk: disk.id, ...(clone ? { thin_clone: clone.id } : {}) };
    const query: Record<string, number> = allowNetworkLayers ? { allow_network_layers: 1 } : {};
    const task = await runAction(client, `/api/domains/${domain.id}/${action}-vdisk/`, body, {
      quiet: json,
      query,
    });
    if (json) return printJson(task);
    const { response } = await client.get<{ response: Json }>(`/api/tasks/${task.id}/response/`);
    tell(response);
  });
}

async function filters(client: Client, { attachedTo, vm, pool, node }: ListOptions) {
  const id = async (collection: 'domains' | 'data-pools' | 'nodes', nameOrId: string | undefined) =>
    nameOrId === undefined ? undefined : (await resolve(client, collection, nameOrId)).id;
  return {
    another_domain: await id('domains', attachedTo),
    domain: await id('domains', vm),
    datapool: await id('data-pools', pool),
    node: await id('nodes', node),
  };
}

function nameOf(value: unknown): string {
  return (value as Named | null)?.verbose_name ?? '';
}
