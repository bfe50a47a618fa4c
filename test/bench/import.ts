/**
 * An OVA made a backup, by the agent and by tar, qemu-img and zstd:
 * `node test/bench/import.ts [--quick] [--rounds N] [--size MiB]`.
 *
 * Two disks as stream-optimised VMDK, the same file system, alternating rounds; every time ends with the data on the disk. The agent's time
 * is from the start call to the operation's end. The tools unpack the OVA, convert one disk after the other, and pack the images.
 */
import { mkdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
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

const { quick, rounds, sizeMiB } = benchOptions();
const imageBytes = (sizeMiB ?? (quick ? 128 : 768)) * MiB;
const NAMES = ['one.vmdk', 'two.vmdk'];
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
  for (const name of NAMES) {
    writeImage(at('raw'), imageBytes);
    await command('qemu-img', ['convert', ...options, at('raw'), at(name)]);
  }
  writeFileSync(at('bench.ovf'), OVF);
  await command('tar', ['--format=ustar', '-C', scratch, '-cf', join(backups, OVA), 'bench.ovf', ...NAMES]);
  for (const name of ['raw', 'bench.ovf', ...NAMES]) rmSync(at(name));
  return statSync(join(backups, OVA)).size;
}

async function byTools(ova: string, scratch: string, zstd: string | null): Promise<void> {
  await command('tar', ['-C', scratch, '-xf', ova]);
  const images = NAMES.map(name => name.replace('vmdk', 'qcow2'));
  for (const [index, name] of NAMES.entries())
    await command('qemu-img', ['convert', '-f', 'vmdk', '-O', 'qcow2', name, images[index]!], scratch);
  const target = zstd === null ? 'made.tar' : 'made.tar.zst';
  const packed = zstd === null ? [] : ['-I', zstd];
  await command('tar', [...packed, '-cf', target, 'bench.ovf', ...images], scratch);
  await command('sync', ['-d', join(scratch, target)]);
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
  /** How the tools compress; null: they do not. */
  zstd: string | null;
  target: number;
}

const COMPARISONS: Comparison[] = [
  { mine: '.tar', theirs: 'tar -xf, qemu-img, tar -cf', zstd: null, target: 0.6 },
  { mine: '.tar.zst', theirs: 'tar -xf, qemu-img, tar | zstd', zstd: 'zstd -3', target: 0.6 },
  { mine: '.tar.zst', theirs: 'tar -xf, qemu-img, tar | zstd -T0', zstd: 'zstd -T0 -3', target: 0.8 },
];

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
  const tools = COMPARISONS.map(({ theirs, zstd }) => ({
    name: theirs,
    prepare,
    run: async () => {
      await byTools(join(backups, OVA), scratch, zstd);
      return undefined;
    },
  }));
  const ours = [false, true].map(compress => ({
    name: compress ? '.tar.zst' : '.tar',
    prepare,
    run: async () => {
      made = await byAgent(lab, compress);
      return undefined;
    },
  }));
  const times = await alternate(rounds, [tools[0]!, ours[0]!, tools[1]!, ours[1]!, tools[2]!]);
  const rows = COMPARISONS.map(({ mine, theirs, target }): BenchRow => {
    const [own, other] = [median(times.get(mine)!), median(times.get(theirs)!)];
    const note = `${own.toFixed(0)} ms against ${other.toFixed(0)} ms`;
    return { name: `OVA to ${mine} / ${theirs}`, value: own / other, unit: '×', target, note };
  });
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
    const title = `an OVA of ${Math.round(ovaBytes / MiB)} MiB with two disks of ${imageBytes / MiB} MiB, median of ${rounds} alternating rounds, data on the disk`;
    return printTable(title, rows);
  } finally {
    await lab.stop();
  }
}

const met = await main();
process.exitCode = met || quick ? 0 : 1;
