import { Argument, type Command } from 'commander';
import type { Client } from '../client.ts';
import { candidates, SCRIPTS } from '../completion.ts';
import { withClient } from '../context.ts';
import { clean, print } from '../output.ts';

type Shell = keyof typeof SCRIPTS;

/** Where the names of what an argument means are listed. */
const COLLECTIONS: Readonly<Record<string, string>> = {
  vm: 'domains',
  clone: 'domains',
  pool: 'data-pools',
  node: 'nodes',
  task: 'scheduled-tasks',
  backup: 'library',
  file: 'library',
  disk: 'vdisks',
  tag: 'tags',
  target: 'notification-targets',
};
const MOST = 1000;
/** Longer nobody waits after a tab. */
const PATIENCE_MS = 1500;

/** `completion <shell>`, and what its scripts ask for. */
export function addCompletion(program: Command): void {
  program
    .command('completion')
    .description(
      'print a script that completes commands, options and names: source <(virtkeep completion bash)',
    )
    .addArgument(new Argument('<shell>', 'the shell').choices(Object.keys(SCRIPTS)))
    .action((shell: Shell) => {
      process.stdout.write(SCRIPTS[shell]);
    });
  program
    .command('__complete [words...]', { hidden: true })
    .allowUnknownOption()
    .action(async (words: string[]) => {
      for (const candidate of await candidates(program, words.length > 0 ? words : [''], namesOf))
        print(clean(candidate));
    });
}

/** None when nobody is logged in, or the controller does not answer at once. */
async function namesOf(kind: string, start: string): Promise<string[]> {
  const collection = COLLECTIONS[kind];
  if (collection === undefined) return [];
  // the process ends with its last request
  const signal = AbortSignal.timeout(PATIENCE_MS);
  return withClient(client => listOf(client, { collection, start, signal })).catch(() => []);
}

interface Wanted {
  collection: string;
  start: string;
  signal: AbortSignal;
}

async function listOf(client: Client, { collection, start, signal }: Wanted): Promise<string[]> {
  const name = collection === 'library' ? 'filename' : 'verbose_name';
  const { results } = await client.get<{ results: Record<string, string>[] }>(
    `/api/${collection}/`,
    { limit: MOST, fields: name, ...(start === '' ? {} : { name: start }) },
    signal,
  );
  return results.flatMap(record => record[name] ?? []);
}
