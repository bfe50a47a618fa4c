import type { Caller } from './caller.ts';
import { ErrorCode } from './constants.ts';
import { nullOn } from './null-on.ts';
import type { CallOptions } from './types.ts';

/** A snapshot of a domain, named by the domain's uuid and its own name. */
export class Snapshot {
  readonly domainUuid: string;
  readonly name: string;
  readonly #caller: Caller;
  readonly #target: readonly string[];

  constructor(caller: Caller, domainUuid: string, name: string) {
    this.#caller = caller;
    this.domainUuid = domainUuid;
    this.name = name;
    this.#target = [domainUuid, name];
  }

  /** The snapshot XML; flags `SnapshotXml`. */
  xml(flags = 0, options?: CallOptions): Promise<string> {
    return this.#caller.call('virDomainSnapshotGetXMLDesc', this.#target, [flags], options);
  }

  /** The parent, or null at the root. */
  async parent(options?: CallOptions): Promise<Snapshot | null> {
    const found = await nullOn(
      ErrorCode.NO_DOMAIN_SNAPSHOT,
      this.#caller.call('virDomainSnapshotGetParent', this.#target, [0], options),
    );
    return found === null ? null : new Snapshot(this.#caller, this.domainUuid, found);
  }

  /** The children; flags `SnapshotList` (DESCENDANTS: all below). */
  async children(flags = 0, options?: CallOptions): Promise<Snapshot[]> {
    const names = await this.#caller.call('virDomainSnapshotListAllChildren', this.#target, [flags], options);
    return names.map(name => new Snapshot(this.#caller, this.domainUuid, name));
  }

  isCurrent(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virDomainSnapshotIsCurrent', this.#target, [0], options);
  }

  hasMetadata(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virDomainSnapshotHasMetadata', this.#target, [0], options);
  }

  /**
   * Deletes the snapshot; flags `SnapshotDelete`. With external layers libvirt ≥ 9.0 merges them: the call lasts as long as
   * that and cannot be cancelled; repeated after a crash it completes the work. METADATA_ONLY just forgets.
   */
  delete(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainSnapshotDelete', this.#target, [flags], options);
  }

  /** Reverts the domain; flags `SnapshotRevert`. libvirt 9.0 refuses external snapshots (67). */
  revert(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainRevertToSnapshot', this.#target, [flags], options);
  }
}
