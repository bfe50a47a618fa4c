/** What is installed, when another version takes its place while it runs. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from '@jest/globals';

const { VIRTKEEP_BUNDLE: bundle = '' } = process.env;

(bundle === '' ? test.skip : test)(
  'the threads of a version bear its name, so that no other one starts them',
  () => {
    const version = readFileSync(join(bundle, 'key'), 'utf8').slice(0, 16);
    const entries = readdirSync(bundle, { withFileTypes: true });
    const directories = entries.filter(entry => entry.isDirectory()).map(({ name }) => name);
    expect(directories).toEqual([`threads-${version}`]);
    const programs = entries.filter(({ name }) => name.endsWith('.mjs'));
    // long lines are broken, also in the middle of a name
    const textOf = (name: string) => readFileSync(join(bundle, name), 'utf8').replaceAll('\\\n', '');
    const named = programs.flatMap(({ name }) => textOf(name).match(/[\w-]+\/[\w${}]+\.worker\.mjs/g) ?? []);
    expect(named.length).toBeGreaterThan(3);
    expect(named.filter(path => !path.startsWith(`threads-${version}/`))).toEqual([]);
  },
);
