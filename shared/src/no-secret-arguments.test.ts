/** What stands in a command line stands in every list of processes: no text of ours tells anybody to put a secret there. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';

const ROOT = join(import.meta.dirname, '..', '..');
/** An option for a secret, with a value that is not `-` (standard input). */
const RECOMMENDED = /--(?:token|password|secret|login-password)(?:=| +)(?!-)[A-Z<"'$][\w$<"']*/g;

function textsOf(directory: string, pattern: RegExp): string[] {
  return readdirSync(join(ROOT, directory), { recursive: true, encoding: 'utf8' })
    .filter(file => pattern.test(file) && !/\.test\.ts$|node_modules/.test(file))
    .map(file => join(directory, file));
}

test('no message, help or page recommends a secret as an argument', () => {
  const files = [
    ...['agent/src', 'controller/src', 'controller/cli/src', 'shared/src'].flatMap(directory =>
      textsOf(directory, /\.ts$/),
    ),
    ...textsOf('docs', /\.md$/),
    ...textsOf('packaging', /\.yaml$/),
    'README.md',
  ];
  expect(files.length).toBeGreaterThan(100);
  const found = files.flatMap(file =>
    [...readFileSync(join(ROOT, file), 'utf8').matchAll(RECOMMENDED)].map(([text]) => `${file}: ${text}`),
  );
  expect(found).toEqual([]);
});
