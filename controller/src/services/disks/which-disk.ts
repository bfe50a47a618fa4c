/** Which disk a request to attach or detach means, and whether another node can read it. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { DomainEntry, Inventory } from '../inventory/inventory.ts';
import { isUsable } from '../pools/record.ts';
import type { OwnedDisk, VdiskService } from './vdisks.ts';

/** Which disk is meant. */
export interface LentDisk {
  /** Id of the original. */
  vdisk: string;
  /** The thin clone whose state is meant. */
  thin_clone?: string | null;
}

export class LendableDisks {
  readonly #inventory: Inventory;
  readonly #vdisks: VdiskService;

  constructor(inventory: Inventory, vdisks: VdiskService) {
    this.#inventory = inventory;
    this.#vdisks = vdisks;
  }

  /**
   * The owner: the thin clone that was named, else whose disk it is; of a thin clone's own disk its template.
   * @throws vdisk_not_found, attached_object_given, invalid_thin_clone.
   */
  ownerOf({ vdisk, thin_clone }: LentDisk): OwnedDisk {
    if (thin_clone) return this.#thinClonesDisk(vdisk, thin_clone);
    const found = this.#vdisks.find(vdisk);
    if (found === undefined) throw this.#unknownDisk(vdisk);
    const template = this.#inventory.domains.get(found.entry.domain.parentId);
    if (template === undefined) return found;
    const below = template.domain.disks.find(disk => found.disk.backingChain.includes(disk.path));
    return below === undefined ? found : { disk: below, entry: template };
  }

  #thinClonesDisk(vdisk: string, id: string): OwnedDisk {
    const entry = this.#inventory.domains.get(id);
    const refuse = (reason: string) =>
      new VirtkeepError('invalid_thin_clone', { id, reason, field: 'thin_clone' });
    if (entry === undefined) throw refuse('does not exist');
    if (entry.domain.parentId === '') throw refuse('is not a thin clone');
    const base = this.#vdisks.find(vdisk);
    if (base === undefined) throw this.#unknownDisk(vdisk);
    const disk = entry.domain.disks.find(
      one => one.id === vdisk || one.backingChain.includes(base.disk.path),
    );
    if (disk === undefined) throw refuse(`has no disk ${vdisk}`);
    return { disk, entry };
  }

  #unknownDisk(id: string): VirtkeepError {
    for (const { domain } of this.#inventory.domains.values()) {
      const attachment = domain.attachments.find(one => one.attachedId === id);
      if (attachment === undefined) continue;
      return new VirtkeepError('attached_object_given', {
        value: id,
        disk: attachment.diskId,
        field: 'vdisk',
      });
    }
    return new VirtkeepError('vdisk_not_found', { id, field: 'vdisk' });
  }

  /** What the borrower has under this id: a thin clone's disk may be named by its own id or by its template's. */
  attachedAs({ domain }: DomainEntry, { vdisk, thin_clone }: LentDisk) {
    const fitting = domain.attachments.filter(
      one =>
        (one.diskId === vdisk || this.#vdisks.original(one)?.disk.id === vdisk) &&
        (!thin_clone || one.ownerId === thin_clone),
    );
    const found = fitting.find(one => one.thinClone === Boolean(thin_clone)) ?? fitting[0];
    if (found === undefined) return { diskId: vdisk, thinCloneId: thin_clone ?? '', ownerId: '' };
    return {
      diskId: found.diskId,
      thinCloneId: found.thinClone ? found.ownerId : '',
      ownerId: found.ownerId,
    };
  }

  /**
   * For a borrower on another node than the owner's. @throws vdisk_unreachable when that node cannot use the disk's pool.
   */
  assertReachable({ disk, entry }: OwnedDisk, nodeId: string): void {
    const pool = this.#inventory.pools.get(disk.poolId);
    const view = pool?.views.get(nodeId);
    if (view && isUsable(view)) return;
    const node = this.#inventory.node(nodeId).row.verbose_name;
    const ownNode = this.#inventory.node(entry.nodeId).row.verbose_name;
    const reason =
      pool === undefined
        ? `its VM is on the node ${ownNode} and it lies in no data pool`
        : `its VM is on the node ${ownNode} and its data pool ${pool.row.verbose_name} cannot be used here`;
    throw new VirtkeepError('vdisk_unreachable', { disk: disk.id, node, reason, field: 'vdisk' });
  }
}
