/** A node with zfs-fuse, a pool "tank" of two datasets, and the agent as a process of its own where they are mounted. */
import { join } from 'node:path';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { AgentAlone } from '../../e2e/agent-alone.ts';
import { makeDataDisk } from '../../lab/disks.ts';
import type { DiskSpec } from '../../lab/domain-xml.ts';
import type { Guest } from '../../lab/guest.ts';
import { definePool, type LabNode, type Pool } from '../../lab/node.ts';
import { run, waitFor } from '../../lab/run.ts';
import { startZfsFuse, type ZfsFuse } from '../../lab/zfs-fuse.ts';

export class ZfsLab {
  readonly alone: AgentAlone;
  readonly fuse: ZfsFuse;
  /** The data pool of libvirt in the dataset tank/vm. */
  readonly pool: Pool;
  /** Where the zfs pool is mounted. */
  readonly tank: string;

  private constructor(alone: AgentAlone, fuse: ZfsFuse, tank: string, pool: Pool) {
    this.alone = alone;
    this.fuse = fuse;
    this.tank = tank;
    this.pool = pool;
  }

  static async start(): Promise<ZfsLab> {
    const alone = await AgentAlone.start();
    try {
      const fuse = await startZfsFuse(alone.world.node);
      const tank = await fuse.createPool('tank');
      for (const name of ['vm', 'more']) await fuse.zfs('create', `tank/${name}`);
      const pool = { name: 'tank', uuid: newId(), path: join(tank, 'vm') };
      await definePool(alone.world.node, pool);
      // the agent finds zfs where an administrator has it: in its PATH
      process.env.PATH = `${fuse.bin}:${process.env.PATH}`;
      await alone.restart();
      return new ZfsLab(alone, fuse, tank, pool);
    } catch (error) {
      await alone.stop();
      throw error;
    }
  }

  stop(): Promise<void> {
    return this.alone.stop();
  }

  get node(): LabNode {
    return this.alone.world.node;
  }

  /** A disk with an ext4 file system on a dataset: made outside of the node, where nothing is mounted. */
  async diskOn(dataset: string, format: 'qcow2' | 'raw'): Promise<DiskSpec> {
    const name = `${newId()}.${format}`;
    const made = await makeDataDisk(join(this.alone.world.dir, name), { sizeMiB: 32, format });
    const path = join(this.tank, dataset, name);
    await this.node.runInside(['cp', '--sparse=always', made, path]);
    await run(['rm', made]);
    return { path, format };
  }

  /** Names of all datasets of a type, or of all snapshots. */
  async names(type: 'snapshot' | 'filesystem'): Promise<string[]> {
    const { stdout } = await this.fuse.zfs('list', '-H', '-o', 'name', '-t', type);
    return stdout.split('\n').filter(name => name !== '' && !name.startsWith('no datasets'));
  }

  async clones(): Promise<string[]> {
    return (await this.names('filesystem')).filter(name => name.includes('virtkeep-'));
  }

  /** @returns the operation's result @throws its error with `msgKey` */
  async result<T = Record<string, unknown>>(started: Promise<Pick<Operation, 'id'>>): Promise<T> {
    const { state, error, resultJson } = await this.alone.ended((await started).id, 240_000);
    if (state === OperationState.SUCCEEDED) return JSON.parse(resultJson) as T;
    throw Object.assign(new Error(error?.detail), { msgKey: error?.msgKey });
  }

  /** A guest as it is now, once the agent knows it. */
  async known(guest: Guest) {
    const id = await guest.uuid();
    const isListed = async () => (await this.alone.domains.list({})).domains.some(domain => domain.id === id);
    await waitFor(`the inventory's knowledge of ${guest.name}`, isListed, 120_000);
    return this.alone.domains.get({ id });
  }
}
