/** The lab of lending: inventory, runner and the services that matter for it, and the reconciler when a test wants it. */

import { reasonOf } from '@virtkeep/shared/errors';
import type { DiskServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/disk';
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { SnapshotServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { newId } from '@virtkeep/shared/ids';
import { diskService } from '../../../agent/src/grpc/disk-service.ts';
import { snapshotService } from '../../../agent/src/grpc/snapshot-service.ts';
import { KEEP_LOANS, LoanReconciler } from '../../../agent/src/reconcilers/loans.ts';
import { LENDING_STATE } from '../../../agent/src/snapshots/index.ts';
import { type Guest, untilThere } from '../../lab/guest.ts';
import { run, waitFor } from '../../lab/run.ts';
import { CALL, InventoryLab } from '../inventory/lab.ts';

export interface Attached {
  vdisk: string;
  owner_id: string;
  attached: { id: string; target_dev: string; path: string };
  snapshot: { id: string; name: string } | null;
  warnings: string[];
}

export class LendLab {
  readonly base: InventoryLab;
  readonly disks: DiskServiceImplementation;
  readonly snapshots: SnapshotServiceImplementation;
  #reconciler: LoanReconciler | undefined;

  private constructor(base: InventoryLab) {
    this.base = base;
    const { inventory, runner, workflows } = base;
    this.disks = diskService({ inventory, runner, workflows });
    this.snapshots = snapshotService(runner, workflows);
  }

  static async start(): Promise<LendLab> {
    return new LendLab(await InventoryLab.start());
  }

  async stop(): Promise<void> {
    await this.#reconciler?.stop();
    await this.base.stop();
  }

  /** What a running agent has beside: it looks at loans by events. */
  keep(): void {
    const { link, runner, workflows } = this.base;
    const { log } = workflows;
    this.#reconciler = new LoanReconciler({ link, runner, workflows, log, settleMs: 50, retryMs: 2_000 });
    this.#reconciler.start();
  }

  async unkeep(): Promise<void> {
    await this.#reconciler?.stop();
    this.#reconciler = undefined;
  }

  /** Known to the inventory. */
  async known(guest: Guest): Promise<Domain> {
    const id = await guest.uuid();
    await this.base.inventory.refreshDomain(id);
    return this.base.inventory.domain(id);
  }

  /** Ids of the guest's own disks. */
  async diskIds(guest: Guest): Promise<string[]> {
    return (await this.known(guest)).disks.map(disk => disk.id);
  }

  async attach(borrower: Guest, diskId: string, thinCloneId = ''): Promise<Attached> {
    const request = { operationId: newId(), domainId: await borrower.uuid(), diskId, thinCloneId };
    const result = await this.#patiently(async () =>
      this.disks.attach({ ...request, source: undefined, allowNetworkLayers: false }, CALL),
    );
    return result as unknown as Attached;
  }

  async detach(borrower: Guest, diskId: string, thinCloneId = ''): Promise<Record<string, unknown>> {
    const request = { operationId: newId(), domainId: await borrower.uuid(), diskId, thinCloneId };
    return this.#patiently(async () => this.disks.detach(request, CALL));
  }

  /** Tries again when it was refused because the reconciler was at work just then, as people do. */
  #patiently(start: () => Promise<unknown>): Promise<Record<string, unknown>> {
    return this.#waitFor(
      'the end of the reconciler',
      () =>
        this.base.ended(start()).catch(error => {
          if (error.params?.kind === KEEP_LOANS) return undefined;
          throw error;
        }),
      60_000,
    );
  }

  /** The invariant of one owner: the state is there exactly when something is lent, and every chain is sound. */
  async isSound(owner: Guest): Promise<{ lends: number; hasState: boolean }> {
    const { loans } = await this.known(owner);
    const hasState = (await owner.snapshots()).includes(LENDING_STATE);
    for (const path of Object.values(await owner.disks()))
      if (path.startsWith('/')) await run(['qemu-img', 'check', '-q', '-U', '-f', 'qcow2', path]);
    return { lends: loans.length, hasState };
  }

  /** What is cheap is asked first: each look at the images is a program for each of them. */
  async nothingLent(owner: Guest): Promise<void> {
    const isFree = async () => {
      const { loans, lockedBy } = await this.known(owner);
      if (loans.length > 0 || lockedBy !== '') return false;
      return !(await this.isSound(owner)).hasState;
    };
    await this.#waitFor(`the end of all loans of ${owner.name}`, () => isFree().catch(() => false), 180_000);
  }

  /** Tells what there was instead, when it waited in vain. */
  async #waitFor<T>(
    what: string,
    probe: () => Promise<T | undefined | false>,
    timeoutMs: number,
  ): Promise<T> {
    try {
      return await waitFor(what, probe, timeoutMs, 200);
    } catch (error) {
      if (!reasonOf(error).startsWith(what)) throw error;
      const { runner, recent } = this.base;
      const running = runner
        .list(true)
        .operations.map(({ kind, progress }) => `runs: ${kind} ${progress?.phase}`);
      throw new Error([reasonOf(error), ...running, ...(await this.#domains()), ...recent].join('\n'));
    }
  }

  /** Each domain's state, jobs of its disks and disks, as libvirt and QEMU have them. */
  async #domains(): Promise<string[]> {
    const { node } = this.base.world;
    const say = (...args: string[]) => node.virsh(...args).catch(reasonOf);
    const names = (await say('list', '--all', '--name')).split('\n').filter(name => name !== '');
    const ask = async (name: string) => [
      `${name}: ${await say('domstate', name)}, job: ${await say('domjobinfo', name)}`,
      await say('dumpxml', name, '--xpath', '//devices/disk'),
      await say('qemu-monitor-command', name, '{"execute":"query-jobs"}'),
      await say('qemu-monitor-command', name, '{"execute":"query-block-jobs"}'),
    ];
    return (await Promise.all(names.map(ask))).flat();
  }
}

/** The device of a lent disk inside its guest, by its serial. */
export function deviceOf(diskId: string): string {
  const serial = diskId.replaceAll('-', '').slice(0, 20);
  return `$(grep -l ${serial} /sys/block/*/serial | cut -d/ -f4)`;
}

/** Waits in the guest until it has seen the disk: one that is asked for it in the very moment of its coming may miss that. */
export function seesDisk(diskId: string): string {
  return untilThere(`/dev/${deviceOf(diskId)}`);
}

/** Mounts a lent disk read-only in the guest and runs a line with it as \$M; unmounts it afterwards. */
export function onLent(diskId: string, line: string): string {
  return `${seesDisk(diskId)}; M=/tmp/lent; mkdir -p $M; mount -t ext4 -o ro,noload /dev/${deviceOf(diskId)} $M && { ${line}; R=$?; umount $M; exit $R; }`;
}
