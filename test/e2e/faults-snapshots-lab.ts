/** A running guest of two disks in an agent's node, and what the faults at its saved states ask of both. */
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import type { Guest } from '../lab/guest.ts';
import { run } from '../lab/run.ts';
import { AgentAlone, lostAnswer } from './agent-alone.ts';

/** What no fault may change for good. */
export interface Before {
  files: string[];
  disks: Record<string, string>;
  states: string[];
}

/** Where a text stands on a disk without a guest that knows files: before any file system. */
const SECTOR = 512;

export class StatesAlone {
  readonly alone: AgentAlone;
  readonly guest: Guest;
  readonly #domainId: string;
  readonly #idle: boolean;

  private constructor(alone: AgentAlone, guest: Guest, domainId: string, idle: boolean) {
    this.alone = alone;
    this.guest = guest;
    this.#domainId = domainId;
    this.#idle = idle;
  }

  static async start(): Promise<StatesAlone> {
    const alone = await AgentAlone.start();
    try {
      return await StatesAlone.#define(alone, false);
    } catch (error) {
      await alone.stop();
      throw error;
    }
  }

  static async #define(alone: AgentAlone, idle: boolean): Promise<StatesAlone> {
    const dataDisks = [{ sizeMiB: 64 }, { sizeMiB: 32, format: 'raw' as const }];
    const guest = await alone.world.defineTiny({ dataDisks, idle });
    const states = new StatesAlone(alone, guest, await guest.uuid(), idle);
    await guest.start();
    await states.ready();
    return states;
  }

  /** Another running guest of the same agent that has no system: its QEMU is asked to write, its disks are read from outside. */
  idleOne(): Promise<StatesAlone> {
    return StatesAlone.#define(this.alone, true);
  }

  /** The guest's system answers, if it has one. */
  async ready(): Promise<void> {
    if (!this.#idle) await this.guest.waitForAgent();
  }

  stop(): Promise<void> {
    return this.alone.stop();
  }

  /** Starts making a state; returns the id of the operation, as `remove` and `revert` do. */
  async create(name: string, request: object = {}): Promise<string> {
    const [operationId, domainId] = [newId(), this.#domainId];
    await this.alone.snapshots.create({ operationId, domainId, name, ...request }).catch(lostAnswer);
    return operationId;
  }

  async remove(name: string, request: object = {}): Promise<string> {
    const which = await this.#which(name);
    await this.alone.snapshots.remove({ ...which, ...request }).catch(lostAnswer);
    return which.operationId;
  }

  async revert(name: string): Promise<string> {
    const which = await this.#which(name);
    await this.alone.snapshots.revert(which).catch(lostAnswer);
    return which.operationId;
  }

  async #which(name: string) {
    const domainId = this.#domainId;
    const { snapshots } = await this.alone.snapshots.list({ domainId });
    const snapshotId = snapshots.find(snapshot => snapshot.name === name)!.id;
    return { operationId: newId(), domainId, snapshotId };
  }

  async succeeds(id: Promise<string>): Promise<void> {
    const good = { state: OperationState.SUCCEEDED, error: undefined };
    expect(await this.alone.ended(await id)).toMatchObject(good);
  }

  files(): string[] {
    return readdirSync(this.alone.world.node.pool(0).path).sort();
  }

  /** Notes a text on the guest's first disk. */
  async write(text: string): Promise<void> {
    if (!this.#idle) {
      await this.guest.sh(`echo ${text} > /mnt/vda/mark; sync`);
      return;
    }
    const file = join(this.alone.world.dir, 'mark');
    writeFileSync(file, text.padEnd(SECTOR));
    for (const command of [`"write -s ${file} 0 ${SECTOR}"`, 'flush']) {
      const line = `qemu-io -d /machine/peripheral/virtio-disk0/virtio-backend ${command}`;
      await this.guest.node.virsh('qemu-monitor-command', this.guest.name, '--hmp', line);
    }
  }

  /** The text that is there. */
  async read(): Promise<string> {
    if (this.#idle) {
      const [file, { vda }] = [join(this.alone.world.dir, 'read'), await this.guest.disks()];
      const size = [`bs=${SECTOR}`, 'count=1'];
      await run(['qemu-img', 'dd', '-U', '-f', 'qcow2', '-O', 'raw', `if=${vda}`, `of=${file}`, ...size]);
      return readFileSync(file, 'utf8').trim();
    }
    return (await this.guest.sh('cat /mnt/vda/mark')).trim();
  }

  async look(): Promise<Before> {
    return {
      files: this.files(),
      disks: await this.guest.disks(),
      states: await this.guest.snapshots(),
    };
  }
}
