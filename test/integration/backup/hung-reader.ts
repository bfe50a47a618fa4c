/**
 * Run as a process of its own by hung-file-system.test.ts: copies a file, tells how its event loop goes on meanwhile, and does
 * other file work. Prints a line for each; what a line of its standard input says is begun.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { open, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { sizeOfAside } from '../../../agent/src/archive/system/syscalls.ts';
import { copyHere } from '../../../agent/src/archive/write/copy-here.ts';

const [hungPath = '', healthyPath = ''] = process.argv.slice(2);
const say = (line: string) => process.stdout.write(`${line}\n`);
const directory = mkdtempSync(join(tmpdir(), 'virtkeep-hung-'));

async function copy(from: string, name: string, lengthBytes: number): Promise<void> {
  const source = await open(from, 'r');
  const target = await open(join(directory, name), 'w+');
  say(`opened ${name}`);
  process.stdin.once('data', () => {
    const paths = { source: from, target: name };
    const to = { fd: target.fd, offset: 0 };
    const copying = copyHere({ fd: source.fd, offset: 0, lengthBytes }, to, paths, {
      signal: AbortSignal.timeout(120_000),
      onProgress: () => {},
    });
    const sized = sizeOfAside(source.fd);
    Promise.all([copying, sized]).then(
      () => say(`copied ${name}`),
      error => say(`failed ${name}: ${error}`),
    );
    setInterval(() => say('tick'), 20).unref();
    void healthy();
  });
}

async function healthy(): Promise<void> {
  for (let round = 0; round < 50; round++)
    await writeFile(join(directory, 'other'), await readFile(healthyPath));
  say('healthy');
}

process.once('exit', () => rmSync(directory, { recursive: true, force: true }));
await copy(hungPath, 'hung', 4 << 20);
