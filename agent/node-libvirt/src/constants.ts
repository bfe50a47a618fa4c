// Numbers of libvirt's public headers (libvirt-domain.h, libvirt-domain-snapshot.h, libvirt-storage.h, virterror.h).
// Only what a manager of virtual machines meets is listed; any other number may be passed as it stands.

/** `LibvirtError.code`: the VIR_ERR_* numbers. */
export const ErrorCode = {
  OK: 0,
  INTERNAL_ERROR: 1,
  NO_MEMORY: 2,
  NO_SUPPORT: 3,
  UNKNOWN_HOST: 4,
  NO_CONNECT: 5,
  INVALID_CONN: 6,
  INVALID_DOMAIN: 7,
  INVALID_ARG: 8,
  OPERATION_FAILED: 9,
  XML_ERROR: 27,
  DOM_EXIST: 28,
  OPERATION_DENIED: 29,
  XML_DETAIL: 35,
  SYSTEM_ERROR: 38,
  RPC: 39,
  NO_DOMAIN: 42,
  NO_NETWORK: 43,
  AUTH_FAILED: 45,
  NO_STORAGE_POOL: 49,
  NO_STORAGE_VOL: 50,
  OPERATION_INVALID: 55,
  NO_SECRET: 66,
  CONFIG_UNSUPPORTED: 67,
  OPERATION_TIMEOUT: 68,
  INVALID_DOMAIN_SNAPSHOT: 71,
  NO_DOMAIN_SNAPSHOT: 72,
  ARGUMENT_UNSUPPORTED: 74,
  STORAGE_PROBE_FAILED: 75,
  STORAGE_POOL_BUILT: 76,
  SNAPSHOT_REVERT_RISKY: 77,
  OPERATION_ABORTED: 78,
  AUTH_CANCELLED: 79,
  NO_DOMAIN_METADATA: 80,
  BLOCK_COPY_ACTIVE: 83,
  OPERATION_UNSUPPORTED: 84,
  AGENT_UNRESPONSIVE: 86,
  RESOURCE_BUSY: 87,
  ACCESS_DENIED: 88,
  STORAGE_VOL_EXIST: 90,
  XML_INVALID_SCHEMA: 92,
  AUTH_UNAVAILABLE: 94,
  NO_SERVER: 95,
  NO_CLIENT: 96,
  AGENT_UNSYNCED: 97,
  DEVICE_MISSING: 99,
  NO_DOMAIN_CHECKPOINT: 102,
  NO_DOMAIN_BACKUP: 103,
  CHECKPOINT_INCONSISTENT: 109,
  MULTIPLE_DOMAINS: 110,
  /** Until libvirt 11.1 AGENT_UNRESPONSIVE. */
  AGENT_COMMAND_TIMEOUT: 112,
  /** Until libvirt 11.1 INTERNAL_ERROR. */
  AGENT_COMMAND_FAILED: 113,
} as const;

/** `LibvirtError.domain`: the part of libvirt that raised the error (VIR_FROM_*). */
export const ErrorDomain = {
  NONE: 0,
  XML: 5,
  DOM: 6,
  RPC: 7,
  QEMU: 10,
  REMOTE: 13,
  STORAGE: 18,
  DOMAIN: 20,
  SECURITY: 24,
  CPU: 31,
  DOMAIN_SNAPSHOT: 35,
  STREAMS: 38,
  LOCKING: 42,
  DOMAIN_CHECKPOINT: 69,
} as const;

/** State of a domain (`DomainState.state`). */
export const DomainStateCode = {
  NOSTATE: 0,
  RUNNING: 1,
  BLOCKED: 2,
  PAUSED: 3,
  SHUTDOWN: 4,
  SHUTOFF: 5,
  CRASHED: 6,
  PMSUSPENDED: 7,
} as const;

