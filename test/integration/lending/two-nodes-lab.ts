/** A VM of one node that lends its disk to a VM of another one that shares its data pool: real controller and agents, both VMs run. */
import { randomUUID } from 'node:crypto';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { makeDataDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import type { LabNode } from '../../lab/node.ts';
import type { Rest } from '../../lab/rest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { startWorld, type World } from '../../lab/world.ts';
import { onLent } from './lab.ts';

export const STATE = 'vdisks_attached_to_another_domains';
export const PATIENCE_MS = 300_000;

// biome-ignore lint/suspicious/noExplicitAny: JSON of any shape is looked into
export type Json = any;

export class TwoNodesLab {
  readonly world: World;
  readonly owner: Guest;
  readonly ownerId: string;
  readonly reader: Guest;
  readonly readerId: string;
  /** The disk that is lent. */
  readonly disk: string;

  private constructor(world: World, [owner, reader]: [Guest, Guest], ids: [string, string, string]) {
    this.world = world;
    [this.owner, this.reader] = [owner, reader];
    [this.ownerId, this.readerId, this.disk] = ids;
  }

  static async start(): Promise<TwoNodesLab> {
    const controllerSettings = { agents: { lost_after_s: 600 } };
    const world = await startWorld({ controller: true, nodes: 2, controllerSettings });
    try {
      return await TwoNodesLab.#define(world);
    } catch (error) {
      await world.stop();
      throw error;
    }
  }

  static async #define(world: World): Promise<TwoNodesLab> {
    const [home, afar] = world.nodes as [LabNode, LabNode];
    const path = await makeDataDisk(join(home.pool('shared').path, `${randomUUID()}.qcow2`));
    const owner = await world.defineTiny({ name: 'owner', node: home, disks: [{ path }] });
    const reader = await world.defineTiny({ name: 'reader', node: afar, dataDisks: [] });
    for (const guest of [owner, reader]) await guest.start();
    for (const guest of [owner, reader]) await guest.waitForAgent();
    const [ownerId, readerId] = [await world.known(owner), await world.known(reader)];
    const [disk] = (await world.rest.get<Json>(`/api/domains/${ownerId}/`)).vdisks;
    return new TwoNodesLab(world, [owner, reader], [ownerId, readerId, disk.id]);
  }

  stop(): Promise<void> {
    return this.world.stop();
  }

  get rest(): Rest {
    return this.world.rest;
  }

  /** The node of the owner. */
  get home(): LabNode {
    return this.world.nodes[0]!;
  }

  /** The node of the reader. */
  get afar(): LabNode {
    return this.world.nodes[1]!;
  }

  get attachPath(): string {
    return `/api/domains/${this.readerId}/attach-vdisk/`;
  }

  get detachPath(): string {
    return `/api/domains/${this.readerId}/detach-vdisk/`;
  }

  async write(mark: string): Promise<void> {
    await this.owner.sh(`echo ${mark} > /mnt/vda/mark; sync`);
  }

  /** The mark on the disk as the reader has it. */
  async read(): Promise<string> {
    return (await this.reader.sh(onLent(this.disk, 'cat $M/mark'))).trim();
  }

  /** Ids of the disks that the reader has of others. */
  async listed(): Promise<string[]> {
    const disks = await this.rest.list<Json>(`/api/vdisks/?another_domain=${this.readerId}`);
    return disks.map((one: Json) => one.id);
  }

  sharedFiles(): string[] {
    return readdirSync(this.home.pool('shared').path).sort();
  }

  /** The loan has ended, and so has the operation that ended it. */
  async freed(): Promise<void> {
    const { owner, ownerId, rest } = this;
    await waitFor(
      'the end of the loan',
      async () => (await owner.snapshots()).length === 0,
      PATIENCE_MS,
      500,
    );
    const free = async () =>
      (await rest.get<Json>(`/api/domains/${ownerId}/`)).permissions.includes('snapshot');
    await waitFor('the owner to be free', free, PATIENCE_MS, 500);
  }

  async sound(): Promise<void> {
    for (const path of Object.values(await this.owner.disks()))
      if (path.startsWith('/')) await run(['qemu-img', 'check', '-q', '-U', '-f', 'qcow2', path]);
  }
}
