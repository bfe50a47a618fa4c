import type { Caller } from './caller.ts';
import { ErrorCode } from './constants.ts';
import { nullOn } from './null-on.ts';
import { Snapshot } from './snapshot.ts';
import type {
  BlockCommitRange,
  BlockCopyTarget,
  BlockInfo,
  BlockJobInfo,
  BlockStats,
  CallOptions,
  DomainInfo,
  DomainRef,
  DomainState,
  InterfaceAddress,
  JobStats,
  MetadataElement,
} from './types.ts';

/** sizeof(virDomainBlockStatsStruct), which virDomainBlockStats wants to be told. */
const BLOCK_STATS_BYTES = 40;
/** A command of the guest agent that takes longer must say so. */
const AGENT_TIMEOUT_SEC = 30;

/**
 * A virtual machine, named by its uuid. It holds no native handle: each call finds the domain by its uuid, so the object stays
 * right across restarts of the VM and of libvirtd. `name` is as it was at lookup. Flags are or-ed numbers (see constants).
 */
export class Domain {
  readonly uuid: string;
  readonly name: string;
  readonly #caller: Caller;
  readonly #target: readonly string[];

  constructor(caller: Caller, ref: Pick<DomainRef, 'uuid' | 'name'>) {
    this.#caller = caller;
    this.uuid = ref.uuid;
    this.name = ref.name;
    this.#target = [ref.uuid];
  }

  async state(options?: CallOptions): Promise<DomainState> {
    const [state, reason] = await this.#caller.call('virDomainGetState', this.#target, [0], options);
    return { state, reason };
  }

  info(options?: CallOptions): Promise<DomainInfo> {
    return this.#caller.call('virDomainGetInfo', this.#target, [], options);
  }

  /** The domain XML; flags `DomainXml`: INACTIVE = the persistent definition, SECURE = with passwords. */
  xml(flags = 0, options?: CallOptions): Promise<string> {
    return this.#caller.call('virDomainGetXMLDesc', this.#target, [flags], options);
  }

  isActive(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virDomainIsActive', this.#target, [], options);
  }

  isPersistent(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virDomainIsPersistent', this.#target, [], options);
  }

  /** True when the live configuration differs from the persistent one. */
  isUpdated(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virDomainIsUpdated', this.#target, [], options);
  }