/** Filter of `Libvirt.domains()`: or-ed; groups (active/inactive, …) are and-ed by libvirt. */
export const ListDomains = {
  ACTIVE: 1,
  INACTIVE: 2,
  PERSISTENT: 4,
  TRANSIENT: 8,
  RUNNING: 16,
  PAUSED: 32,
  SHUTOFF: 64,
  OTHER: 128,
  MANAGEDSAVE: 256,
  NO_MANAGEDSAVE: 512,
  AUTOSTART: 1024,
  NO_AUTOSTART: 2048,
  HAS_SNAPSHOT: 4096,
  NO_SNAPSHOT: 8192,
} as const;

/** Flags of `Domain.xml()`. */
export const DomainXml = { SECURE: 1, INACTIVE: 2, UPDATE_CPU: 4, MIGRATABLE: 8 } as const;
/** Flags of `Libvirt.defineDomain()`. */
export const DomainDefine = { VALIDATE: 1 } as const;
/** Flags of `Domain.create()` and `Libvirt.createDomain()`. */
export const DomainStart = {
  PAUSED: 1,
  AUTODESTROY: 2,
  BYPASS_CACHE: 4,
  FORCE_BOOT: 8,
  VALIDATE: 16,
  RESET_NVRAM: 32,
} as const;
/** Flags of `Domain.shutdown()` and `Domain.reboot()`: by which way the guest is asked. */
export const DomainShutdown = {
  DEFAULT: 0,
  ACPI_POWER_BTN: 1,
  GUEST_AGENT: 2,
  INITCTL: 4,
  SIGNAL: 8,
  PARAVIRT: 16,
} as const;
/** Flags of `Domain.destroy()`. */
export const DomainDestroy = { DEFAULT: 0, GRACEFUL: 1, REMOVE_LOGS: 2 } as const;
/** Flags of `Domain.undefine()`: without those that apply libvirt answers 55. */
export const DomainUndefine = {
  MANAGED_SAVE: 1,
  SNAPSHOTS_METADATA: 2,
  NVRAM: 4,
  KEEP_NVRAM: 8,
  CHECKPOINTS_METADATA: 16,
  TPM: 32,
  KEEP_TPM: 64,
} as const;
/** Flags of calls that change the live domain, its persistent configuration, or both. */
export const Affect = { CURRENT: 0, LIVE: 1, CONFIG: 2 } as const;
/** Further flag of `attachDevice`, `detachDevice`, `updateDevice`. */
export const DeviceModify = { ...Affect, FORCE: 4 } as const;
/** Which metadata `setMetadata` and `metadata` mean. */
export const MetadataType = { DESCRIPTION: 0, TITLE: 1, ELEMENT: 2 } as const;
/** Flags of `Domain.setTime()`. */
export const SetTime = { SYNC: 1 } as const;
/** Source of `Domain.interfaceAddresses()`. */
export const AddressSource = { LEASE: 0, AGENT: 1, ARP: 2 } as const;

/** Flags of `Domain.save()`, `Libvirt.restoreDomain()` and `Domain.managedSave()`. */
export const SaveRestore = { BYPASS_CACHE: 1, RUNNING: 2, PAUSED: 4, RESET_NVRAM: 8 } as const;
/** Flags of `Libvirt.saveImageXml()`. */
export const SaveImageXml = { SECURE: 1 } as const;

/** Flags of `Domain.createSnapshot()`. */
export const SnapshotCreate = {
  REDEFINE: 1,
  CURRENT: 2,
  NO_METADATA: 4,
  HALT: 8,
  DISK_ONLY: 16,
  REUSE_EXT: 32,
  QUIESCE: 64,
  ATOMIC: 128,
  LIVE: 256,
  VALIDATE: 512,
} as const;
/** Flags of `Snapshot.delete()`. */
export const SnapshotDelete = { CHILDREN: 1, METADATA_ONLY: 2, CHILDREN_ONLY: 4 } as const;
/** Flags of `Domain.snapshots()` (ROOTS) and `Snapshot.children()` (DESCENDANTS). */
export const SnapshotList = {
  ROOTS: 1,
  DESCENDANTS: 1,
  METADATA: 2,
  LEAVES: 4,
  NO_LEAVES: 8,
  NO_METADATA: 16,
  INACTIVE: 32,
  ACTIVE: 64,
  DISK_ONLY: 128,
  INTERNAL: 256,
  EXTERNAL: 512,
  TOPOLOGICAL: 1024,
} as const;
/** Flags of `Snapshot.xml()`. */
export const SnapshotXml = { SECURE: 1 } as const;
/** Flags of `Snapshot.revert()`. */
export const SnapshotRevert = { RUNNING: 1, PAUSED: 2, FORCE: 4, RESET_NVRAM: 8 } as const;

