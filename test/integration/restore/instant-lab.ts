/** What the tests of instant restores share: the operation, which goes on while a test looks at it, and what must hold at its end. */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { StartRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { instantRestoreWorkflow } from '../../../agent/src/workflows/restore/instant/instant-restore.ts';
import { Guest } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { type RestoreResult, WorkflowLab } from '../backup/lab.ts';

export const FILE = 'instant.tar';
/** Bytes per second: the pull of the first disk as good as stops after its first step, until `goOn`. */
const HELD = 1000n;

export class InstantLab {
  readonly lab: WorkflowLab;

  private constructor(lab: WorkflowLab) {
    this.lab = lab;
  }

  static async start(): Promise<InstantLab> {
    return new InstantLab(await WorkflowLab.start());
  }

  stop(): Promise<void> {
    return this.lab.stop();
  }

  pathOf(filename: string): string {
    return join(this.lab.world.node.pool(1).path, 'backups', filename);
  }

  virsh(...args: string[]): Promise<string> {
    return this.lab.world.node.virsh(...args);
  }

  restored(name: string): Guest {
    return new Guest(this.lab.world.node, name);
  }

  /** Starts the operation; it goes on while the test looks at it. */
  begin(state: string, request: Partial<StartRestoreRequest> = {}, filename = FILE): string {
    const { world, runner, dependencies } = this.lab;
    const id = newId();
    const full = StartRestoreRequest.fromPartial({
      file: { poolId: world.node.pool(1).uuid, filename },
      domainId: newId(),
      poolId: world.node.pool(0).uuid,
      state,
      instant: true,
      ...request,
    });
    runner.start({
      id,
      kind: 'restore',
      request: full,
      entities: [],
      locks: [
        { kind: 'domain', id: full.domainId, mode: 'exclusive' },
        { kind: 'file', id: this.pathOf(filename), mode: 'shared' },
      ],
      cancellable: true,
      workflow: instantRestoreWorkflow(dependencies, full),
    });
    return id;
  }

  /** The same with the pull held back: a guest boots, and a test looks, as slowly as it likes. */
  beginHeld(state: string): string {
    return this.begin(state, { bandwidth: HELD });
  }

  /** The result, which is there when the VM runs. */
  async committed(id: string): Promise<RestoreResult> {
    return waitFor(
      'the start of the VM',
      () => {
        const { resultJson, error } = this.lab.runner.get(id);
        if (error) throw new Error(error.detail);
        return resultJson === '' ? undefined : (JSON.parse(resultJson) as RestoreResult);
      },
      120_000,
      20,
    );
  }

  /** Until QEMU pulls the first disk. */
  async pulling({ name }: RestoreResult): Promise<void> {
    const begun = () => this.virsh('blockjob', name, 'vda', '--info', '--raw').catch(() => '');
    await waitFor('the pull of the first disk', async () => (await begun()).includes('end='), 120_000, 50);
  }

  /** Lifts the limit of each pull, also of those that begin later, until nobody holds the archive any more. */
  async goOn({ name }: RestoreResult): Promise<void> {
    const lifted = async () => {
      for (const target of ['vda', 'vdb'])
        await this.virsh('blockjob', name, target, '--bandwidth', '0').catch(() => {});
      return this.lab.runner.holderOf('file', this.pathOf(FILE)) === undefined;
    };
    await waitFor('the end of the pull', lifted, 240_000, 250);
  }

  async expectIndependent(result: RestoreResult): Promise<void> {
    for (const { path } of result.disks) {
      expect(await chainOf(path)).toEqual([path]);
      const { stdout } = await run(['qemu-img', 'info', '-U', '--output=json', path]);
      expect(JSON.parse(stdout)).not.toHaveProperty('backing-filename');
    }
    const copy = this.restored(result.name);
    for (const xml of [await copy.xml(), await copy.xml(true)]) expect(xml).not.toContain(FILE);
    expect(await copy.xml(true)).not.toContain('<backingStore');
  }

  async remove(result: RestoreResult): Promise<void> {
    const copy = this.restored(result.name);
    if ((await copy.state()) !== 'shut off') await copy.destroy();
    for (const { path } of result.disks) await run(['qemu-img', 'check', '-q', path]);
    await this.virsh('undefine', result.name);
    for (const { path } of result.disks) rmSync(path);
  }
}

/** Files of a disk, top to bottom. */
export async function chainOf(path: string): Promise<string[]> {
  const { stdout } = await run(['qemu-img', 'info', '-U', '--backing-chain', '--output=json', path]);
  return (JSON.parse(stdout) as { filename: string }[]).map(layer => layer.filename);
}
