import type { Command } from 'commander';
import { type GlobalOptions, withClient } from '../context.ts';
import { createdId, follow, runAction, type Started } from '../follow.ts';
import { print, printJson, printTable } from '../output.ts';
import { type Named, resolve } from '../resolve.ts';

interface CloneOptions {
  thin?: boolean;
  pool?: string;
  description?: string;
}

/** `templates`: list, mark, unmark, clone, change. */
export function addTemplates(program: Command): void {
  const templates = program.command('templates').description('templates and their clones');
  templates
    .command('list', { isDefault: true })
    .description('list the templates with their thin clones')
    .action(async (_options, command: Command) => {
      const { marked, clones } = await withClient(async client => ({
        marked: await client.all<Named>('/api/domains/', { template: true }),
        clones: await client.all<Named>('/api/domains/', { thin: true }),
      }));
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(marked);
      const clonesOf = (id: string) => clones.filter(clone => (clone.parent as Named | null)?.id === id);
      printTable(
        ['NAME', 'STATUS', 'NODE', 'THIN CLONES', 'ID'],
        marked.map(template => [
          template.verbose_name,
          template.status,
          (template.node as Named).verbose_name,
          clonesOf(template.id)
            .map(clone => clone.verbose_name)
            .join(', '),
          template.id,
        ]),
      );
    });
  addMark(templates, 'mark', true, 'make a template of a VM that is off');
  addMark(templates, 'unmark', false, 'make a VM of a template without thin clones');
  addClone(templates);
  addChange(templates);
}

function addMark(templates: Command, name: string, template: boolean, description: string): void {
  templates
    .command(`${name} <vm>`)
    .description(description)
    .action(async (nameOrId: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const domain = await resolve(client, 'domains', nameOrId);
        const path = `/api/domains/${domain.id}/template/`;
        const started = await client.put<Started>(path, { template }, { async: 1 });
        const task = await follow(client, started._task.id, json);
        if (json) printJson(task);
        else print(`${domain.verbose_name}: ${template ? 'a template now' : 'no template any more'}`);
      });
    });
}

function addClone(templates: Command): void {
  templates
    .command('clone <vm> [name]')
    .description('clone a template, or any VM that is off')
    .option('--thin', 'only what is changed later takes space; of templates only')
    .option('--pool <pool>', 'data pool of the new disks; without it beside the old ones')
    .option('--description <text>', 'free text kept with the new VM')
    .action(async (nameOrId: string, name: string | undefined, options: CloneOptions, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const domain = await resolve(client, 'domains', nameOrId);
        const { thin, pool, description } = options;
        const body = {
          ...(name === undefined ? {} : { verbose_name: name }),
          ...(thin ? { thin } : {}),
          ...(pool === undefined ? {} : { datapool: (await resolve(client, 'data-pools', pool)).id }),
          ...(description === undefined ? {} : { description }),
        };
        const task = await runAction(client, `/api/domains/${domain.id}/clone/`, body, { quiet: json });
        if (json) return printJson(task);
        const created = await client.get<Named>(`/api/domains/${createdId(task, 'domain')}/`);
        print(`${created.verbose_name}  ${created.id}`);
      });
    });
}

function addChange(templates: Command): void {
  templates
    .command('change <clone>')
    .description(
      'take the changes of a thin clone into its template; all its thin clones begin anew from that',
    )
    .action(async (nameOrId: string, _options, command: Command) => {
      const { json } = command.optsWithGlobals<GlobalOptions>();
      await withClient(async client => {
        const clone = await resolve(client, 'domains', nameOrId);
        const task = await runAction(
          client,
          `/api/domains/${clone.id}/change-template/`,
          {},
          { quiet: json },
        );
        if (json) return printJson(task);
        const { response } = await client.get<{ response: { version: number; clones: string[] } }>(
          `/api/tasks/${task.id}/response/`,
        );
        const { version, clones } = response;
        const template = (clone.parent as Named | null)?.verbose_name ?? '';
        print(`${template}: version ${version}, ${clones.length} thin clones made anew`);
      });
    });
}
