/**
 * Increments, restores and instant restores of a running VM, judged by what disk and cores can do, and beside virtnbdbackup and virtnbdrestore:
 * `node test/bench/increments.ts [--quick] [--rounds N]`.
 *
 * Three guests of the same disk, one for each form of ours and one for the peer, because each keeps marks of its own in the
 * VM and takes what changed since its own last one; all write the same amount before each increment. Every time ends with
 * the data on the disk. The CPU is that of the program and of the VM's QEMU process, which serves the peer's reads.
 */

import { randomBytes } from 'node:crypto';
import { appendFileSync, cpSync, mkdirSync, readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import { MiB } from '@virtkeep/shared/units';
import { AgentAlone } from '../e2e/agent-alone.ts';
import { Guest } from '../lab/guest.ts';
import { writeQcow2 } from './archive-data.ts';
import { CHANGE_MIB, changeDisk, QUICK_CHANGE_MIB } from './guest-change.ts';
import {
  alternate,
  type BenchCase,
  type BenchRow,
  benchOptions,
  command,
  cpuMs,
  median,
  printTable,
  quietDisks,
} from './lib.ts';
import { allocated, alternateWithin, judgedWhereRoom, limitOf, limitRow, type Work } from './limit.ts';

const { quick, rounds, dataMiB } = benchOptions(2);
const imageBytes = dataMiB({ usualMiB: 640, quickMiB: 256 }) * MiB;
const changeMiB = quick ? QUICK_CHANGE_MIB : CHANGE_MIB;
const LONG_MS = 900_000;

/** The forms of archives. */
const FORMS = ['.tar', '.tar.zst'] as const;
type Form = (typeof FORMS)[number];

interface Bench {
  lab: AgentAlone;
  ours: Record<Form, Guest>;
  theirs: Guest;
  /** Per form the archive that grows. */
  archives: Map<Form, { id: string; filename: string }>;
  peer: string;
  cpu: Map<string, number[]>;
}

/** Guests that write into a disk of their own, on copies of one image. */
async function startGuests(lab: AgentAlone): Promise<[Guest, Guest, Guest]> {
  const { world } = lab;
  const image = join(world.dir, 'image.qcow2');
  await writeQcow2(image, imageBytes);
  const guests: Guest[] = [];
  for (const name of ['plain', 'compressed', 'theirs']) {
    const disk = join(world.node.pool(0).path, `${name}.qcow2`);
    cpSync(image, disk);
    const guest = await world.defineTiny({ name, disks: [{ path: disk, format: 'qcow2' }] });
    guests.push(await (await guest.start()).waitForAgent());
  }
  rmSync(image);
  return guests as [Guest, Guest, Guest];
}

async function succeeded(lab: AgentAlone, id: string) {
  const { resultJson } = await lab.heard(id);
  return JSON.parse(resultJson) as { file: { id: string; filename: string } };
}

async function begin(bench: Bench): Promise<void> {
  for (const form of FORMS) {
    const request = { canBeIncremental: true, compress: form === '.tar.zst' };
    const started = await bench.lab.startBackup(bench.ours[form], request);
    bench.archives.set(form, (await succeeded(bench.lab, started)).file);
  }
  await virtnbdbackup(bench, 'full');
}

async function increment(bench: Bench, form: Form): Promise<void> {
  const { id, filename } = bench.archives.get(form)!;
  const extend = { poolId: bench.lab.world.node.pool(1).uuid, filename };
  const request = { fileId: newId(), extend, extendFileId: id, holdStates: true };
  const started = await bench.lab.startBackup(bench.ours[form], request);
  await succeeded(bench.lab, started);
}

async function virtnbdbackup(bench: Bench, level: 'full' | 'inc'): Promise<number> {
  const script = 'TIMEFORMAT="cpu %U %S"; time virtnbdbackup "$@"';
  const options = ['-d', bench.theirs.name, '-l', level, '-o', bench.peer];
  const { stderr } = await bench.lab.world.node.runInside(['bash', '-c', script, 'bash', ...options], {
    timeoutMs: LONG_MS,
  });
  await command('sync', ['-f', bench.peer]);
  const [, user, system] = stderr.match(/cpu ([\d.]+) ([\d.]+)/)!;
  return (Number(user) + Number(system)) * 1000;
}

/** Runs the work and notes the CPU it and the guest's QEMU took. @returns ms of the clock */
async function timed(
  bench: Bench,
  name: string,
  guest: Guest,
  work: () => Promise<number | undefined>,
): Promise<number> {
  const pids = [guest.qemuPid()!, bench.lab.agent.daemon.pid!];
  const before = pids.map(cpuMs);
  const start = performance.now();
  const own = await work();
  const elapsed = performance.now() - start;
  const [qemu, agent] = pids.map((pid, index) => cpuMs(pid) - before[index]!) as [number, number];
  bench.cpu.set(name, [...(bench.cpu.get(name) ?? []), qemu + (own ?? agent)]);
  return elapsed;
}

async function incrementRows(bench: Bench): Promise<BenchRow[]> {
  const quiet = async (guest: Guest) => {
    await changeDisk(guest, { device: '/dev/vda', diskMiB: imageBytes / MiB, changeMiB });
    await command('sync', []);
    await quietDisks();
  };
  const mine = (form: Form) => ({
    name: form,
    prepare: () => quiet(bench.ours[form]),
    run: () =>
      timed(bench, form, bench.ours[form], async () => {
        await increment(bench, form);
        return undefined;
      }),
  });
  const theirs = {
    name: 'virtnbdbackup',
    prepare: () => quiet(bench.theirs),
    run: () => timed(bench, 'virtnbdbackup', bench.theirs, () => virtnbdbackup(bench, 'inc')),
  };
  const read = changeFile(bench);
  const work = (form: Form): Work => ({
    read,
    written: () => changeMiB * MiB,
    ...(form === '.tar.zst' && { cores: { compress: read } }),
  });
  const times = await withLimits(
    bench,
    theirs,
    FORMS.map(form => ({ mine: mine(form), work: work(form) })),
  );
  rmSync(read);
  return FORMS.flatMap(form => [
    limitRow(`increment, ${form} / the limit of the machine`, times, form),
    judgedWhereRoom(
      faster(`increment, ${form} faster than virtnbdbackup by`, times, [form, 'virtnbdbackup'], 4),
      limitOf(times, form),
      median(times.get('virtnbdbackup')!),
    ),
    {
      name: `increment, CPU of ${form} / virtnbdbackup`,
      value: median(bench.cpu.get(form)!) / median(bench.cpu.get('virtnbdbackup')!),
      unit: '×',
      target: 1,
    },
  ]);
}

/** As large and as random as what a guest changes, on the disk of its layers. */
function changeFile(bench: Bench): string {
  const path = join(bench.lab.world.node.pool(0).path, 'as-changed');
  for (let count = 0; count < changeMiB; count += 1) appendFileSync(path, randomBytes(MiB));
  return path;
}

/** Rounds of each of ours between measurements of what the machine can do; the peer in one of them. */
async function withLimits(
  bench: Bench,
  peer: BenchCase,
  ours: readonly { mine: BenchCase; work: Work }[],
): Promise<Map<string, number[]>> {
  const { path: directory } = bench.lab.world.node.pool(1);
  const times = await alternate(1, [peer]);
  for (const { mine, work } of ours) {
    const limited = { name: mine.name, directory, work };
    for (const [name, found] of await alternateWithin(limited, rounds, [mine])) times.set(name, found);
  }
  return times;
}

function faster(
  name: string,
  times: Map<string, number[]>,
  [mine, theirs]: [mine: string, theirs: string],
  target?: number,
): BenchRow {
  const [own, other] = [median(times.get(mine)!), median(times.get(theirs)!)];
  return {
    name,
    value: other / own,
    unit: '×',
    sense: 'at least',
    note: `${own.toFixed(0)} ms against ${other.toFixed(0)} ms`,
    ...(target === undefined ? {} : { target }),
  };
}

/** Takes away restored domains and everything else that was not in the pool before. */
async function clear(bench: Bench, keep: ReadonlySet<string>): Promise<void> {
  const { node } = bench.lab.world;
  for (const name of (await node.virsh('list', '--all', '--name')).split('\n').map(line => line.trim())) {
    if (!name.startsWith('restored')) continue;
    await node.virsh('destroy', name).catch(() => {});
    await node.virsh('undefine', name, '--snapshots-metadata', '--nvram');
  }
  const { path } = node.pool(1);
  for (const file of readdirSync(path))
    if (!keep.has(file)) rmSync(join(path, file), { recursive: true, force: true });
  await command('sync', []);
  await quietDisks();
}

async function restore(bench: Bench, form: Form, request: object): Promise<void> {
  const { filename } = bench.archives.get(form)!;
  const poolId = bench.lab.world.node.pool(1).uuid;
  await succeeded(
    bench.lab,
    await bench.lab.startRestore(filename, { name: 'restored', poolId, ...request }),
  );
}

async function restoreRows(bench: Bench): Promise<BenchRow[]> {
  const { node } = bench.lab.world;
  const keep = new Set(readdirSync(node.pool(1).path));
  const target = join(node.pool(1).path, 'peer-restore');
  const prepare = () => clear(bench, keep);
  const answered = async (request: object) => {
    const started = bench.lab.startRestore(bench.archives.get('.tar')!.filename, {
      name: 'restored',
      poolId: node.pool(1).uuid,
      startOn: true,
      ...request,
    });
    const start = performance.now();
    const id = await started;
    const guest = new Guest(node, 'restored');
    while (!(await guest.agent('guest-ping', undefined, 3).then(Boolean, () => false)));
    const elapsed = performance.now() - start;
    await succeeded(bench.lab, id);
    return elapsed;
  };
  const pathOf = (form: Form) => join(node.pool(1).path, 'backups', bench.archives.get(form)!.filename);
  const work = (form: Form): Work => ({
    read: pathOf(form),
    written: () => allocated(pathOf('.tar')),
    ...(form === '.tar.zst' && { cores: { decompress: pathOf(form) } }),
  });
  const theirs = {
    name: 'virtnbdrestore',
    prepare,
    run: async () => {
      mkdirSync(target);
      await node.runInside(['virtnbdrestore', '-i', bench.peer, '-o', target], { timeoutMs: LONG_MS });
      await command('sync', ['-f', target]);
      return undefined;
    },
  };
  const mine = (form: Form) => ({
    name: `restore ${form}`,
    prepare,
    run: () => restore(bench, form, {}).then(() => undefined),
  });
  const times = await withLimits(
    bench,
    theirs,
    FORMS.map(form => ({ mine: mine(form), work: work(form) })),
  );
  const pings = [
    { name: 'full, to the ping', prepare, run: () => answered({ flatten: true }) },
    { name: 'instant, to the ping', prepare, run: () => answered({ instant: true }) },
  ];
  for (const [name, found] of await alternate(1, pings)) times.set(name, found);
  await prepare();
  return [
    ...FORMS.flatMap(form => {
      const name = `restore ${form}`;
      const title = `full restore, ${form} faster than virtnbdrestore by`;
      const row = faster(title, times, [name, 'virtnbdrestore'], 3);
      return [
        limitRow(`full restore, ${form} / the limit of the machine`, times, name),
        judgedWhereRoom(row, limitOf(times, name), median(times.get('virtnbdrestore')!)),
      ];
    }),
    faster('instant restore, call to guest-ping sooner by', times, [
      'instant, to the ping',
      'full, to the ping',
    ]),
  ];
}

async function main(): Promise<boolean> {
  const lab = await AgentAlone.start();
  try {
    const [plain, compressed, theirs] = await startGuests(lab);
    const bench: Bench = {
      lab,
      ours: { '.tar': plain, '.tar.zst': compressed },
      theirs,
      archives: new Map(),
      peer: join(lab.world.dir, 'peer'),
      cpu: new Map(),
    };
    mkdirSync(bench.peer);
    await begin(bench);
    const rows = [...(await incrementRows(bench)), ...(await restoreRows(bench))];
    const title = `increments of ${changeMiB} MiB and restores, VM of ${imageBytes / MiB} MiB, median of ${rounds} rounds, the peer in one`;
    return printTable(title, rows);
  } finally {
    await lab.stop();
  }
}

process.exitCode = (await main()) ? 0 : 1;
