/**
 * An OVA made a backup, by the agent and by tar, qemu-img and zstd:
 * `node test/bench/import.ts [--quick] [--rounds N] [--size MiB]`.
 *
 * Two disks as stream-optimised VMDK, the same file system, alternating rounds; every time ends with the data on the disk. The agent's time
 * is from the start call to the operation's end. The tools unpack the OVA, convert one disk after the other, and pack the images where an
 * archive is what is wanted. Extra space is what is taken at the most on the way besides what remains.
 */
import { copyFileSync, lstatSync, mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { cpus, descriptor, disk, memory, nic, scsi, system, VMDK } from '../../agent/src/ovf/test-kit.ts';
import { AgentAlone, fileOf } from '../e2e/agent-alone.ts';
import { writeImage } from './archive-data.ts';
import {
  alternate,
  type BenchRow,
  benchOptions,
  command,
  median,
  peakMiB,
  printTable,
  quietDisks,
} from './lib.ts';

const { quick, rounds, sizeMiB, dataMiB } = benchOptions(2);
const imageBytes = (sizeMiB ?? dataMiB({ usualMiB: 320, quickMiB: 128 })) * MiB;
const NAMES = ['one.vmdk', 'two.vmdk'] as const;
const OVA = 'bench.ova';

const OVF = descriptor({
  files: NAMES.map((name, index) => `<File ovf:id="f${index}" ovf:href="${name}"/>`).join(''),
  disks: NAMES.map(
    (_, index) =>
      `<Disk ovf:diskId="d${index}" ovf:fileRef="f${index}" ovf:capacity="${imageBytes}" ovf:format="${VMDK}"/>`,
  ).join(''),
  content: system({
    name: 'bench',
    items:
      cpus(1) +
      memory(256) +
      scsi(3, 'VirtualSCSI') +
      NAMES.map((_, index) => disk(4 + index, 3, index, `ovf:/disk/d${index}`)).join('') +
      nic(9, 'E1000'),
  }),
});

/** The OVA in the pool's backups. @returns bytes of it */
async function makeOva(backups: string, scratch: string): Promise<number> {
  const at = (name: string) => join(scratch, name);
  const options = ['-f', 'raw', '-O', 'vmdk', '-o', 'subformat=streamOptimized'];
  const [first, second] = NAMES.map(at) as [string, string];
  writeImage(at('raw'), imageBytes);
  await command('qemu-img', ['convert', ...options, at('raw'), first]);
  copyFileSync(first, second);
  writeFileSync(at('bench.ovf'), OVF);
  await command('tar', ['--format=ustar', '-C', scratch, '-cf', join(backups, OVA), 'bench.ovf', ...NAMES]);
  for (const name of ['raw', 'bench.ovf', ...NAMES]) rmSync(at(name));
  return statSync(join(backups, OVA)).size;
}

/** @returns names of what remains */
async function byTools(ova: string, scratch: string, packing: Packing): Promise<string[]> {
  await command('tar', ['-C', scratch, '-xf', ova]);
  const images = NAMES.map(name => name.replace('vmdk', 'qcow2'));
  for (const [index, name] of NAMES.entries())
    await command('qemu-img', ['convert', '-f', 'vmdk', '-O', 'qcow2', name, images[index]!], scratch);
  if (packing === null) {
    for (const image of images) await command('sync', ['-d', join(scratch, image)]);
    return images;
  }
  const target = packing === 'tar' ? 'made.tar' : 'made.tar.zst';
  const packed = packing === 'tar' ? [] : ['-I', packing];
  await command('tar', [...packed, '-cf', target, 'bench.ovf', ...images], scratch);
  await command('sync', ['-d', join(scratch, target)]);
  return [target];
}

/** Bytes that the files of the directories take. */
function takenBytes(...directories: string[]): number {
  const paths = directories.flatMap(path =>
    readdirSync(path, { recursive: true }).map(name => join(path, String(name))),
  );
  return paths.reduce(
    (sum, path) => sum + (lstatSync(path, { throwIfNoEntry: false })?.blocks ?? 0) * 512,
    0,
  );
}

const LOOK_MS = 50;

/** @returns what a work gives, and how much the directories had at the most while it went on */
async function watched<T>(
  directories: string[],
  work: () => Promise<T>,
): Promise<{ value: T; mostBytes: number }> {
  let mostBytes = 0;
  const look = () => {
    mostBytes = Math.max(mostBytes, takenBytes(...directories));
  };
  const timer = setInterval(look, LOOK_MS);
  try {
    const value = await work();
    look();
    return { value, mostBytes };
  } finally {
    clearInterval(timer);
  }
}

/** @returns the path of the archive */
async function byAgent(lab: AgentAlone, compress: boolean): Promise<string> {
  const id = newId();
  const file = { poolId: lab.world.node.pool(1).uuid, filename: OVA };
  await lab.backups.convert({ operationId: id, fileId: newId(), file, compress });
  const operation = await lab.ended(id, 600_000);
  if (operation.state !== OperationState.SUCCEEDED)
    throw new Error(operation.error?.detail ?? String(operation.state));
  return fileOf(operation).path;
}

interface Comparison {
  mine: string;
  theirs: string;
  packing: Packing;
  target: number;
}

/** How the tools pack the images: a program that compresses, 'tar' alone; null: they stay images. */
type Packing = string | null;

const COMPARISONS: Comparison[] = [
  { mine: '.tar', theirs: 'tar -xf, qemu-img', packing: null, target: 0.6 },
  { mine: '.tar', theirs: 'tar -xf, qemu-img, tar -cf', packing: 'tar', target: 0.6 },
  { mine: '.tar.zst', theirs: 'tar -xf, qemu-img, tar | zstd', packing: 'zstd -3', target: 0.6 },
  { mine: '.tar.zst', theirs: 'tar -xf, qemu-img, tar | zstd -T0', packing: 'zstd -T0 -3', target: 0.8 },
];
const EXTRA_SPACE_TARGET = 0.5;

async function measure(lab: AgentAlone): Promise<{ rows: BenchRow[]; ovaBytes: number }> {
  const backups = join(lab.world.node.pool(1).path, 'backups');
  const scratch = join(lab.world.node.pool(1).path, 'scratch');
  for (const directory of [backups, scratch]) mkdirSync(directory, { recursive: true });
  const ovaBytes = await makeOva(backups, scratch);
  let made = '';
  const prepare = async () => {
    if (made !== '') rmSync(made);
    made = '';
    rmSync(scratch, { recursive: true, force: true });
    mkdirSync(scratch);
    await command('sync', []);
    await quietDisks();
  };
  const extraBytes = new Map<string, number>();
  const tools = COMPARISONS.map(({ theirs, packing }) => ({
    name: theirs,
    once: true,
    prepare,
    run: async () => {
      const work = () => byTools(join(backups, OVA), scratch, packing);
      const { value: left, mostBytes } = await watched([scratch], work);
      const leftBytes = left.reduce((sum, name) => sum + lstatSync(join(scratch, name)).blocks * 512, 0);
      extraBytes.set(theirs, mostBytes - leftBytes);
      return undefined;
    },
  }));
  const ours = [false, true].map(compress => ({
    name: compress ? '.tar.zst' : '.tar',
    prepare,
    run: async () => {
      const before = takenBytes(backups);
      const { value, mostBytes } = await watched([backups], () => byAgent(lab, compress));
      made = value;
      extraBytes.set(compress ? '.tar.zst' : '.tar', mostBytes - before - lstatSync(made).blocks * 512);
      return undefined;
    },
  }));
  const [plain, tar, ...packed] = tools;
  const times = await alternate(rounds, [plain!, ours[0]!, tar!, packed[0]!, ours[1]!, packed[1]!]);
  const rows = COMPARISONS.map(({ mine, theirs, target }): BenchRow => {
    const [own, other] = [median(times.get(mine)!), median(times.get(theirs)!)];
    const note = `${own.toFixed(0)} ms against ${other.toFixed(0)} ms`;
    return { name: `OVA to ${mine} / ${theirs}`, value: own / other, unit: '×', target, note };
  });
  for (const { mine, theirs } of COMPARISONS.slice(0, 2)) {
    const [own, other] = [extraBytes.get(mine)! / MiB, extraBytes.get(theirs)! / MiB];
    rows.push({
      name: `extra space of ${mine} / ${theirs}`,
      ...{ value: own / other, unit: '×', target: EXTRA_SPACE_TARGET },
      note: `${own.toFixed(0)} MiB against ${other.toFixed(0)} MiB`,
    });
  }
  rows.push({
    name: 'peak memory of the agent',
    value: peakMiB(lab.agent.daemon.pid!),
    unit: 'MiB',
    target: 200,
  });
  return { rows, ovaBytes };
}

async function main(): Promise<boolean> {
  const lab = await AgentAlone.start();
  try {
    const { rows, ovaBytes } = await measure(lab);
    const title = `an OVA of ${Math.round(ovaBytes / MiB)} MiB with two disks of ${imageBytes / MiB} MiB, median of ${rounds} alternating rounds, the tools in one of them, data on the disk`;
    return printTable(title, rows);
  } finally {
    await lab.stop();
  }
}

const met = await main();
process.exitCode = met || quick ? 0 : 1;
