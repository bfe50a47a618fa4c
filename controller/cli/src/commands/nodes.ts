import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { clean, note, print, printFields, printJson, printTable } from '../output.ts';
import { outputForm } from '../output-form.ts';
import { type Named, resolve } from '../resolve.ts';

interface SetOptions {
  description?: string;
  pool?: string;
  service?: boolean;
}

const isJson = (command: Command) => command.optsWithGlobals<GlobalOptions>().json === true;

/** `nodes`: list, show, enrol, set, remove. */
export function addNodes(program: Command): void {
  const nodes = program.command('nodes').description('list the nodes, or act on one');
  addReading(nodes);
  nodes
    .command('enrol [name]')
    .description('make a token by which one new node enrols once, and print it')
    .option('--address <address>', 'host or host:port by which the controller reaches it')
    .action(async (name: string | undefined, { address }: { address?: string }, command: Command) => {
      const body = { ...(name ? { verbose_name: name } : {}), ...(address ? { address } : {}) };
      const made = await withClient(client => client.post('/api/nodes/', body));
      // a name alone would lose what is shown this once
      if (isJson(command) && outputForm() !== 'name') return printJson(made);
      note(
        `good until ${made.expires_on}; on the node: virtkeep-agent enroll --config /etc/virtkeep/agent.yaml --controller URL --token - < token`,
      );
      print(String(made.token));
    });
  nodes
    .command('set <node>')
    .description('change a node')
    .option('--pool <pool>', 'base data pool: where backups go that name none')
    .option('--service', 'service mode: it takes no new work')
    .option('--no-service', 'end of the service mode')
    .option('--description <text>', 'free text')
    .action(async (nameOrId: string, options: SetOptions, command: Command) => {
      const changed = await onNode(nameOrId, async (client, { id }) => {
        const { pool, service, description } = options;
        const body = {
          ...(pool === undefined ? {} : { base_datapool: (await resolve(client, 'data-pools', pool)).id }),
          ...(service === undefined ? {} : { service_mode: service }),
          ...(description === undefined ? {} : { description }),
        };
        return client.put<Named>(`/api/nodes/${id}/`, body);
      });
      if (isJson(command)) printJson(changed);
      else print(`${clean(changed.verbose_name)}: changed`);
    });
  nodes
    .command('remove <node>')
    .description('forget a node, and revoke its certificates; its agent and its VMs are left as they are')
    .option('--compromised', 'others may have its key: what it signed counts as signed by nobody')
    .action(async (nameOrId: string, options: { compromised?: boolean }, command: Command) => {
      const removed = await onNode(nameOrId, async (client, node) => {
        await client.post(`/api/nodes/${node.id}/remove/`, options.compromised ? { compromised: true } : {});
        return node;
      });
      if (isJson(command)) printJson({});
      else print(`${clean(removed.verbose_name)}: removed`);
    });
}

function addReading(nodes: Command): void {
  nodes
    .command('list', { isDefault: true })
    .description('list the nodes')
    .action(async (_options, command: Command) => {
      const all = await withClient(client => client.all('/api/nodes/'));
      if (isJson(command)) return printJson(all);
      printTable(
        ['NAME', 'STATUS', 'VERSION', 'VMS', 'RUNNING', 'ID'],
        all.map(node => [
          node.verbose_name,
          node.status,
          node.version,
          node.domains_count,
          node.domains_on_count,
          node.id,
        ]),
      );
    });
  nodes
    .command('show <node>')
    .description('show one node')
    .action(async (nameOrId: string, _options, command: Command) => {
      const node = await onNode(nameOrId, async (_client, found) => found);
      if (isJson(command)) return printJson(node);
      const { libvirt, emulator } = node.hypervisor as { libvirt: string; emulator: string };
      printFields([
        ['name', node.verbose_name],
        ['id', node.id],
        ['status', node.status],
        ['address', node.management_ip],
        ['agent', node.version],
        ['libvirt', libvirt],
        ['qemu', emulator],
        ['vms', `${node.domains_on_count} of ${node.domains_count} run`],
        ['last seen', node.last_seen ?? 'never'],
        ['base pool', node.base_datapool ?? 'none'],
        ['description', node.description],
      ]);
    });
}

function onNode<T>(nameOrId: string, work: (client: Client, node: Named & Json) => Promise<T>): Promise<T> {
  return withClient(async client => {
    const { id } = await resolve(client, 'nodes', nameOrId);
    return work(client, await client.get<Named>(`/api/nodes/${id}/`));
  });
}
