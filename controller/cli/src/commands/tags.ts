import type { Command } from 'commander';
import type { Client, Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { clean, print, printJson, printTable } from '../output.ts';
import { type Named, resolve } from '../resolve.ts';

/** `tags`: list, create, set, remove; add and take of VMs. */
export function addTags(program: Command): void {
  const tags = program.command('tags').description('names that VMs bear to be found by');
  const isJson = (command: Command) => command.optsWithGlobals<GlobalOptions>().json === true;
  const told = (tag: Json, command: Command, what: string) => {
    if (isJson(command)) printJson(tag);
    else print(`${clean(tag.verbose_name)}: ${what}`);
  };
  tags
    .command('list', { isDefault: true })
    .description('list the tags')
    .action(async (_options, command: Command) => {
      const all = await withClient(client => client.all('/api/tags/'));
      if (isJson(command)) return printJson(all);
      printTable(
        ['NAME', 'BORNE BY', 'DESCRIPTION', 'ID'],
        all.map(tag => [tag.verbose_name, tag.entities_count, tag.description, tag.id]),
      );
    });
  tags
    .command('create <name>')
    .description('make a tag')
    .option('--description <text>', 'free text')
    .action(async (verbose_name: string, { description }: { description?: string }, command: Command) => {
      const body = { verbose_name, ...(description === undefined ? {} : { description }) };
      told(await withClient(client => client.post('/api/tags/', body)), command, 'made');
    });
  tags
    .command('set <tag>')
    .description('change a tag')
    .option('--name <name>', 'another name')
    .option('--description <text>', 'free text')
    .action(async (nameOrId: string, options: { name?: string; description?: string }, command: Command) => {
      const body = {
        ...(options.name === undefined ? {} : { verbose_name: options.name }),
        ...(options.description === undefined ? {} : { description: options.description }),
      };
      const changed = await onTag(nameOrId, (client, { id }) => client.put(`/api/tags/${id}/`, body));
      told(changed, command, 'changed');
    });
  tags
    .command('remove <tag>')
    .description('remove a tag, from all that bears it')
    .action(async (nameOrId: string, _options, command: Command) => {
      const removed = await onTag(nameOrId, async (client, tag) => {
        await client.post(`/api/tags/${tag.id}/remove/`);
        return tag;
      });
      told(isJson(command) ? {} : removed, command, 'removed');
    });
  for (const [name, path, what] of [
    ['add', 'add-entities', 'added'],
    ['take', 'remove-entities', 'taken'],
  ] as const)
    tags
      .command(`${name} <tag> <vm...>`)
      .description(name === 'add' ? 'let VMs bear a tag' : 'take a tag from VMs')
      .action(async (nameOrId: string, vms: string[], _options, command: Command) => {
        const tag = await onTag(nameOrId, async (client, { id }) => {
          const entities: Json[] = [];
          for (const vm of vms) entities.push({ entity_uuid: (await resolve(client, 'domains', vm)).id });
          return client.post(`/api/tags/${id}/${path}/`, { entities });
        });
        told(tag, command, what);
      });
}

function onTag<T>(nameOrId: string, work: (client: Client, tag: Named) => Promise<T>): Promise<T> {
  return withClient(async client => work(client, await resolve(client, 'tags', nameOrId)));
}
