/** What the tests of what may change between two increments share: guests of plain disks, written to and defined anew while they are off. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makePlainDisk } from '../../lab/disks.ts';
import type { Guest } from '../../lab/guest.ts';
import { run } from '../../lab/run.ts';
import { WorkflowLab } from '../backup/lab.ts';
import type { Made } from './lab.ts';

export const MIB = 1024 * 1024;

export class ChangesLab {
  readonly lab: WorkflowLab;
  #mark = 0;

  private constructor(lab: WorkflowLab) {
    this.lab = lab;
  }

  static async start(): Promise<ChangesLab> {
    return new ChangesLab(await WorkflowLab.start());
  }

  stop(): Promise<void> {
    return this.lab.stop();
  }

  virsh(...args: string[]): Promise<string> {
    return this.lab.world.node.virsh(...args);
  }

  inPool(name: string): string {
    return join(this.lab.world.node.pool(0).path, name);
  }

  newDisk(format: 'qcow2' | 'raw' = 'qcow2'): Promise<string> {
    const options = { sizeBytes: 4 * MIB, dataBytes: MIB, format };
    return makePlainDisk(this.inPool(`${newId()}.${format}`), options);
  }

  /** A guest that is off, with plain disks. */
  async offGuest(formats: ('qcow2' | 'raw')[]): Promise<Guest> {
    const disks = [];
    for (const format of formats) disks.push({ path: await this.newDisk(format), format });
    return this.lab.world.defineTiny({ disks, idle: true });
  }

  /** Writes to a disk of a guest that is off. */
  async write(guest: Guest, target = 'vda', offset = '1M'): Promise<void> {
    this.#mark = (this.#mark % 250) + 1;
    const path = (await guest.disks())[target]!;
    await run(['qemu-io', '-c', `write -P ${this.#mark} ${offset} 64k`, path]);
  }

  /** Defines a guest anew from its changed definition. */
  async redefine(guest: Guest, change: (xml: string) => string): Promise<void> {
    const file = join(this.lab.world.dir, 'redefine.xml');
    writeFileSync(file, change(await guest.xml(true)));
    await this.virsh('define', file);
  }
}

export const idsOf = (made: Made): string[] => made.manifest.disks.map(({ id }: { id: string }) => id);

/** What the refusal of an archive that cannot be extended looks like. */
export const refused = (reason: RegExp) => ({
  msgKey: 'not_extendable',
  message: expect.stringMatching(reason),
});
