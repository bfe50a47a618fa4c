import { expect, test } from '@jest/globals';
import { Command } from 'commander';
import { candidates } from './completion.ts';

function program(): Command {
  const root = new Command('virtkeep').option('--json').option('-o, --output <form>');
  const vms = root.command('vms').alias('vm');
  vms.command('list');
  vms.command('show <vm>');
  root.command('backup <vm>').option('--pool <pool>', 'where').option('--compress');
  root.command('__complete [words...]', { hidden: true });
  return root;
}
const NAMES: Record<string, string[]> = { vm: ['web', 'database', 'web 2'], pool: ['bulk', 'fast'] };
const after = (...words: string[]) => candidates(program(), words, async kind => NAMES[kind] ?? []);

test('commands, then their commands, then names', async () => {
  expect(await after('')).toEqual(['backup', 'vms']);
  expect(await after('vm', '')).toEqual(['list', 'show']);
  expect(await after('vms', 's')).toEqual(['show']);
  expect(await after('vms', 'show', 'w')).toEqual(['web', 'web 2']);
  expect(await after('vms', 'show', 'web', '')).toEqual([]);
});

test('options, also those of the whole command, and what they take', async () => {
  expect(await after('backup', 'web', '--')).toEqual(['--compress', '--json', '--output', '--pool']);
  expect(await after('backup', '--pool', '')).toEqual(['bulk', 'fast']);
  expect(await after('backup', '--pool', 'bulk', 'd')).toEqual(['database']);
  expect(await after('backup', '--', '')).toEqual([]);
});
