/**
 * Attaching and detaching a disk of one running VM to another, by the disk's size: `node test/bench/lending.ts [--rounds N]`.
 *
 * Each round attaches the disk, which makes the owner's state, and detaches it, which takes the state away again; the owner
 * writes meanwhile. The guests cooperate.
 */
import { join } from 'node:path';
import { newId } from '@virtkeep/shared/ids';
import { AgentAlone } from '../e2e/agent-alone.ts';
import type { Guest } from '../lab/guest.ts';
import { run } from '../lab/run.ts';
import { changeDisk } from './guest-change.ts';
import { type BenchRow, benchOptions, median, printTable } from './lib.ts';

const { rounds, quick } = benchOptions();
const SIZES_GIB = [1, 1024];
const LIMIT_MS = 1000;
const WRITTEN_MIB = quick ? 4 : 64;

/** @returns ms from the call to the operation's end, as a client hears it */
async function timed(lab: AgentAlone, start: (operationId: string) => Promise<unknown>): Promise<number> {
  const id = newId();
  const begin = performance.now();
  await start(id);
  await lab.heard(id);
  return performance.now() - begin;
}

async function startGuest(lab: AgentAlone, sizeGiB: number): Promise<Guest> {
  const path = join(lab.world.node.pool(0).path, `${newId()}.qcow2`);
  await run(['qemu-img', 'create', '-q', '-f', 'qcow2', path, `${sizeGiB}G`], {});
  const guest = await lab.world.defineTiny({ disks: [{ path, format: 'qcow2' }] });
  return (await guest.start()).waitForAgent();
}

async function rowsOf(lab: AgentAlone, borrower: Guest, sizeGiB: number): Promise<BenchRow[]> {
  const owner = await startGuest(lab, sizeGiB);
  const { disks } = await lab.domains.get({ id: await owner.uuid() });
  const [diskId, domainId] = [disks[0]!.id, await borrower.uuid()];
  const write = () =>
    changeDisk(owner, { device: '/dev/vda', diskMiB: 1024 * sizeGiB, changeMiB: WRITTEN_MIB });
  const times: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round += 1) {
    await write();
    times[0].push(await timed(lab, operationId => lab.disks.attach({ operationId, domainId, diskId })));
    times[1].push(await timed(lab, operationId => lab.disks.detach({ operationId, domainId, diskId })));
  }
  await owner.destroy();
  const row = (name: string, values: number[]): BenchRow => ({
    name: `${name} a disk of ${sizeGiB} GiB`,
    value: median(values),
    unit: 'ms',
    target: LIMIT_MS,
  });
  return [row('attach', times[0]), row('detach', times[1])];
}

async function main(): Promise<boolean> {
  const lab = await AgentAlone.start();
  try {
    const borrower = await startGuest(lab, 1);
    const rows: BenchRow[] = [];
    for (const size of SIZES_GIB) rows.push(...(await rowsOf(lab, borrower, size)));
    return printTable(`lending disks between running VMs, median of ${rounds} rounds`, rows);
  } finally {
    await lab.stop();
  }
}

process.exitCode = (await main()) ? 0 : 1;