/** Flags of `Domain.blockCommit()`. A null base without SHALLOW commits into the BOTTOM file of the chain. */
export const BlockCommit = { SHALLOW: 1, DELETE: 2, ACTIVE: 4, RELATIVE: 8, BANDWIDTH_BYTES: 16 } as const;
/** Flags of `Domain.blockPull()`. */
export const BlockPull = { BANDWIDTH_BYTES: 64 } as const;
/** Flags of `Domain.blockCopy()`. */
export const BlockCopy = { SHALLOW: 1, REUSE_EXT: 2, TRANSIENT_JOB: 4, SYNCHRONOUS_WRITES: 8 } as const;
/** Flags of `Domain.blockJobAbort()`. */
export const BlockJobAbort = { ASYNC: 1, PIVOT: 2 } as const;
/** Flag of `Domain.blockJobInfo()` and `Domain.blockJobSetSpeed()`: bytes/s instead of MiB/s. */
export const BlockJobBandwidth = { BYTES: 1 } as const;
/** `BlockJobInfo.type` and the type of a `blockJob` event. */
export const BlockJobType = { UNKNOWN: 0, PULL: 1, COPY: 2, COMMIT: 3, ACTIVE_COMMIT: 4, BACKUP: 5 } as const;

/** Flags of `Domain.jobStats()`. */
export const JobStatsFlag = { COMPLETED: 1, KEEP_COMPLETED: 2 } as const;
/** `JobStats.type`. */
export const JobType = { NONE: 0, BOUNDED: 1, UNBOUNDED: 2, COMPLETED: 3, FAILED: 4, CANCELLED: 5 } as const;

/** Time-out in seconds of `Domain.agentCommand()` and `Domain.setAgentTimeout()`, besides positive numbers. */
export const AgentTimeout = { BLOCK: -2, DEFAULT: -1, NOWAIT: 0 } as const;

/** Filter of `Libvirt.pools()`. */
export const ListPools = {
  INACTIVE: 1,
  ACTIVE: 2,
  PERSISTENT: 4,
  TRANSIENT: 8,
  AUTOSTART: 16,
  NO_AUTOSTART: 32,
} as const;
/** `PoolInfo.state`. */
export const PoolState = { INACTIVE: 0, BUILDING: 1, RUNNING: 2, DEGRADED: 3, INACCESSIBLE: 4 } as const;
/** Flags of `StoragePool.create()` and `Libvirt.createPool()`. */
export const PoolCreate = { NORMAL: 0, WITH_BUILD: 1, OVERWRITE: 2, NO_OVERWRITE: 4 } as const;
/** Flags of `StoragePool.build()`. */
export const PoolBuild = { NEW: 0, REPAIR: 1, RESIZE: 2, NO_OVERWRITE: 4, OVERWRITE: 8 } as const;
/** Flags of `StoragePool.delete()`. */
export const PoolDelete = { NORMAL: 0, ZEROED: 1 } as const;
/** Flags of `StoragePool.xml()`. */
export const PoolXml = { INACTIVE: 1 } as const;
/** `VolInfo.type`. */
export const VolType = { FILE: 0, BLOCK: 1, DIR: 2, NETWORK: 3, NETDIR: 4, PLOOP: 5 } as const;
/** Flags of `StoragePool.createVolume()`. */
export const VolCreate = { PREALLOC_METADATA: 1, REFLINK: 2, VALIDATE: 4 } as const;
/** Flags of `StorageVol.delete()`. */
export const VolDelete = { NORMAL: 0, ZEROED: 1, WITH_SNAPSHOTS: 2 } as const;
/** Flags of `StorageVol.resize()`. */
export const VolResize = { ALLOCATE: 1, DELTA: 2, SHRINK: 4 } as const;