  async autostart(options?: CallOptions): Promise<boolean> {
    return (await this.#caller.call('virDomainGetAutostart', this.#target, [], options)) !== 0;
  }

  setAutostart(on: boolean, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainSetAutostart', this.#target, [on ? 1 : 0], options);
  }

  // Power ------------------------------------------------------------------------------------------------------------

  /** Starts a defined domain; flags `DomainStart`. */
  create(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainCreateWithFlags', this.#target, [flags], options);
  }

  /** Asks the guest to shut down and returns at once; flags `DomainShutdown` (agent, ACPI). Wait for `lifecycle`. */
  shutdown(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainShutdownFlags', this.#target, [flags], options);
  }

  /** Asks the guest to reboot; flags `DomainShutdown`. */
  reboot(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainReboot', this.#target, [flags], options);
  }

  reset(options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainReset', this.#target, [0], options);
  }

  /** Switches the power off; flags `DomainDestroy`. */
  destroy(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainDestroyFlags', this.#target, [flags], options);
  }

  suspend(options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainSuspend', this.#target, [], options);
  }

  resume(options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainResume', this.#target, [], options);
  }

  /** Removes the definition; flags `DomainUndefine`: libvirt refuses (55) without those that apply. */
  undefine(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainUndefineFlags', this.#target, [flags], options);
  }

  /** Renames a domain that is off. This object keeps the old `name`. */
  rename(name: string, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainRename', this.#target, [name, 0], options);
  }

  // Metadata and devices ---------------------------------------------------------------------------------------------

  /** Sets or (null) removes a metadata element; flags `Affect`. */
  setMetadata(
    { type, value, key = null, uri = null }: MetadataElement,
    flags = 0,
    options?: CallOptions,
  ): Promise<void> {
    return this.#caller.call('virDomainSetMetadata', this.#target, [type, value, key, uri, flags], options);
  }

  /** A metadata element, or null when there is none (error 80). */
  metadata(type: number, uri: string | null, flags = 0, options?: CallOptions): Promise<string | null> {
    return nullOn(
      ErrorCode.NO_DOMAIN_METADATA,
      this.#caller.call('virDomainGetMetadata', this.#target, [type, uri, flags], options),
    );
  }

  /** Adds a device given as XML; flags `Affect`. */
  attachDevice(xml: string, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainAttachDeviceFlags', this.#target, [xml, flags], options);
  }

  /**
   * Asks for the removal of a device; flags `Affect`. **On a running guest success only means that the guest was asked**
   * (the call returns after 5 s at most): trust the live XML or `deviceRemoved`.
   */
  detachDevice(xml: string, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainDetachDeviceFlags', this.#target, [xml, flags], options);
  }

  /** Changes a device (e.g. the medium of a CD-ROM); flags `DeviceModify`. */
  updateDevice(xml: string, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainUpdateDeviceFlags', this.#target, [xml, flags], options);
  }

  // Disks ------------------------------------------------------------------------------------------------------------

  /** Sizes of a disk; @param disk target name (`vda`) or source path. */
  blockInfo(disk: string, options?: CallOptions): Promise<BlockInfo> {
    return this.#caller.call('virDomainGetBlockInfo', this.#target, [disk, 0], options);
  }

  /** Counters of a disk of a running domain; values libvirt does not know are -1. */
  blockStats(disk: string, options?: CallOptions): Promise<BlockStats> {
    return this.#caller.call('virDomainBlockStats', this.#target, [disk, BLOCK_STATS_BYTES], options);
  }

  /** Resizes a disk of a running domain to so many bytes. */
  blockResize(disk: string, sizeBytes: number, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainBlockResize', this.#target, [disk, sizeBytes, 1], options);
  }

  /** Merges layers downwards; returns when the job runs (wait for `blockJob`). Flags `BlockCommit`. */
  blockCommit(
    disk: string,
    { base, top, bandwidth = 0 }: BlockCommitRange,
    flags = 0,
    options?: CallOptions,
  ): Promise<void> {
    const args: [string, string | null, string | null, number, number] = [disk, base, top, bandwidth, flags];
    return this.#caller.call('virDomainBlockCommit', this.#target, args, options);
  }

  /** Copies all backing data into the active layer; returns when the job runs. Flags `BlockPull`. */
  blockPull(disk: string, bandwidth = 0, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainBlockPull', this.#target, [disk, bandwidth, flags], options);
  }

  /** Mirrors a disk to another place; returns when the job runs. Flags `BlockCopy`. */
  blockCopy(
    disk: string,
    { xml, ...params }: BlockCopyTarget,
    flags = 0,
    options?: CallOptions,
  ): Promise<void> {
    return this.#caller.call('virDomainBlockCopy', this.#target, [disk, xml, params, flags], options);
  }

  /** The block job of a disk, or null when none runs. Flags `BlockJobBandwidth`. */
  blockJobInfo(disk: string, flags = 0, options?: CallOptions): Promise<BlockJobInfo | null> {
    return this.#caller.call('virDomainGetBlockJobInfo', this.#target, [disk, flags], options);
  }

  /** Ends a block job; flags `BlockJobAbort`: PIVOT finishes an active commit or copy that is `ready`. */
  blockJobAbort(disk: string, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainBlockJobAbort', this.#target, [disk, flags], options);
  }

  /** @param bandwidth MiB/s, or bytes/s with `BlockJobBandwidth.BYTES`; 0 = unlimited. */
  blockJobSetSpeed(disk: string, bandwidth: number, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainBlockJobSetSpeed', this.#target, [disk, bandwidth, flags], options);
  }

  // Jobs, save -------------------------------------------------------------------------------------------------------

  /** Progress of the domain's job (snapshot with memory, save, backup). Flags `JobStatsFlag`. */
  async jobStats(flags = 0, options?: CallOptions): Promise<JobStats> {
    const [type, params] = await this.#caller.call('virDomainGetJobStats', this.#target, [flags], options);
    return { type, params };
  }

  abortJob(options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainAbortJob', this.#target, [], options);
  }

  /** Saves memory to a file and stops the domain. @param xml replaces the XML in the file; flags `SaveRestore`. */
  save(file: string, xml: string | null = null, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainSaveFlags', this.#target, [file, xml, flags], options);
  }

  managedSave(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainManagedSave', this.#target, [flags], options);
  }

  removeManagedSave(options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainManagedSaveRemove', this.#target, [0], options);
  }

  hasManagedSave(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virDomainHasManagedSaveImage', this.#target, [0], options);
  }

  /** The domain XML that the saved memory goes on with; flags `SaveImageXml`. */
  managedSaveXml(flags = 0, options?: CallOptions): Promise<string> {
    return this.#caller.call('virDomainManagedSaveGetXMLDesc', this.#target, [flags], options);
  }

  // QEMU's monitor ---------------------------------------------------------------------------------------------------

  /**
   * Sends one JSON command to QEMU itself and returns its JSON answer, which may be an error of QEMU's. libvirt does not know what it
   * changes, and marks the domain as tainted: for what libvirt cannot do.
   */
  monitorCommand(command: string, options?: CallOptions): Promise<string> {
    return this.#caller.call('virDomainQemuMonitorCommand', this.#target, [command, 0], options);
  }

  // Guest agent ------------------------------------------------------------------------------------------------------

  /**
   * Sends one JSON command to the guest agent and returns its JSON answer. Calls to one VM serialise inside libvirt. An
   * answer of 3 MB works, 10 MiB ends the agent's connection until the VM restarts: bound the output before you ask.
   * @param timeoutSec seconds for the command itself (30 unless given), or `AgentTimeout`; a hung agent is found in 5 s.
   */
  agentCommand(command: string, timeoutSec = AGENT_TIMEOUT_SEC, options?: CallOptions): Promise<string> {
    return this.#caller.call('virDomainQemuAgentCommand', this.#target, [command, timeoutSec, 0], options);
  }

  /** Freezes the guest's file systems (all, or those mounted at the given points); returns how many. */
  freeze(mountpoints: string[] = [], options?: CallOptions): Promise<number> {
    return this.#caller.call('virDomainFSFreeze', this.#target, [mountpoints, 0], options);
  }

  /** Thaws the guest's file systems; returns how many. Never waits behind other agent calls. */
  thaw(options?: CallOptions): Promise<number> {
    return this.#caller.call('virDomainFSThaw', this.#target, [[], 0], options);
  }

  /** How long libvirt waits for the agent, seconds, or `AgentTimeout`; holds until the domain stops. */
  setAgentTimeout(timeoutSec: number, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainAgentSetResponseTimeout', this.#target, [timeoutSec, 0], options);
  }

  /** The guest's clock. */
  async time(options?: CallOptions): Promise<Date> {
    const [seconds, nanoseconds] = await this.#caller.call('virDomainGetTime', this.#target, [0], options);
    return new Date(seconds * 1000 + nanoseconds / 1e6);
  }

  /** Sets the guest's clock; flags `SetTime`: SYNC = from its RTC, ignoring `time`. */
  setTime(time: Date, flags = 0, options?: CallOptions): Promise<void> {
    const seconds = Math.floor(time.getTime() / 1000);
    const nanoseconds = (time.getTime() - seconds * 1000) * 1e6;
    return this.#caller.call('virDomainSetTime', this.#target, [seconds, nanoseconds, flags], options);
  }

  /** @param source `AddressSource`. */
  interfaceAddresses(source: number, options?: CallOptions): Promise<InterfaceAddress[]> {
    return this.#caller.call('virDomainInterfaceAddresses', this.#target, [source, 0], options);
  }

  // Snapshots --------------------------------------------------------------------------------------------------------

  /** Makes (or with REDEFINE re-enters) a snapshot; flags `SnapshotCreate`. */
  async createSnapshot(xml: string, flags = 0, options?: CallOptions): Promise<Snapshot> {
    return this.snapshot(
      await this.#caller.call('virDomainSnapshotCreateXML', this.#target, [xml, flags], options),
    );
  }

  /** A snapshot by name, without asking libvirt whether it exists. */
  snapshot(name: string): Snapshot {
    return new Snapshot(this.#caller, this.uuid, name);
  }

  /** All snapshots; flags `SnapshotList` (TOPOLOGICAL: parents before children). */
  async snapshots(flags = 0, options?: CallOptions): Promise<Snapshot[]> {
    const names = await this.#caller.call('virDomainListAllSnapshots', this.#target, [flags], options);
    return names.map(name => this.snapshot(name));
  }

  /** A snapshot by name, or null. */
  async findSnapshot(name: string, options?: CallOptions): Promise<Snapshot | null> {
    const found = await nullOn(
      ErrorCode.NO_DOMAIN_SNAPSHOT,
      this.#caller.call('virDomainSnapshotLookupByName', this.#target, [name, 0], options),
    );
    return found === null ? null : this.snapshot(found);
  }

  /** The current snapshot, or null. */
  async currentSnapshot(options?: CallOptions): Promise<Snapshot | null> {
    const found = await nullOn(
      ErrorCode.NO_DOMAIN_SNAPSHOT,
      this.#caller.call('virDomainSnapshotCurrent', this.#target, [0], options),
    );
    return found === null ? null : this.snapshot(found);
  }
}
