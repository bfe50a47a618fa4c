/**
 * One node with 500 VMs and 20,000 backup files: `node test/bench/one-node.ts [--quick]`.
 *
 * What a change of one VM costs the agent there against what it costs on another node of ten VMs and no files at the same time; what it does
 * by itself, which is to look at everything every half minute; how long a scan of all files takes; and the agent's memory.
 */
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import type { InventoryEvent } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { newId } from '@virtkeep/shared/ids';
import { AgentAlone, fileOf } from '../e2e/agent-alone.ts';
import { makeDataDisk } from '../lab/disks.ts';
import { guestXml } from '../lab/domain-xml.ts';
import { haltingRom } from '../lab/idle-guest.ts';
import { type BenchRow, benchOptions, command, cpuMs, median, peakMiB, printTable } from './lib.ts';

const { quick } = benchOptions();
const FEW_VMS = 10;
const VMS = quick ? 50 : 500;
const FILES = quick ? 2_000 : 20_000;
/** One of so many files is an archive, which is read; the others are definitions. */
const ARCHIVE_EVERY = 40;
const CHANGES = 120;
/** One look at everything. */
const IDLE_MS = 30_000;
/** After a change was told. */
const AFTER_MS = 50;
const MEMORY_MIB = 32;
/** Names that go to one call of virsh. */
const AT_ONCE = 100;

/** Processor time of a process so far, ms, finer than in ticks: of the threads that it has now. */
function threadsMs(pid: number): number {
  const directory = `/proc/${pid}/task`;
  const ns = readdirSync(directory).map(thread => {
    try {
      return Number(readFileSync(join(directory, thread, 'schedstat'), 'utf8').split(' ')[0]);
    } catch {
      return 0; // ended meanwhile
    }
  });
  return ns.reduce((sum, one) => sum + one, 0) / 1e6;
}

/** What the agent tells of its VMs: the memory of each, by name. */
class Told {
  readonly #memory = new Map<string, number>();
  #changed = Promise.withResolvers<void>();

  async follow(events: AsyncIterable<InventoryEvent>): Promise<void> {
    try {
      for await (const { event } of events) {
        if (event?.$case === 'full') for (const one of event.value.domains) this.#take(one);
        if (event?.$case === 'domainChanged') this.#take(event.value);
        const { resolve } = this.#changed;
        this.#changed = Promise.withResolvers();
        resolve();
      }
    } catch (error) {
      this.#changed.promise.catch(() => {});
      this.#changed.reject(error);
    }
  }

