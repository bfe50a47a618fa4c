import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Json } from '../client.ts';
import { type GlobalOptions, withClient } from '../context.ts';
import { count } from '../options.ts';
import { printJson, printTable } from '../output.ts';

const DEFAULT = 50;

interface ReadOptions {
  type?: string;
  user?: string;
  entity?: string;
  outcome?: string;
  since?: string;
  until?: string;
  limit: number;
}

function instant(text: string): string {
  const time = new Date(text);
  if (Number.isNaN(time.getTime()))
    throw new InvalidArgumentError('It is a date or a time, as 2026-03-01T02:00.');
  return time.toISOString();
}

/** `events` and `audit`: what happened, and who changed what. */
export function addJournal(program: Command): void {
  withFilters(program.command('events'))
    .description('what happened, the newest first')
    .addOption(new Option('--type <type>', 'only of this kind').choices(['info', 'warning', 'error']))
    .action(async ({ type, user, entity, limit }: ReadOptions, command: Command) => {
      const events = await newest('/api/events/', { type, user, entity, limit });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(events);
      printTable(
        ['TIME', 'TYPE', 'USER', 'MESSAGE', 'ID'],
        events.map(event => [event.created, event.type, event.user, event.message, event.id]),
      );
    });
  withFilters(program.command('audit'))
    .description('who changed what, or was refused, the newest first')
    .addOption(
      new Option('--outcome <outcome>', 'only what was done, or refused').choices(['done', 'refused']),
    )
    .option('--since <date>', 'not before', instant)
    .option('--until <date>', 'only before', instant)
    .action(async ({ user, entity, outcome, since, until, limit }: ReadOptions, command: Command) => {
      const records = await newest('/api/audit/', { user, entity, outcome, since, until, limit });
      if (command.optsWithGlobals<GlobalOptions>().json) return printJson(records);
      printTable(
        ['TIME', 'USER', 'FROM', 'ACTION', 'STATUS', 'ERROR', 'ABOUT', 'ID'],
        records.map(record => [
          record.created,
          (record.user as Json).username,
          record.address,
          record.action,
          record.status,
          record.error,
          record.entity,
          record.id,
        ]),
      );
    });
}

function withFilters(command: Command): Command {
  return command
    .option('--user <name>', 'only of this user')
    .option('--entity <id>', 'only about this thing')
    .option('--limit <n>', 'so many', count, DEFAULT);
}

async function newest(path: string, query: Record<string, string | number | undefined>): Promise<Json[]> {
  return (await withClient(client => client.get<{ results: Json[] }>(path, query))).results;
}
