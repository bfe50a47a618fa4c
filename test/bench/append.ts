/**
 * Extending an archive, against its size, against recompressing it and against writing the same bytes:
 * `node test/bench/append.ts [--quick] [--full] [--rounds N] [--warm] [--only plain|zstd]…`.
 *
 * Every time ends with fdatasync. Each append is undone before the next one, untimed, so all meet the same archive. Works
 * in .cache/bench (about 6 GiB) and cleans up after itself. Small increments are those of `long.ts`.
 */

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '@virtkeep/shared/units';
import { DENSE, writeImage } from './archive-data.ts';
import { CHANGE_MIB, QUICK_CHANGE_MIB } from './guest-change.ts';
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

const { quick, full, rounds, warm, only } = benchOptions(2);
const formats = (['plain', 'zstd'] as const).filter(format => only.length === 0 || only.includes(format));
/** Sizes of the two archives' disks, and of the increment. */
const SMALL_MIB = quick ? 128 : full ? 640 : 384;
const ARCHIVES_MIB = [SMALL_MIB, 4 * SMALL_MIB];
const INCREMENT_MIB = quick ? QUICK_CHANGE_MIB : CHANGE_MIB;
const root = join(import.meta.dirname, '../../.cache/bench/append');
const runner = join(import.meta.dirname, 'archive-run.ts');
const at = (name: string) => join(root, name);
const peaks: number[] = [];

type Format = (typeof formats)[number];
const ending = (format: Format) => (format === 'plain' ? 'tar' : 'tar.zst');
const archiveOf = (sizeMiB: number, format: Format) => at(`${sizeMiB}.${ending(format)}`);
const SOURCE = at('increment');

async function ours(...args: string[]): Promise<number> {
  const measured = await measuredNode(runner, args);
  peaks.push(measured.peakRssBytes);
  return measured.elapsedMs;
}

/** The archives of all sizes and forms; each image is removed when its archives are written. */
async function makeArchives(): Promise<void> {
  for (const sizeMiB of ARCHIVES_MIB) {
    const image = at('disk.qcow2');
    writeImage(image, sizeMiB * MiB);
    for (const format of formats) await ours('write', image, archiveOf(sizeMiB, format), format);
    rmSync(image);
  }
  writeImage(SOURCE, INCREMENT_MIB * MiB, DENSE);
}

/** Appending the increment to every archive, and writing its bytes alone. */
function cases(): BenchCase[] {
  const prepare = async () => {
    rmSync(at('copy'), { force: true });
    await command('sync', []);
    await quietDisks();
    if (!warm) await dropCached(SOURCE);
  };
  const appends = formats.flatMap(format =>
    ARCHIVES_MIB.map(sizeMiB => ({
      name: `${format} ${sizeMiB}`,
      prepare,
      run: () => ours('append', archiveOf(sizeMiB, format), SOURCE),
    })),
  );
  const dd = ['bs=4M', 'conv=fdatasync', 'status=none', `if=${SOURCE}`, `of=${at('copy')}`];
  const write = async (): Promise<undefined> => await command('dd', dd).then(() => undefined);
  const squeeze = ['-c', `zstd -q -f -T0 -3 -o "${at('copy')}" "${SOURCE}" && sync -d "${at('copy')}"`];
  const compressed = async (): Promise<undefined> => await command('bash', squeeze).then(() => undefined);
  return [
    ...appends,
    { name: 'dd conv=fdatasync', prepare, run: write },
    { name: 'zstd -T0 -3; sync', prepare, run: compressed },
  ];
}

/** The program that writes the same bytes in the same form, and makes them durable. */
const WRITERS: Record<Format, string> = { plain: 'dd conv=fdatasync', zstd: 'zstd -T0 -3; sync' };

type Times = Map<string, number[]>;
const middle = (times: Times, name: string): number => median(times.get(name)!);
const note = (mine: number, theirs: number) => `${mine.toFixed(0)} ms against ${theirs.toFixed(0)} ms`;

function row(name: string, mine: number, theirs: number, target?: number): BenchRow {
  return { name, value: mine / theirs, unit: '×', note: note(mine, theirs), ...(target && { target }) };
}

/** The old way: everything decompressed, extended and compressed again. */
async function recompression(sizeMiB: number): Promise<number> {
  const archive = archiveOf(sizeMiB, 'zstd');
  const target = at('again.tar.zst');
  await command('sync', []);
  const start = performance.now();
  await command('bash', ['-o', 'pipefail', '-c', `zstd -dc "${archive}" | zstd -q -f -T0 -3 -o "${target}"`]);
  await command('sync', ['-d', target]);
  const elapsedMs = performance.now() - start;
  rmSync(target);
  return elapsedMs;
}

async function incrementRows(recompressed: number | undefined): Promise<BenchRow[]> {
  const times = await alternate(rounds, cases());
  const [small, large] = ARCHIVES_MIB as [number, number];
  return formats.flatMap(format => {
    const [inSmall, inLarge] = [middle(times, `${format} ${small}`), middle(times, `${format} ${large}`)];
    const name = `${INCREMENT_MIB} MiB to .${ending(format)}`;
    const rows = [
      row(`${name}: ${large} MiB archive / ${small} MiB archive`, inLarge, inSmall, 1.2),
      row(`${name} / ${WRITERS[format]}`, inLarge, middle(times, WRITERS[format]), 1.5),
    ];
    if (recompressed !== undefined) rows.push(row(`${name} / recompressing it`, inLarge, recompressed, 0.1));
    return rows;
  });
}

/** One small run that counts nowhere: like the agent's, the code of the runs is compiled and cached before. */
async function warmUp(): Promise<void> {
  const [source, target] = [at('small'), at('small.tar.zst')];
  writeFileSync(source, Buffer.alloc(MiB, 1));
  await measuredNode(runner, ['write', source, target, 'zstd']);
  await measuredNode(runner, ['append', target, source]);
  for (const path of [source, target]) rmSync(path);
}

async function main(): Promise<boolean> {
  rmSync(root, { recursive: true, force: true });
  mkdirSync(root, { recursive: true });
  try {
    await warmUp();
    await makeArchives();
    const large = ARCHIVES_MIB.at(-1)!;
    const recompressed = formats.includes('zstd') ? await recompression(large) : undefined;
    const rows = await incrementRows(recompressed);
    if (formats.includes('zstd')) {
      const listed = await alternate(rounds, [
        { name: 'list', run: () => ours('list', archiveOf(large, 'zstd')) },
      ]);
      const name = `manifest and XML of the ${large} MiB .tar.zst`;
      rows.push({ name, value: middle(listed, 'list'), unit: 'ms', target: 30 });
    }
    rows.push({
      name: 'peak memory of any of our runs',
      value: Math.max(...peaks) / MiB,
      unit: 'MiB',
      target: 200,
    });
    const title = `append: an increment to archives of ${ARCHIVES_MIB.join(' and ')} MiB, median of ${rounds} alternating rounds, ${warm ? 'warm' : 'cold'} source, fdatasync included`;
    return printTable(title, rows);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

const met = await main();
process.exitCode = met || quick ? 0 : 1;