  #take({ name, memoryCount }: { name: string; memoryCount: bigint }): void {
    this.#memory.set(name, Number(memoryCount));
  }

  async until(isSo: (memory: ReadonlyMap<string, number>) => boolean): Promise<void> {
    while (!isSo(this.#memory)) await this.#changed.promise;
  }
}

class Node {
  readonly #lab: AgentAlone;
  readonly #told = new Told();
  readonly #uuids = new Map<string, string>();
  readonly #ended = new AbortController();
  readonly #following: Promise<void>;
  #image = '';
  #memoryMiB = MEMORY_MIB;

  private constructor(lab: AgentAlone) {
    this.#lab = lab;
    this.#following = this.#told.follow(lab.node.watchInventory({}, { signal: this.#ended.signal }));
  }

  static async start(): Promise<Node> {
    return new Node(await AgentAlone.start());
  }

  async stop(isLast = true): Promise<void> {
    this.#ended.abort();
    await this.#following;
    await this.#lab.stop(isLast);
  }

  /** Of the agent, MiB. */
  get peakMiB(): number {
    return peakMiB(this.#lab.agent.daemon.pid!);
  }

  /** Defines VMs until there are so many; each has a disk, none runs. */
  async growTo(count: number): Promise<void> {
    const { world } = this.#lab;
    const { path } = world.node.pool(0);
    if (this.#image === '') this.#image = await makeDataDisk(join(world.dir, 'one.qcow2'), { sizeMiB: 1 });
    const files: string[] = [];
    for (let number = this.#uuids.size; number < count; number += 1) {
      const name = `vm${number}`;
      this.#uuids.set(name, newId());
      copyFileSync(this.#image, join(path, `${name}.qcow2`));
      files.push(this.#write(name, MEMORY_MIB));
    }
    while (files.length > 0)
      await world.node.virsh(
        files
          .splice(0, AT_ONCE)
          .map(file => `define ${file}`)
          .join('; '),
      );
    await this.#told.until(memory => memory.size === count);
  }

  /** @returns the file of its definition */
  #write(name: string, memoryMiB: number): string {
    const { node } = this.#lab.world;
    const file = join(node.dir, `${name}.xml`);
    const disks = [{ path: join(node.pool(0).path, `${name}.qcow2`) }];
    const uuid = this.#uuids.get(name)!;
    const boot = { rom: haltingRom(node.dir) };
    writeFileSync(file, guestXml({ name, uuid, boot, disks, memoryMiB, agent: false }));
    return file;
  }

  /** @returns CPU of the agent of which nobody wants anything, ms a second */
  async idle(): Promise<number> {
    const pid = this.#lab.agent.daemon.pid!;
    const from = cpuMs(pid);
    await sleep(IDLE_MS);
    return (cpuMs(pid) - from) / (IDLE_MS / 1000);
  }

  /**
   * Changes VMs one after another, each when the one before was told, and what there is to do after it was told has been done.
   * @returns CPU of the agent for each, ms: the median, since it looks at everything during a few of them
   */
  async changes(): Promise<number> {
    const pid = this.#lab.agent.daemon.pid!;
    const names = [...this.#uuids.keys()];
    const each: number[] = [];
    for (let number = 0; number < CHANGES; number += 1) {
      const name = names[number % names.length]!;
      this.#memoryMiB += 1;
      const memoryMiB = this.#memoryMiB;
      const from = threadsMs(pid);
      await this.#lab.world.node.virsh('define', this.#write(name, memoryMiB));
      await this.#told.until(memory => memory.get(name) === memoryMiB);
      await sleep(AFTER_MS);
      each.push(threadsMs(pid) - from);
    }
    return median(each);
  }

  /** Fills the second pool with backups of the first VM, and definitions of it. */
  async fill(): Promise<void> {
    const operationId = newId();
    const poolId = this.#lab.world.node.pool(1).uuid;
    const domainId = this.#uuids.get('vm0')!;
    await this.#lab.backups.start({ operationId, domainId, fileId: newId(), poolId });
    const { path } = fileOf(await this.#lab.heard(operationId));
    const directory = join(this.#lab.world.node.pool(1).path, 'backups');
    mkdirSync(directory, { recursive: true });
    const xml = readFileSync(join(this.#lab.world.node.dir, 'vm0.xml'));
    for (let number = 1; number < FILES; number += 1)
      if (number % ARCHIVE_EVERY === 0) cpSync(path, join(directory, `copy${number}.tar`));
      else writeFileSync(join(directory, `vm${number}.xml`), xml);
    await command('sync', []);
  }

  /** Has the agent look at all files. @returns ms */
  async look(): Promise<number> {
    const operationId = newId();
    const from = performance.now();
    const { pools, world } = this.#lab;
    const poolId = world.node.pool(1).uuid;
    await pools.scan({ operationId, poolId, thorough: false, filesApart: true });
    await this.#lab.heard(operationId);
    let count = 0;
    for await (const { files } of pools.streamFiles({ poolId })) count += files.length;
    const elapsed = performance.now() - from;
    if (count !== FILES) throw new Error(`${count} files were found of ${FILES}`);
    return elapsed;
  }
}

async function measure(node: Node, small: Node): Promise<BenchRow[]> {
  await small.growTo(FEW_VMS);
  await node.growTo(VMS);
  await node.fill();
  const first = await node.look();
  const again = await node.look();
  // both at a time: a machine that slows down slows both
  const [idleOfFew, idle] = await Promise.all([small.idle(), node.idle()]);
  const [few, many] = await Promise.all([small.changes(), node.changes()]);
  return [
    {
      name: `CPU for a change of one VM, among ${VMS} VMs and ${FILES} files / among ${FEW_VMS} VMs`,
      value: many / few,
      unit: '×',
      target: 1.5,
      note: `${many.toFixed(1)} ms against ${few.toFixed(1)} ms`,
    },
    {
      name: 'processor while nobody wants anything',
      value: idle / 10,
      unit: '%',
      note: `${(idleOfFew / 10).toFixed(1)} % among ${FEW_VMS} VMs`,
    },
    { name: 'the first scan of all files', value: first / FILES, unit: 'ms a file' },
    { name: 'a scan of files that are as they were', value: again / FILES, unit: 'ms a file' },
    { name: 'peak memory of the agent', value: node.peakMiB, unit: 'MiB', target: 200 },
  ];
}

async function main(): Promise<boolean> {
  const node = await Node.start();
  try {
    const small = await Node.start();
    try {
      return printTable(`one node with ${VMS} VMs and ${FILES} backup files`, await measure(node, small));
    } finally {
      await small.stop(false);
    }
  } finally {
    await node.stop();
  }
}

process.exitCode = (await main()) ? 0 : 1;
