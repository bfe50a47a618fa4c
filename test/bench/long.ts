/**
 * What one more increment costs in a long life: to an archive of 500 states (`--full`: 2,000) against one of 20, and against writing
 * the same bytes: `node test/bench/long.ts [--quick] [--full] [--rounds N]`. Hashes are on; every time ends with fdatasync.
 *
 * Works in .cache/bench/long and cleans up after itself.
 */
import { copyFileSync, mkdirSync, mkdtempSync, rmSync, statSync } from 'node:fs';
import { basename, join } from 'node:path';
import { MiB } from '@virtkeep/shared/units';
import { DENSE, writeImage } from './archive-data.ts';
import {
  alternate,
  type BenchCase,
  type BenchRow,
  benchOptions,
  command,
  dropCached,
  measuredNode,
  median,
  printTable,
  quietDisks,
} from './lib.ts';
import { IN_MEMORY } from './limit.ts';

const { quick, full, rounds } = benchOptions();
const STATES = quick ? [5, 50] : [20, full ? 2000 : 500];
const INCREMENT_MIB = 55;
const FORMS = ['plain', 'zstd'] as const;
type Form = (typeof FORMS)[number];
const root = join(import.meta.dirname, '../../.cache/bench/long');
const runner = join(import.meta.dirname, 'archive-run.ts');
const at = (name: string) => join(root, name);
const archiveOf = (states: number, form: Form) => at(`${states}.${form === 'zstd' ? 'tar.zst' : 'tar'}`);

const ours = async (...args: string[]) => (await measuredNode(runner, args)).elapsedMs;

function casesOf(form: Form): BenchCase[] {
  const prepare = async () => {
    rmSync(at('copy'), { force: true });
    await command('sync', []);
    await quietDisks();
    // an append drops what it has read, dd does not: who comes after dd would find it
    await dropCached(at('increment'));
  };
  const dd = ['bs=4M', 'conv=fdatasync', 'status=none', `if=${at('increment')}`, `of=${at('copy')}`];
  return [
    ...STATES.map(states => ({
      name: `${states}`,
      prepare,
      run: () => ours('append', archiveOf(states, form), at('increment')),
    })),
    {
      name: 'dd',
      prepare,
      run: async (): Promise<undefined> => await command('dd', dd).then(() => undefined),
    },
  ];
}

/**
 * Archives that have lived so long, in each form: the other form of one is the same tar, compressed. They grow in memory, where nobody
 * waits two thousand times for a disk.
 */
async function makeArchives(): Promise<void> {
  const memory = mkdtempSync(join(IN_MEMORY, 'vk-long-'));
  try {
    for (const states of STATES) {
      const plain = archiveOf(states, 'plain');
      const grown = join(memory, basename(plain));
      await ours('write', at('disk'), grown, 'plain', 'hash');
      await ours('grow', grown, String(states));
      for (const ending of ['', '.sha256']) {
        copyFileSync(`${grown}${ending}`, `${plain}${ending}`);
        rmSync(`${grown}${ending}`);
      }
      await ours('convert', plain, archiveOf(states, 'zstd'), 'zstd');
    }
  } finally {
    rmSync(memory, { recursive: true });
  }
}

async function rowsOf(form: Form): Promise<BenchRow[]> {
  const times = await alternate(rounds, casesOf(form));
  const [few, many] = STATES.map(states => median(times.get(`${states}`)!)) as [number, number];
  const name = `${INCREMENT_MIB} MiB to ${form === 'plain' ? '.tar' : '.tar.zst'}`;
  const bytes = statSync(`${archiveOf(STATES[1]!, form)}.sha256`).size;
  const milliseconds = `${many.toFixed(0)} ms against ${few.toFixed(0)} ms; hash file of ${(bytes / 1024).toFixed(0)} KiB`;
  return [
    {
      name: `${name}: after ${STATES[1]} states / after ${STATES[0]}`,
      value: many / few,
      unit: '×',
      target: 1.5,
      note: milliseconds,
    },
    {
      name: `${name}: after ${STATES[1]} states / dd conv=fdatasync`,
      value: many / median(times.get('dd')!),
      unit: '×',
    },
  ];
}

rmSync(root, { recursive: true, force: true });
mkdirSync(root, { recursive: true });
try {
  writeImage(at('disk'), 64 * MiB);
  writeImage(at('increment'), INCREMENT_MIB * MiB, DENSE);
  await makeArchives();
  const rows: BenchRow[] = [];
  for (const form of FORMS) rows.push(...(await rowsOf(form)));
  const met = printTable(`long lives: median of ${rounds} alternating rounds, fdatasync included`, rows);
  process.exitCode = met || quick ? 0 : 1;
} finally {
  rmSync(root, { recursive: true, force: true });
}
