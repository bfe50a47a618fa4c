import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { runAction } from '../follow.ts';
import { bandwidth, type LayerOptions, layerFields, withLayerOptions } from '../options.ts';
import { print, printJson, printTable } from '../output.ts';
import { type Named, resolve, resolveSnapshot } from '../resolve.ts';

interface CreateOptions extends LayerOptions {
  memory?: boolean;
  description?: string;
  requireConsistency?: boolean;
}

/** `snapshots`: list, create, remove, revert. */
export function addSnapshots(program: Command): void {
  const snapshots = program.command('snapshots').description('the saved states of a VM');
  snapshots
    .command('list <vm>')
    .description('list the saved states of a VM, oldest first')
    .action(async (nameOrId: string, _options, command: Command) => {
      const states = await withClient(async client => {
        const domain = await resolve(client, 'domains', nameOrId);
        return client.all<Named>(`/api/domains/${domain.id}/snapshots/`);
      });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(states);
      printTable(
        ['NAME', 'CURRENT', 'AFTER', 'MEMORY', 'CREATED', 'BACKUP', 'ID'],
        states.map(state => [
          state.verbose_name,
          state.current ? 'yes' : '',
          (state.parent as Named | null)?.verbose_name,
          state.memory ? 'yes' : '',
          state.created,
          state.backup,
          state.id,
        ]),
      );
    });
  withLayerOptions(snapshots.command('create <vm> <name>'))
    .description('save the state of a VM: all disks at one instant')
    .option('--memory', 'with the memory of the running VM')
    .option('--require-consistency', 'fail when the guest agent cannot freeze the file systems')
    .option('--description <text>', 'free text kept with the state')
    .action(async (nameOrId: string, name: string, options: CreateOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const domain = await resolve(client, 'domains', nameOrId);
        const task = await runAction(client, `/api/domains/${domain.id}/snapshots/`, body(name, options), {
          quiet: json,
        });
        if (json) printJson(task);
        else print(`${domain.verbose_name}: saved as ${name}`);
      });
    });
  addChanges(snapshots);
}

function body(name: string, options: CreateOptions) {
  return {
    verbose_name: name,
    ...(options.memory ? { memory: true } : {}),
    ...(options.requireConsistency ? { require_consistency: true } : {}),
    ...layerFields(options),
    ...(options.description ? { description: options.description } : {}),
  };
}

function addChanges(snapshots: Command): void {
  snapshots
    .command('remove <vm> <snapshot>')
    .description('delete a saved state; all backups of the VM stop being incremental')
    .option('--bandwidth <bytes>', 'most bytes per second that the merge may write, e.g. 50M', bandwidth)
    .action(async (vm: string, nameOrId: string, options: { bandwidth?: number }, command: Command) => {
      const limit = options.bandwidth === undefined ? {} : { bandwidth: options.bandwidth };
      await withClient(client =>
        change(client, { vm, nameOrId, action: 'remove', done: 'removed' }, limit, command),
      );
    });
  snapshots
    .command('revert <vm> <snapshot>')
    .description('bring a VM back to a saved state; what came after on its disks is lost')
    .action(async (vm: string, nameOrId: string, _options, command: Command) => {
      await withClient(client =>
        change(client, { vm, nameOrId, action: 'revert', done: 'reverted to' }, {}, command),
      );
    });
}

async function change(
  client: Client,
  { vm, nameOrId, action, done }: { vm: string; nameOrId: string; action: string; done: string },
  options: Json,
  command: Command,
): Promise<void> {
  const { json } = command.optsWithGlobals<GlobalOptions>();
  const domain = await resolve(client, 'domains', vm);
  const state = await resolveSnapshot(client, domain.id, nameOrId);
  const path = `/api/domains/${domain.id}/snapshots/${state.id}/${action}/`;
  const task = await runAction(client, path, options, { quiet: json });
  if (json) printJson(task);
  else print(`${domain.verbose_name}: ${done} ${state.verbose_name}`);
}
