// Public data types. Sizes are bytes unless the name says otherwise; 64-bit numbers are JS numbers (exact to 2^53).

/** Options of every call. */
export interface CallOptions {
  /** Stops waiting: the promise rejects at once with kind `aborted`; a call that has begun goes on in libvirt. */
  signal?: AbortSignal;
  /** Stops waiting after so many milliseconds, with kind `timeout`; 0 = never. Default: by the call's lane. */
  timeoutMs?: number;
  /** Take a worker from the reserve when the lane is full (thaw, abort and resume always do). */
  urgent?: boolean;
}

/** Options of `connect`. */
export interface ConnectOptions {
  /** Read-only connection: changing calls fail with OPERATION_DENIED. */
  readOnly?: boolean;
  /** Keep-alive: after `count` unanswered probes, `intervalSec` apart, the connection counts as lost. Default 5 s × 3. */
  keepAlive?: { intervalSec: number; count: number };
  /** Default time-out of short and query calls (state, XML, lists, sizes, progress), ms; 0 = none. Default 30 000. */
  shortTimeoutMs?: number;
  /** Default time-out of agent calls, ms; 0 = none (libvirt has its own). Default 0. */
  agentTimeoutMs?: number;
  /** Default time-out of long calls (snapshots, saves, device changes), ms; 0 = none. Default 0. */
  longTimeoutMs?: number;
  /** Most workers (threads, connections; 8 to 12 MB each) a lane uses at once, started on demand. Default 2, 2, 4, 8. */
  workers?: { short?: number; query?: number; agent?: number; long?: number };
  /** Further workers per lane while others are stuck in calls nobody waits for any more, or for urgent calls. Default 8. */
  reserveWorkers?: number;
  /** Calls that may wait per lane; above it `busy`. Default 1000. */
  maxQueued?: number;
  /** A worker idle for so long is ended, ms. Default 10 000. One stays. */
  idleMs?: number;
  /** Delay of reconnection: first and longest, ms. Default 200 and 10 000 (doubling). */
  reconnect?: { minMs: number; maxMs: number };
  /** Bound of opening the first connection, ms. Default 15 000. */
  connectTimeoutMs?: number;
  /** Subscribe to libvirt's events. Default true. */
  events?: boolean;
  /** Stops waiting for the first connection. */
  signal?: AbortSignal;
}

export interface Versions {
  /** The libvirt.so.0 loaded here, e.g. `9.0.0`. */
  library: string;
  /** libvirtd. */
  daemon: string;
  /** The hypervisor, e.g. QEMU `7.2.22`; null when the driver cannot tell. */
  hypervisor: string | null;
}

export interface NodeInfo {
  cpuModel: string;
  memoryKiB: number;
  cpus: number;
  mhz: number;
  numaNodes: number;
  sockets: number;
  cores: number;
  threads: number;
}

export interface DomainRef {
  uuid: string;
  name: string;
  /** Number of the running domain, -1 when it is off. */
  id: number;
}

export interface DomainState {
  /** One of `DomainStateCode`. */
  state: number;
  /** Reason, numbered per state (virDomain*Reason). */
  reason: number;
}

export interface DomainInfo {
  state: number;
  maxMemoryKiB: number;
  memoryKiB: number;
  vcpus: number;
  cpuTimeNs: number;
}

export interface BlockInfo {
  capacity: number;
  allocation: number;
  physical: number;
}

export interface BlockStats {
  readRequests: number;
  readBytes: number;
  writeRequests: number;
  writeBytes: number;
  errors: number;
}

export interface BlockJobInfo {
  /** One of `BlockJobType`. */
  type: number;
  /** MiB/s, or bytes/s with `BlockJobBandwidth.BYTES`; 0 = unlimited. */
  bandwidth: number;
  cur: number;
  end: number;
}

export interface BlockCopyParams {
  bandwidthBytesPerSec?: number;
  granularityBytes?: number;
  bufferBytes?: number;
}

/** Where a copy goes, as a `<disk>` element, and how. */
export interface BlockCopyTarget extends BlockCopyParams {
  xml: string;
}

/** The layers of a commit: from `top` down to `base`. */
export interface BlockCommitRange {
  /** **Null without SHALLOW is the bottom file of the chain**, be it a template. */
  base: string | null;
  /** Null: the active layer. */
  top: string | null;
  /** MiB/s, or bytes/s with `BlockCommit.BANDWIDTH_BYTES`; 0 = unlimited. */
  bandwidth?: number;
}

/** A piece of a domain's metadata. */
export interface MetadataElement {
  /** `MetadataType`. */
  type: number;
  /** Null removes it. */
  value: string | null;
  /** For ELEMENT the prefix. */
  key?: string | null;
  /** For ELEMENT the namespace. */
  uri?: string | null;
}

/** libvirt's typed parameters: names as in its headers (`data_total`, `vcpu.current`, …). */
export type TypedParams = Record<string, number | string | boolean>;

export interface JobStats {
  /** One of `JobType`; NONE when no job runs. */
  type: number;
  params: TypedParams;
}

export interface DomainStats extends DomainRef {
  params: TypedParams;
}

export interface InterfaceAddress {
  name: string;
  mac: string | null;
  addresses: { family: 'ipv4' | 'ipv6'; address: string; prefix: number }[];
}

export interface PoolRef {
  uuid: string;
  name: string;
}

export interface PoolInfo {
  /** One of `PoolState`. */
  state: number;
  capacity: number;
  allocation: number;
  available: number;
}

export interface VolRef {
  pool: string;
  name: string;
  key: string;
}

export interface VolInfo {
  /** One of `VolType`. */
  type: number;
  capacity: number;
  allocation: number;
}
