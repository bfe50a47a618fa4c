import { execFileSync } from 'node:child_process';
import { expect, test } from '@jest/globals';
import { Command } from 'commander';
import { candidates, SCRIPTS } from './completion.ts';

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

test('bash offers names as they are, also those that look like patterns or have spaces', () => {
  const run = `virtkeep() { printf '%s\\n' '*' 'web 2'; }
${SCRIPTS.bash}
COMP_WORDS=(virtkeep vms show ''); COMP_CWORD=3; _virtkeep; printf '%s\\n' "\${COMPREPLY[@]}"`;
  expect(execFileSync('bash', ['-c', run], { encoding: 'utf8' })).toBe('\\*\nweb\\ 2\n');
});
