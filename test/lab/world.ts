/** A fresh world for a test file: one or two nodes, and on request their agents and a controller. */
import { randomUUID } from 'node:crypto';
import { rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type LabAgent, makeAgent } from './agent.ts';
import { type LabController, makeController } from './controller.ts';
import { type DataDiskOptions, makeDataDisk } from './disks.ts';
import { type GuestXmlOptions, guestXml } from './domain-xml.ts';
import { defineGuest, defineTinyGuest, type Guest } from './guest.ts';
import { haltingRom } from './idle-guest.ts';
import { expectNoLeaks } from './leaks.ts';
import { type LabNode, type PoolSpec, startNode } from './node.ts';
import { makeWorldDir } from './paths.ts';
import type { Rest } from './rest.ts';
import { waitFor } from './run.ts';
import { SmallDisk } from './small-disk.ts';

export interface WorldOptions {
  /** Also an agent on each node and a controller, enrolled with each other. Default false. */
  controller?: boolean;
  /** Further settings of each agent and of the controller. */
  agentSettings?: Record<string, unknown>;
  controllerSettings?: Record<string, unknown>;
  /** A directory of the caller's own, which stays when the world ends: what is in it from a world of before is taken up. */
  dir?: string;
  /** Default 1. */
  nodes?: 1 | 2;
  /** With two nodes: both also have the pool "shared", same uuid and path. Default true. */
  sharedPool?: boolean;
  /** File systems of their own, by their path in the world's directory: MiB each. Outer ones come first. */
  smallDisks?: Record<string, number>;
  /** They are ext4 in loop-mounted files, not tmpfs. Default false. */
  loopDisks?: boolean;
}

export interface TinyOptions extends Omit<GuestXmlOptions, 'boot' | 'name'> {
  name?: string;
  node?: LabNode;
  /** Data disks to make in the node's first pool (ext4, mounted at /mnt/vda, /mnt/vdb …); default one of 64 MiB. */
  dataDisks?: DataDiskOptions[];
  /** A machine that runs no system, for what is asked of its disks alone: on at once, without agent, deaf to a shutdown. */
  idle?: boolean;
}

export class World {
  readonly dir: string;
  readonly nodes: LabNode[] = [];
  readonly agents: LabAgent[] = [];
  /** Those that the options ask for, by the same names. */
  readonly smallDisks = new Map<string, SmallDisk>();
  #controller: LabController | undefined;
  #rest: Rest | undefined;
  #guests = 0;

  constructor(dir: string) {
    this.dir = dir;
  }

  get agent(): LabAgent {
    return this.agents[0]!;
  }

  /** @throws Error when the world was started without `controller: true` */
  get controller(): LabController {
    if (!this.#controller) throw new Error('this world has no controller');
    return this.#controller;
  }

  /** A client logged in as administrator. */
  get rest(): Rest {
    if (!this.#rest) throw new Error('this world has no controller');
    return this.#rest;
  }

  get node(): LabNode {
    return this.nodes[0]!;
  }

  /** Defines a tiny guest with data disks; it is off until `start()`. `disks` of the options replace `dataDisks`. */
  async defineTiny(options: TinyOptions = {}): Promise<Guest> {
    const { node = this.node, dataDisks = [{}], disks, idle = false, ...xml } = options;
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
    const whole = { ...xml, name, disks: disks ?? made };
    if (!idle) return defineTinyGuest(node, whole);
    const boot = { rom: haltingRom(node.dir) };
    return defineGuest(node, name, guestXml({ memoryMiB: 32, ...whole, agent: false, boot }));
  }

  /** Waits until the controller knows a guest and returns its uuid. */
  async known(guest: Guest, timeoutMs = 120_000): Promise<string> {
    const uuid = await guest.uuid();
    const seen = () => this.rest.send('GET', `/api/domains/${uuid}/`).then(({ status }) => status === 200);
    await waitFor(`the controller's knowledge of ${guest.name}`, seen, timeoutMs);
    return uuid;
  }

  /** Waits until the controller is connected to a node and knows its pools and which is its base. */
  async connected(agent = this.agent, timeoutMs = 180_000): Promise<void> {
    const ready = async () => {
      type NodeRecord = { status?: string; base_datapool?: string | null };
      const { body } = await this.rest.send<NodeRecord>('GET', `/api/nodes/${agent.nodeId}/`);
      if (body.status !== 'ACTIVE' || !body.base_datapool) return false;
      const pools = await this.rest.list<{ id: string }>(`/api/data-pools/?node=${agent.nodeId}`);
      return agent.node.pools.every(({ uuid }) => pools.some(({ id }) => id === uuid));
    };
    await waitFor(`the controller's knowledge of ${agent.node.name}`, ready, timeoutMs);
  }

  /** Starts what the options ask for; `startWorld` calls it. */
  async start(options: WorldOptions): Promise<void> {
    for (const [name, sizeMiB] of Object.entries(options.smallDisks ?? {})) {
      const path = join(this.dir, name);
      const disk = options.loopDisks ? SmallDisk.mountLoop(sizeMiB, path) : SmallDisk.mount(sizeMiB, path);
      this.smallDisks.set(name, await disk);
    }
    const shared: PoolSpec = { name: 'shared', uuid: randomUUID(), path: join(this.dir, 'shared') };
    const count = options.nodes ?? 1;
    for (let index = 1; index <= count; index += 1) {
      const pools: PoolSpec[] = [{ name: 'fast' }, { name: 'bulk' }];
      if (count === 2 && options.sharedPool !== false) pools.push(shared);
      const node = { name: `node${index}`, dir: join(this.dir, `n${index}`), pools };
      this.nodes.push(await startNode({ ...node, keepDir: options.dir !== undefined }));
    }
    if (options.controller) await this.#startServices(options);
  }

  async #startServices(options: WorldOptions): Promise<void> {
    const controllerDir = join(this.dir, 'controller');
    this.#controller = await makeController({
      dir: controllerDir,
      settings: options.controllerSettings ?? {},
    });
    await this.#controller.daemon.start();
    this.#rest = await this.#controller.admin();
    for (const node of this.nodes) {
      const dir = join(this.dir, `agent-${node.name}`);
      const agent = await makeAgent({ node, dir, settings: options.agentSettings ?? {} });
      this.agents.push(agent);
      await agent.enrol(this.#controller.url, this.#rest);
      await agent.daemon.start();
    }
    for (const agent of this.agents) await this.connected(agent);
  }

  /**
   * Ends everything and removes all files.
   * @param isLast there is no other one of this test process
   * @throws Error when anything of this world is left, or, of the last one, of any
   */
  async stop(isLast = true): Promise<void> {
    await this.#controller?.daemon.kill();
    for (const node of this.nodes) await node.stop(); // with the agents in them
    for (const disk of [...this.smallDisks.values()].reverse()) await disk.unmount();
    rmSync(this.dir, { recursive: true, force: true });
    expectNoLeaks(isLast ? undefined : basename(this.dir));
  }
}

/** Starts a world (half a second per node, a second or two for the services). Call `stop` in afterAll. */
export async function startWorld(options: WorldOptions = {}): Promise<World> {
  const world = new World(options.dir ?? makeWorldDir());
  try {
    await world.start(options);
  } catch (error) {
    if (options.dir === undefined) await world.stop();
    else for (const node of world.nodes) await node.stop();
    throw error;
  }
  return world;
}
