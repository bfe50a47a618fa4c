/** A fresh world for a test file: one or two nodes, and on request their agents and a controller. */
import { randomUUID } from 'node:crypto';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { type DataDiskOptions, makeDataDisk } from './disks.ts';
import type { GuestXmlOptions } from './domain-xml.ts';
import { defineTinyGuest, type Guest } from './guest.ts';
import { expectNoLeaks } from './leaks.ts';
import { type LabNode, type PoolSpec, startNode } from './node.ts';
import { makeWorldDir } from './paths.ts';

export interface WorldOptions {
  /** Default 1. */
  nodes?: 1 | 2;
  /** With two nodes: both also have the pool "shared", same uuid and path. Default true. */
  sharedPool?: boolean;
}

export interface TinyOptions extends Omit<GuestXmlOptions, 'boot' | 'name'> {
  name?: string;
  node?: LabNode;
  /** Data disks to make in the node's first pool (ext4, mounted at /mnt/vda, /mnt/vdb …); default one of 64 MiB. */
  dataDisks?: DataDiskOptions[];
}

export class World {
  readonly dir: string;
  readonly nodes: LabNode[];
  #guests = 0;

  constructor(dir: string, nodes: LabNode[]) {
    this.dir = dir;
    this.nodes = nodes;
  }

  get node(): LabNode {
    return this.nodes[0]!;
  }

  /** Defines a tiny guest with data disks; it is off until `start()`. `disks` of the options replace `dataDisks`. */
  async defineTiny(options: TinyOptions = {}): Promise<Guest> {
    const { node = this.node, dataDisks = [{}], disks, ...xml } = options;
    this.#guests += 1;
    const name = options.name ?? `tiny${this.#guests}`;
    const made = [];
    for (const disk of disks ? [] : dataDisks) {
      const format = disk.format ?? 'qcow2';
      made.push({
        path: await makeDataDisk(join(node.pool(0).path, `${randomUUID()}.${format}`), disk),
        format,
      });
    }
    return defineTinyGuest(node, { ...xml, name, disks: disks ?? made });
  }

  /** Ends everything and removes all files. @throws Error when anything of this test process's worlds is left */
  async stop(): Promise<void> {
    for (const node of this.nodes) await node.stop();
    rmSync(this.dir, { recursive: true, force: true });
    expectNoLeaks();
  }
}

/** Starts a world (about half a second per node). Call `stop` in afterAll, whatever happened. */
export async function startWorld(options: WorldOptions = {}): Promise<World> {
  const dir = makeWorldDir();
  const nodes: LabNode[] = [];
  const shared: PoolSpec = { name: 'shared', uuid: randomUUID(), path: join(dir, 'shared') };
  try {
    for (let index = 1; index <= (options.nodes ?? 1); index += 1) {
      const pools: PoolSpec[] = [{ name: 'fast' }, { name: 'bulk' }];
      if (options.nodes === 2 && options.sharedPool !== false) pools.push(shared);
      const nodeDir = join(dir, `n${index}`);
      mkdirSync(nodeDir);
      nodes.push(await startNode({ name: `node${index}`, dir: nodeDir, pools }));
    }
  } catch (error) {
    for (const node of nodes) await node.stop();
    rmSync(dir, { recursive: true, force: true });
    throw error;
  }
  return new World(dir, nodes);
}
