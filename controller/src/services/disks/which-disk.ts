/** Which disk a request to attach or detach means among all nodes' VMs, and whether another node can read it. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import {
  isChosen,
  type KnownDomains,
  type NoDisk,
  warningsOf,
  whichAttachment,
  whichDisk,
} from '@virtkeep/shared/which-disk';
import type { Inventory } from '../inventory/inventory.ts';
import type { DomainEntry } from '../inventory/kept-domain.ts';
import { isUsable } from '../pools/record.ts';
import type { OwnedDisk } from './vdisks.ts';

/** Which disk is meant. */
export interface LentDisk {
  /** Id of the original. */
  vdisk: string;
  /** The thin clone whose state is meant. */
  thin_clone?: string | null;
}

export class LendableDisks {
  readonly #inventory: Inventory;
  readonly #domains: KnownDomains;

  constructor(inventory: Inventory) {
    const { domains } = inventory;
    this.#inventory = inventory;
    this.#domains = {
      withId: id => domains.get(id)?.domain,
      withDisk: diskId => firstOf(domains.withDisk(diskId), id => domains.get(id)?.domain),
    };
  }

  /**
   * The owner: the thin clone that was named, else whose disk it is; of a thin clone's own disk its template. Only the node
   * knows what lies on zfs, where that is the thin clone.
   * @throws vdisk_not_found, attached_object_given, invalid_thin_clone.
   */
  ownerOf(lent: LentDisk): OwnedDisk {
    const chosen = whichDisk(this.#domains, requestOf(lent));
    if (!isChosen(chosen)) throw this.#refusal(chosen, lent);
    return { disk: chosen.disk, entry: this.#inventory.domain(chosen.owner.id) };
  }

  /** What is to be said of a disk of this owner that was attached for the one that was asked for. */
  warningsOf(vdisk: string, ownerId: string): string[] {
    const chosen = whichDisk(this.#domains, { diskId: vdisk, thinCloneId: '' });
    return isChosen(chosen) && chosen.owner.id === ownerId ? warningsOf(chosen) : [];
  }

  #refusal({ fault }: NoDisk, { vdisk, thin_clone }: LentDisk): VirtkeepError {
    if (fault === 'no_disk') return this.#unknownDisk(vdisk);
    const reasons = {
      no_domain: 'does not exist',
      no_thin_clone: 'is not a thin clone',
      not_its_disk: `has no disk ${vdisk}`,
    };
    return new VirtkeepError('invalid_thin_clone', {
      id: thin_clone ?? '',
      reason: reasons[fault],
      field: 'thin_clone',
    });
  }

  #unknownDisk(id: string): VirtkeepError {
    for (const { domain } of this.#inventory.domains.borrowers()) {
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

  /** What the owner's node is to call it: as it was asked for, unless that disk's VM, a template or a clone, is on another one. */
  nameOf({ disk, entry }: OwnedDisk, { vdisk }: LentDisk): string {
    const { domains } = this.#inventory;
    const isThere = [...domains.withDisk(vdisk)].some(id => domains.get(id)?.nodeId === entry.nodeId);
    return isThere ? vdisk : disk.id;
  }

  /**
   * How the borrower's node, which may know neither the owner nor its template, is to be told what is to go. What nobody
   * here has attached passes as it was asked for: the node may know more.
   */
  attachedAs({ domain }: DomainEntry, lent: LentDisk) {
    const request = requestOf(lent);
    const found = whichAttachment(this.#domains, domain, request);
    if (found === undefined) return { ...request, ownerId: '' };
    const { diskId, ownerId, thinClone } = found;
    return { diskId, thinCloneId: thinClone ? ownerId : '', ownerId };
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

const requestOf = ({ vdisk, thin_clone }: LentDisk) => ({ diskId: vdisk, thinCloneId: thin_clone ?? '' });

function firstOf<T>(ids: Iterable<string>, find: (id: string) => T | undefined): T | undefined {
  for (const id of ids) return find(id);
  return undefined;
}
