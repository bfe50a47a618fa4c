/** A VM that lends a disk to another one of its node, both running, and what the faults at attaching and detaching ask of both. */
import { readdirSync } from 'node:fs';
import { expect } from '@jest/globals';
import { type Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import type { Guest } from '../lab/guest.ts';
import { run, waitFor } from '../lab/run.ts';
import { AgentAlone, lostAnswer } from './agent-alone.ts';

export const STATE = 'vdisks_attached_to_another_domains';

/** Starts an operation of this id. */
export type Start = (operationId: string) => Promise<unknown>;

/** What each place says of the loan. */
interface Parts {
  live: boolean;
  loans: number;
  attachments: number;
  states: string[];
  config: boolean;
}

const LENT: Parts = { live: true, loans: 1, attachments: 1, states: [STATE], config: true };
const FREE: Parts = { live: false, loans: 0, attachments: 0, states: [], config: false };

export class LendAlone {
  readonly alone: AgentAlone;
  readonly owner: Guest;
  readonly borrower: Guest;
  readonly ownerId: string;
  readonly domainId: string;
  readonly diskId: string;
  /** The files of the pool when nothing is lent. */
  readonly #clean: string[];

  private constructor(alone: AgentAlone, guests: [Guest, Guest], ids: [string, string, string]) {
    this.alone = alone;
    [this.owner, this.borrower] = guests;
    [this.ownerId, this.domainId, this.diskId] = ids;
    this.#clean = this.#files();
  }

  static async start(): Promise<LendAlone> {
    const alone = await AgentAlone.start();
    try {
      return await LendAlone.#define(alone);
    } catch (error) {
      await alone.stop();
      throw error;
    }
  }

  static async #define(alone: AgentAlone): Promise<LendAlone> {
    const owner = await alone.world.defineTiny({
      dataDisks: [{ sizeMiB: 64 }, { sizeMiB: 32, format: 'raw' }],
    });
    const borrower = await alone.world.defineTiny({ dataDisks: [] });
    for (const guest of [owner, borrower]) await guest.start();
    for (const guest of [owner, borrower]) await guest.waitForAgent();
    const [ownerId, domainId] = [await owner.uuid(), await borrower.uuid()];
    const diskId = (await alone.domains.get({ id: ownerId })).disks[0]!.id;
    await owner.sh('echo kept > /mnt/vda/mark; sync');
    return new LendAlone(alone, [owner, borrower], [ownerId, domainId, diskId]);
  }

  stop(): Promise<void> {
    return this.alone.stop();
  }

  readonly attach: Start = operationId => {
    const { domainId, diskId } = this;
    return this.alone.disks.attach({ operationId, domainId, diskId });
  };

  readonly detach: Start = operationId => {
    const { domainId, diskId } = this;
    return this.alone.disks.detach({ operationId, domainId, diskId });
  };

  async ended(start: Start): Promise<Operation> {
    const id = newId();
    await start(id).catch(lostAnswer);
    return this.alone.ended(id);
  }

  async succeeds(start: Start): Promise<void> {
    expect(await this.ended(start)).toMatchObject({ state: OperationState.SUCCEEDED, error: undefined });
  }

  /** Starts the operation in an agent that dies at the point; the next agent settles it. */
  killedAt(point: string, start: Start): Promise<Operation> {
    return this.alone.killedAt(point, async () => {
      const id = newId();
      await start(id).catch(lostAnswer);
      return id;
    });
  }

  /** Waits until nothing holds the two and all parts say the same; tells whether the disk is lent. */
  async lentNow(): Promise<boolean> {
    await waitFor(
      'the end of all operations on the two',
      async () => {
        const { operations } = await this.alone.operations.list({ running: true });
        return operations.length === 0;
      },
      120_000,
    );
    // the agent looks after loans by itself, and may be just at it
    let told = '';
    const isAgreed = async () => {
      told = JSON.stringify(await this.#parts());
      return [LENT, FREE].some(parts => JSON.stringify(parts) === told);
    };
    await waitFor('agreement', isAgreed, 120_000, 500).catch(() => {
      throw new Error(`the parts say different things: ${told}`);
    });
    const isLent = told === JSON.stringify(LENT);
    if (!isLent) expect(this.#files()).toEqual(this.#clean);
    return isLent;
  }

  async #parts(): Promise<Parts> {
    const { alone, owner, borrower, ownerId, domainId } = this;
    return {
      live: (await borrower.xml()).includes('ua-virtkeep-'),
      loans: (await alone.domains.get({ id: ownerId })).loans.length,
      attachments: (await alone.domains.get({ id: domainId })).attachments.length,
      states: await owner.snapshots(),
      config: (await borrower.xml(true)).includes('ua-virtkeep-'),
    };
  }

  #files(): string[] {
    return readdirSync(this.alone.world.node.pool(0).path).sort();
  }

  async expectWhole(): Promise<void> {
    const { owner, borrower } = this;
    expect((await owner.sh('cat /mnt/vda/mark')).trim()).toBe('kept');
    expect(await owner.agent('guest-fsfreeze-status')).toBe('thawed');
    for (const [path, format] of [
      [(await owner.disks()).vda!, 'qcow2'],
      [(await owner.disks()).vdb!, 'raw'],
    ] as const)
      if (path.endsWith('.qcow2') || format === 'qcow2')
        await run(['qemu-img', 'check', '-q', '-U', '-f', 'qcow2', path]);
    expect(await borrower.agent('guest-ping')).toEqual({});
  }
}
