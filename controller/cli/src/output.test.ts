import { afterEach, expect, jest, test } from '@jest/globals';
import { Command } from 'commander';
import { parse } from 'yaml';
import { printJson } from './output.ts';
import { withOutputForm } from './output-form.ts';

afterEach(() => {
  jest.restoreAllMocks();
});

function printed(value: unknown, ...options: string[]): string {
  const program = withOutputForm(new Command('virtkeep').option('--json'));
  program.command('show').action(() => printJson(value));
  const chunks: string[] = [];
  jest.spyOn(process.stdout, 'write').mockImplementation(chunk => {
    chunks.push(String(chunk));
    return true;
  });
  program.parse(['show', ...options], { from: 'user' });
  return chunks.join('');
}

test('YAML and JSON are read as what the controller said, and do nothing on a terminal', () => {
  const value = {
    verbose_name: 'a\tb \u001b[2J \u202eevil',
    description: 'two\nlines',
    last: [
      'ends with lines\n\n',
      'x\u0007\ny',
      "it's: #fine",
      '\\u0009',
      `${'long '.repeat(40)}\u200b\n${'z '.repeat(60)}`,
    ],
    'key\u0085': null,
    none: {},
    many: 18_014_398_509_481_984,
  };
  for (const [form, read] of [
    ['yaml', parse],
    ['json', JSON.parse],
  ] as [string, (text: string) => unknown][]) {
    const text = printed(value, '-o', form);
    expect(read(text)).toEqual(value);
    // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is meant
    expect(text).not.toMatch(/[\u0000-\u0009\u000b-\u001f\u0080-\u009f\u200b\u202e]/);
  }
});
