/** Disk images in the backups of a pool, and the agent that imports them. */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ImportDiskRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { type AgentAlone, lostAnswer } from '../../e2e/agent-alone.ts';
import type { Guest } from '../../lab/guest.ts';

export class ImportLab {
  readonly alone: AgentAlone;

  constructor(alone: AgentAlone) {
    this.alone = alone;
    mkdirSync(this.backups, { recursive: true });
  }

  get pool() {
    return this.alone.world.node.pool(1);
  }

  get backups(): string {
    return join(this.pool.path, 'backups');
  }

  put(filename: string, bytes: Buffer | string): string {
    const path = join(this.backups, filename);
    writeFileSync(path, bytes);
    return path;
  }

  /** An image of those bytes. */
  image(filename: string, bytes: Buffer, ...format: string[]): string {
    const raw = join(this.alone.world.dir, 'content');
    writeFileSync(raw, bytes);
    const path = join(this.backups, filename);
    execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', ...format, raw, path]);
    return path;
  }

  /** Disks that were made, whoever has them. */
  made(): string[] {
    return readdirSync(this.pool.path)
      .filter(name => name !== 'backups')
      .sort();
  }

  async start(filename: string, request: Partial<ImportDiskRequest>): Promise<string> {
    const operationId = newId();
    const file = { poolId: this.pool.uuid, filename };
    const ids = { operationId, fileId: newId(), domainId: newId() };
    await this.alone.restores.importDisk({ ...ids, file, ...request }).catch(lostAnswer);
    return operationId;
  }

  /** As a further disk of that guest. */
  async startFor(guest: Guest, filename: string, request: Partial<ImportDiskRequest> = {}): Promise<string> {
    return this.start(filename, { domainId: await guest.uuid(), ...request });
  }

  /** What a guest sees of a qcow2. */
  rawOf(path: string): Buffer {
    const raw = join(this.alone.world.dir, 'raw');
    execFileSync('qemu-img', ['convert', '-U', '-f', 'qcow2', '-O', 'raw', path, raw]);
    return readFileSync(raw);
  }
}

/** Lets the disks of a definition be told apart. */
export const newVm = (name: string, more: object = {}) => ({
  newDomain: {
    ...{ name, memoryCount: 64n, cpuCount: 1, osType: 'Linux', firmware: '', network: '', virtio: true },
    ...more,
  },
});
