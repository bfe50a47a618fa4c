/** A running guest of two disks in an agent's node, and what the faults at a backup ask of both. */
import { rmSync } from 'node:fs';
import { expect } from '@jest/globals';
import { BACKUP_STEPS } from '../../agent/src/workflows/backup/backup.ts';
import type { Guest } from '../lab/guest.ts';
import { AgentAlone, momentsOf, type Picture } from './agent-alone.ts';

export const MOMENTS = momentsOf(BACKUP_STEPS, 'copy.mid', 'merge.before');

export class BackupAlone {
  readonly alone: AgentAlone;
  readonly guest: Guest;
  readonly #before: Picture;
  readonly #pid: number | undefined;

  private constructor(alone: AgentAlone, guest: Guest, before: Picture) {
    this.alone = alone;
    this.guest = guest;
    this.#before = before;
    this.#pid = guest.qemuPid();
  }

  static async start(): Promise<BackupAlone> {
    const alone = await AgentAlone.start();
    try {
      const guest = await alone.world.defineTiny({
        dataDisks: [{ sizeMiB: 64 }, { format: 'raw' }],
        cmdline: 'writer=/mnt/vda/w',
      });
      await (await guest.start()).waitForAgent();
      return new BackupAlone(alone, guest, await alone.picture(guest));
    } catch (error) {
      await alone.stop();
      throw error;
    }
  }

  /** The guest runs as before, is not frozen, and nothing was left; a good archive may be there. */
  async expectClean(archives: string[] = []): Promise<void> {
    const { alone, guest } = this;
    expect(await alone.picture(guest)).toEqual({ ...this.#before, files: [this.#before.files[0], archives] });
    expect(guest.qemuPid()).toBe(this.#pid);
    expect(await guest.agent('guest-fsfreeze-status')).toBe('thawed');
  }

  /** Removes the archives of a test. */
  clear(): void {
    const { path } = this.alone.world.node.pool(1);
    for (const name of this.alone.files(1)) rmSync(`${path}/backups/${name}`);
  }
}
