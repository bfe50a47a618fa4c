/**
 * A full backup of a running VM against what disk and cores can do, and by virtnbdbackup:
 * `node test/bench/backup.ts [--quick] [--rounds N]`.
 *
 * The same guest, the same file system, in alternating rounds; every time ends with the data on the disk. The agent's
 * time is from the start call to the operation's end, so it holds the saved state, the copy, the publication and the
 * merge of the saved state.
 */

import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { MiB } from '@virtkeep/shared/units';
import { AgentAlone, fileOf } from '../e2e/agent-alone.ts';
import type { Guest } from '../lab/guest.ts';
import { writeQcow2 } from './archive-data.ts';
import { type BenchRow, benchOptions, command, median, peakMiB, printTable } from './lib.ts';
import { allocated, alternateWithin, judgedWhereRoom, limitOf, limitRow } from './limit.ts';

const { rounds, dataMiB } = benchOptions(2);
/** As large as it takes for the saved state and its merge, which do not grow with it, to weigh little. */
const imageBytes = dataMiB({ usualMiB: 2048, quickMiB: 256 }) * MiB;

const DISK = 'bench.qcow2';
const FORMS = ['.tar', '.tar.zst'] as const;
type Form = (typeof FORMS)[number];

/** A running guest whose disk holds what system disks hold. */
async function startGuest(lab: AgentAlone): Promise<Guest> {
  const { world } = lab;
  const disk = join(world.node.pool(0).path, DISK);
  await writeQcow2(disk, imageBytes);
  const guest = await world.defineTiny({ name: 'bench', disks: [{ path: disk, format: 'qcow2' }] });
  await guest.start();
  return guest.waitForAgent();
}

function emptied(directory: string): void {
  rmSync(directory, { recursive: true, force: true });
  mkdirSync(directory, { recursive: true });
}

/** One full backup by the agent. @returns the path of the archive */
async function byAgent(lab: AgentAlone, guest: Guest, compress: boolean): Promise<string> {
  const operation = await lab.ended(await lab.startBackup(guest, { compress }), 600_000);
  if (operation.state !== OperationState.SUCCEEDED)
    throw new Error(operation.error?.detail ?? operation.state);
  return fileOf(operation).path;
}

async function byPeer(lab: AgentAlone, guest: Guest, target: string, compress: boolean): Promise<void> {
  const options = ['-d', guest.name, '-l', 'copy', '-n', '-o', target, ...(compress ? ['-z'] : [])];
  await lab.world.node.runInside(['virtnbdbackup', ...options], { timeoutMs: 600_000 });
  await command('sync', ['-f', target]);
}

async function measure(lab: AgentAlone): Promise<BenchRow[]> {
  const guest = await startGuest(lab);
  const target = join(lab.world.dir, 'peer');
  const backups = join(lab.world.node.pool(1).path, 'backups');
  const prepare = async () => {
    emptied(target);
    emptied(backups);
    await command('sync', []);
  };
  const timed = (work: () => Promise<unknown>) => async () => {
    const start = performance.now();
    await work();
    return performance.now() - start;
  };
  const disk = join(lab.world.node.pool(0).path, DISK);
  /** Bytes of the archive, by its form. */
  const written = new Map<Form, number>();
  const backUp = (form: Form) => async () => {
    const start = performance.now();
    const path = await byAgent(lab, guest, form === '.tar.zst');
    const elapsed = performance.now() - start;
    written.set(form, allocated(path));
    return elapsed;
  };
  for (const form of FORMS) await backUp(form)();
  const work = (form: Form) => ({
    read: disk,
    written: () => written.get(form)!,
    ...(form === '.tar.zst' && { cores: { compress: disk } }),
  });
  const times = new Map<string, number[]>();
  for (const form of FORMS) {
    const limited = { name: form, directory: lab.world.node.pool(1).path, work: work(form) };
    const peer = form === '.tar' ? 'virtnbdbackup' : 'virtnbdbackup -z';
    const cases = [
      { name: peer, once: true, prepare, run: timed(() => byPeer(lab, guest, target, form === '.tar.zst')) },
      { name: form, prepare, run: backUp(form) },
    ];
    for (const [name, found] of await alternateWithin(limited, rounds, cases)) times.set(name, found);
  }
  const against = (mine: Form, theirs: string, target?: number): BenchRow => {
    const [own, other] = [median(times.get(mine)!), median(times.get(theirs)!)];
    const row = {
      name: `${mine} faster than ${theirs} by`,
      value: other / own,
      unit: '×',
      sense: 'at least' as const,
      note: `${own.toFixed(0)} ms against ${other.toFixed(0)} ms`,
      ...(target === undefined ? {} : { target }),
    };
    return judgedWhereRoom(row, limitOf(times, mine), other);
  };
  return [
    limitRow(".tar / the disk's limit", times, '.tar'),
    limitRow('.tar.zst / the limit of disk and cores', times, '.tar.zst'),
    against('.tar', 'virtnbdbackup', 5),
    against('.tar.zst', 'virtnbdbackup', 2),
    against('.tar.zst', 'virtnbdbackup -z'),
    { name: 'peak memory of the agent', value: peakMiB(lab.agent.daemon.pid!), unit: 'MiB', target: 200 },
  ];
}

async function main(): Promise<boolean> {
  const lab = await AgentAlone.start();
  try {
    const rows = await measure(lab);
    return printTable(
      `full backup of a running VM, ${imageBytes / MiB} MiB of data, median of ${rounds} alternating rounds, the peer in one of them, data on the disk`,
      rows,
    );
  } finally {
    await lab.stop();
  }
}

process.exitCode = (await main()) ? 0 : 1;
