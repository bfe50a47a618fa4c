/**
 * The archive against what disk and cores can do, and against cp, GNU tar and zstd:
 * `node test/bench/archive.ts [--quick] [--rounds N] [--size MiB] [--warm] [--only plain|zstd|xfs|lib]…`.
 *
 * Every time ends with fdatasync. The source is dropped from the page cache before each run unless --warm, because a
 * frozen disk is seldom in it. Works in .cache/bench and cleans up after itself.
 */

import { mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { MiB } from '@virtkeep/shared/units';
import { writeImage } from './archive-data.ts';
import { libzstdRow } from './archive-libzstd.ts';
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
import { allocated, alternateWithin, judgedWhereRoom, limitOf, limitRow, type Work } from './limit.ts';

const { quick, rounds, warm, only, sizeMiB, dataMiB } = benchOptions(2);
/** The library says what compresses, and takes none of the time that is judged: who changes it asks for that. */
const ON_REQUEST = 'lib';
const wanted = (part: string): boolean => (only.length === 0 ? part !== ON_REQUEST : only.includes(part));
const imageBytes = (sizeMiB ?? dataMiB({ usualMiB: 1024, quickMiB: 256 })) * MiB;
/** What shares its blocks takes as long whatever its size. */
const XFS_BYTES = 2 * imageBytes;
const root = join(import.meta.dirname, '../../.cache/bench/archive');
const runner = join(import.meta.dirname, 'archive-run.ts');
const peaks: number[] = [];

/** Runs our code in a process of its own and returns the time it measured. */
async function ours(...args: string[]): Promise<number> {
  const measured = await measuredNode(runner, args);
  peaks.push(measured.peakRssBytes);
  return measured.elapsedMs;
}

/** Removes what the last round left, waits until the disk has digested that, and makes the source cold. */
async function prepare(leftovers: readonly string[], source: string): Promise<void> {
  for (const path of leftovers) rmSync(path, { recursive: true, force: true });
  await command('sync', []);
  await quietDisks();
  if (!warm) await dropCached(source);
}

/** A program, then fdatasync of what it wrote. */
async function durable(target: string, program: string, args: string[], cwd: string): Promise<undefined> {
  await command(program, args, cwd);
  await command('sync', ['-d', target]);
}

/** The writers and readers to compare in one directory. */
function casesIn(directory: string): Record<string, BenchCase> {
  const at = (name: string) => join(directory, name);
  const image = at('disk.qcow2');
  const unpacked = at('unpacked');
  const named = (name: string, leftovers: string[], run: BenchCase['run'], source = image): BenchCase => ({
    name,
    prepare: () => prepare(leftovers.map(at), source),
    run,
  });
  const gnu = (args: string[], target: string) => () => durable(at(target), 'tar', args, directory);
  const untar = (args: string[]) => async () => {
    mkdirSync(unpacked, { recursive: true });
    return await durable(join(unpacked, 'disk.qcow2'), 'tar', ['-C', unpacked, ...args], directory);
  };
  return {
    cp: named('cp', ['cp.img'], () =>
      durable(at('cp.img'), 'cp', ['--reflink=never', image, at('cp.img')], directory),
    ),
    tar: named('tar', ['gnu.tar'], gnu(['-cf', 'gnu.tar', 'disk.qcow2'], 'gnu.tar')),
    ours: named('ours', ['ours.tar'], () => ours('write', image, at('ours.tar'), 'plain')),
    tarZstd: named(
      'tar zstd',
      ['gnu.tar.zst'],
      gnu(['-I', 'zstd -T0 -3', '-cf', 'gnu.tar.zst', 'disk.qcow2'], 'gnu.tar.zst'),
    ),
    oursZstd: named('ours zstd', ['ours.tar.zst'], () => ours('write', image, at('ours.tar.zst'), 'zstd')),
    untar: named('tar -x', ['unpacked'], untar(['-xf', at('gnu.tar')]), at('gnu.tar')),
    oursExtract: named(
      'ours x',
      ['out.img'],
      () => ours('extract', at('ours.tar'), at('out.img')),
      at('ours.tar'),
    ),
    untarZstd: named(
      'tar --zstd -x',
      ['unpacked'],
      untar(['--zstd', '-xf', at('gnu.tar.zst')]),
      at('gnu.tar.zst'),
    ),
    oursExtractZstd: named(
      'ours zstd x',
      ['out.img'],
      () => ours('extract', at('ours.tar.zst'), at('out.img')),
      at('ours.tar.zst'),
    ),
    list: named('list', [], () => ours('list', at('ours.tar.zst')), at('ours.tar.zst')),
    hashed: named('ours zstd hash', ['hash.tar.zst', 'hash.tar.zst.sha256'], () =>
      ours('write', image, at('hash.tar.zst'), 'zstd', 'hash'),
    ),
  };
}

type Times = Map<string, number[]>;
const middle = (times: Times, name: string): number => median(times.get(name)!);

/** What two programs are compared by. */
interface Comparison {
  name: string;
  mine: string;
  theirs: string;
  target?: number;
}

function ratio(times: Times, { name, mine, theirs, target }: Comparison): BenchRow {
  const note = `${middle(times, mine).toFixed(0)} ms against ${middle(times, theirs).toFixed(0)} ms`;
  const value = middle(times, mine) / middle(times, theirs);
  return { name, value, unit: '×', note, ...(target === undefined ? {} : { target }) };
}

/**
 * Rounds of one of ours between the machine's limit, and its peers in one of them.
 * @param title of the row that judges ours by the limit
 */
async function judged(
  directory: string,
  title: string,
  work: Work,
  { mine, others, peers }: { mine: BenchCase; others: BenchCase[]; peers: Comparison[] },
): Promise<BenchRow[]> {
  const { name } = mine;
  // what the limit writes is as large as what this leaves
  await mine.prepare?.();
  await mine.run();
  const beside = others.map(other => ({ ...other, once: true }));
  const times = await alternateWithin({ name, directory, work }, rounds, [...beside, mine]);
  const limitMs = limitOf(times, name);
  const compared = peers.map(peer =>
    judgedWhereRoom(ratio(times, peer), limitMs, middle(times, peer.theirs)),
  );
  return [limitRow(title, times, name), ...compared];
}

async function plainRows(directory: string): Promise<BenchRow[]> {
  const cases = casesIn(directory);
  const at = (name: string) => join(directory, name);
  const writing = { read: at('disk.qcow2'), written: () => allocated(at('ours.tar')) };
  const write = await judged(directory, "write .tar / the disk's limit", writing, {
    mine: cases.ours!,
    others: [cases.cp!, cases.tar!],
    peers: [
      { name: 'write .tar / cp', mine: 'ours', theirs: 'cp', target: 0.75 },
      { name: 'write .tar / GNU tar', mine: 'ours', theirs: 'tar', target: 0.6 },
    ],
  });
  const reading = { read: at('ours.tar'), written: () => allocated(at('out.img')) };
  const restore = await judged(directory, "restore .tar / the disk's limit", reading, {
    mine: cases.oursExtract!,
    others: [cases.untar!],
    peers: [{ name: 'restore .tar / tar -xf', mine: 'ours x', theirs: 'tar -x', target: 0.5 }],
  });
  for (const name of ['gnu.tar', 'ours.tar', 'cp.img', 'unpacked', 'out.img'])
    rmSync(at(name), { recursive: true, force: true });
  return [...write, ...restore];
}

async function zstdRows(directory: string): Promise<BenchRow[]> {
  const cases = casesIn(directory);
  const at = (name: string) => join(directory, name);
  const image = at('disk.qcow2');
  const writing = { read: image, written: () => allocated(at('ours.tar.zst')), cores: { compress: image } };
  const write = await judged(directory, 'write .tar.zst / the limit of disk and cores', writing, {
    mine: cases.oursZstd!,
    others: [cases.tarZstd!, cases.hashed!],
    peers: [
      { name: 'write .tar.zst / tar -I "zstd -T0 -3"', mine: 'ours zstd', theirs: 'tar zstd', target: 0.8 },
      { name: '.tar.zst with SHA-256 / without', mine: 'ours zstd hash', theirs: 'ours zstd' },
    ],
  });
  const size = (name: string) => statSync(at(name)).size;
  const growth = (size('ours.tar.zst') / size('gnu.tar.zst') - 1) * 100;
  const archive = at('ours.tar.zst');
  const reading = { read: archive, written: () => allocated(at('out.img')), cores: { decompress: archive } };
  const restore = await judged(directory, 'restore .tar.zst / the limit of disk and cores', reading, {
    mine: cases.oursExtractZstd!,
    others: [cases.untarZstd!],
    peers: [
      {
        name: 'restore .tar.zst / tar --zstd -xf',
        mine: 'ours zstd x',
        theirs: 'tar --zstd -x',
        target: 0.5,
      },
    ],
  });
  const list = await alternate(rounds, [cases.list!]);
  return [
    ...write,
    { name: '.tar.zst size over single-stream zstd -3', value: growth, unit: '%', target: 0.7 },
    ...restore,
    {
      name: 'open, member list and XML of the .tar.zst',
      value: middle(list, 'list'),
      unit: 'ms',
      target: 30,
    },
  ];
}

/** The same of twice that image on XFS with reflink, in a loop mount; empty where that cannot be made. */
async function onXfs(source: string, directory: string): Promise<BenchRow[]> {
  const disk = join(root, 'xfs.img');
  try {
    await command('truncate', ['-s', String(XFS_BYTES * 3 + 1024 * MiB), disk]);
    await command('mkfs.xfs', ['-q', '-f', '-m', 'reflink=1', disk]);
    await command('mount', ['-o', 'loop', disk, directory]);
  } catch (error) {
    console.log(`no XFS loop mount here, left out: ${(error as Error).message}`);
    rmSync(disk, { force: true });
    return [];
  }
  try {
    const image = join(directory, 'disk.qcow2');
    for (let at = 0; at < XFS_BYTES; at += imageBytes)
      await command('dd', [
        `if=${source}`,
        `of=${image}`,
        'bs=4M',
        `seek=${at}`,
        'oflag=seek_bytes',
        'conv=fsync',
      ]);
    const cases = casesIn(directory);
    const times = await alternate(rounds, [{ ...cases.tar!, once: true }, cases.ours!]);
    const gain = middle(times, 'tar') / middle(times, 'ours');
    const note = `${middle(times, 'ours').toFixed(0)} ms against ${middle(times, 'tar').toFixed(0)} ms`;
    return [
      {
        name: 'reflink .tar on XFS, faster than GNU tar by',
        value: gain,
        unit: '×',
        target: 50,
        sense: 'at least',
        note,
      },
    ];
  } finally {
    await command('umount', [directory]);
    rmSync(disk, { force: true });
  }
}

/** One small run that counts nowhere: like the agent's, the code of the runs is compiled and cached before. */
async function warmUp(directory: string): Promise<void> {
  const [source, target] = [join(directory, 'small'), join(directory, 'small.tar.zst')];
  writeFileSync(source, Buffer.alloc(MiB, 1));
  await measuredNode(runner, ['write', source, target, 'zstd']);
  for (const path of [source, target]) rmSync(path);
}

async function main(): Promise<boolean> {
  const here = join(root, 'plain');
  const xfs = join(root, 'xfs');
  // of a run that was killed
  await command('umount', [xfs]).catch(() => {});
  rmSync(root, { recursive: true, force: true });
  for (const directory of [here, xfs]) mkdirSync(directory, { recursive: true });
  try {
    await warmUp(here);
    writeImage(join(here, 'disk.qcow2'), imageBytes);
    const rows: BenchRow[] = [];
    if (wanted('plain')) rows.push(...(await plainRows(here)));
    if (wanted('zstd')) rows.push(...(await zstdRows(here)));
    if (wanted('xfs')) rows.push(...(await onXfs(join(here, 'disk.qcow2'), xfs)));
    const peak = Math.max(...peaks) / MiB;
    if (peaks.length > 0)
      rows.push({ name: 'peak memory of any of our runs', value: peak, unit: 'MiB', target: 200 });
    if (wanted(ON_REQUEST)) rows.push(await libzstdRow(join(here, 'disk.qcow2'), rounds));
    const title = `archive: ${imageBytes / MiB} MiB image, median of ${rounds} alternating rounds, peers in one of them, ${warm ? 'warm' : 'cold'} cache, fdatasync included`;
    return printTable(title, rows);
  } finally {
    rmSync(root, { recursive: true, force: true });
  }
}

const met = await main();
process.exitCode = met || quick ? 0 : 1;
