import { existsSync, globSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { expect, test } from '@jest/globals';
import { ROOT } from '../lab/paths.ts';

/** What a file takes from others at run time; types are gone then. */
const IMPORT = /^(?:import|export) (?!type )(?:[^;]*? from )?'([^']+)';/gm;

/** The files of the tree that a program begins with or comes to, each with how it came there. */
function reached(program: string): Map<string, string> {
  const ways = new Map([[program, relative(ROOT, program)]]);
  for (const [file, way] of ways)
    for (const [, name] of readFileSync(file, 'utf8').matchAll(IMPORT)) {
      const target = resolve(dirname(file), name!);
      if (name!.startsWith('.') && existsSync(target) && !ways.has(target))
        ways.set(target, `${way} → ${relative(ROOT, target)}`);
    }
  return ways;
}

test.each(globSync('test/{bench,demo,scale,lab}/*.ts', { cwd: ROOT, exclude: ['**/*.test.ts'] }))(
  '%s needs no test runner: it is started by itself',
  name => {
    const bound = [...reached(join(ROOT, name))]
      .filter(([file]) => /^import (?!type ).*from '@jest\/globals'/m.test(readFileSync(file, 'utf8')))
      .map(([, way]) => way);
    expect(bound).toEqual([]);
  },
);
