// The libvirt functions this package offers, as data. The worker builds the C prototype, converts the arguments, frees
// what libvirt hands out and reads the result by this table alone (marshal.ts); the types of arguments and results are
// derived from it too. To offer one more function: add a line here and a method to the facade.

import type {
  BlockCopyParams,
  BlockInfo,
  BlockJobInfo,
  BlockStats,
  DomainInfo,
  DomainRef,
  DomainStats,
  InterfaceAddress,
  NodeInfo,
  PoolInfo,
  PoolRef,
  TypedParams,
  VolInfo,
  VolRef,
} from './types.ts';

/** What a call is made on. A target crosses threads as strings: nothing, a uuid, or a uuid and a name. */
export type TargetKind = 'none' | 'conn' | 'domain' | 'snapshot' | 'pool' | 'vol';

/** Arguments given by the caller. `strs` takes two places in C: the array and its length. */
interface InTypes {
  str: string;
  'str?': string | null;
  int: number;
  uint: number;
  ulong: number;
  int64: number;
  uint64: number;
  strs: string[];
  copyParams: BlockCopyParams;
}

/** Arguments libvirt fills. `out:typed` takes two places in C: the array and its length. */
interface OutTypes {
  'out:int': number;
  'out:uint': number;
  'out:ulong': number;
  'out:int64': number;
  /** libvirt allocates it; freed after it was copied. */
  'out:text': string;
  'out:DomainInfo': DomainInfo;
  'out:BlockInfo': BlockInfo;
  'out:BlockStats': BlockStats;
  'out:BlockJobInfo': BlockJobInfo;
  'out:NodeInfo': NodeInfo;
  'out:PoolInfo': PoolInfo;
  'out:VolInfo': VolInfo;
  'out:domains': DomainRef[];
  'out:snapshots': string[];
  'out:pools': PoolRef[];
  /** Names. */
  'out:networks': string[];
  'out:vols': VolRef[];
  'out:typed': TypedParams;
  'out:interfaces': InterfaceAddress[];
  'out:domainStats': DomainStats[];
}

/** What the C function returns, besides an error (negative or NULL). `out…`: the filled arguments instead. */
interface ReturnTypes {
  ok: undefined;
  int: number;
  bool: boolean;
  /** A string that libvirt allocated: freed after it was copied. */
  text: string;
  uint64: number;
  domain: DomainRef;
  snapshot: string;
  pool: PoolRef;
  vol: VolRef;
}

export type ArgToken = keyof InTypes | keyof OutTypes;
/** `out`: the one filled argument; `outs`: all of them; `out?`: null when the function returns 0. */
export type ReturnToken = keyof ReturnTypes | 'out' | 'outs' | 'out?';

/**
 * Which workers run a call. `short`: libvirtd answers from memory, whatever its guests do. `query`: it waits for the domain's
 * lock or QEMU's monitor, for a moment when all is well. `agent`: it asks the guest (a hung one costs 5 s). `long`: it
 * waits for QEMU or a disk. So a hung guest, a hung QEMU or a merge of hours never delays a state or progress query.
 */
export type LaneName = 'short' | 'query' | 'agent' | 'long';

export interface CallSpec {
  on: TargetKind;
  args: readonly ArgToken[];
  returns: ReturnToken;
  /** Default `short`. */
  lane?: LaneName;
  /** May use the lane's reserve of workers: calls that free a guest or stop another call. */
  urgent?: true;
  /** Function of libvirt-qemu.so.0. */
  qemu?: true;
}

export const CALLS = {
  // Connection and host
  virGetVersion: { on: 'none', args: ['out:ulong', 'str?', 'str?'], returns: 'out' },
  virConnectIsAlive: { on: 'conn', args: [], returns: 'bool' },
  virConnectGetLibVersion: { on: 'conn', args: ['out:ulong'], returns: 'out' },
  virConnectGetVersion: { on: 'conn', args: ['out:ulong'], returns: 'out' },
  virConnectGetHostname: { on: 'conn', args: [], returns: 'text' },
  virConnectGetCapabilities: { on: 'conn', args: [], returns: 'text' },
  virConnectGetDomainCapabilities: {
    on: 'conn',
    args: ['str?', 'str?', 'str?', 'str?', 'uint'],
    returns: 'text',
  },
  virConnectGetSysinfo: { on: 'conn', args: ['uint'], returns: 'text' },
  virNodeGetInfo: { on: 'conn', args: ['out:NodeInfo'], returns: 'out' },
  virNodeGetFreeMemory: { on: 'conn', args: [], returns: 'uint64' },
  virConnectGetAllDomainStats: {
    on: 'conn',
    args: ['uint', 'out:domainStats', 'uint'],
    returns: 'out',
    lane: 'long',
  },

  // Domains
  virConnectListAllDomains: { on: 'conn', args: ['out:domains', 'uint'], returns: 'out' },
  virDomainLookupByName: { on: 'conn', args: ['str'], returns: 'domain' },
  virDomainLookupByUUIDString: { on: 'conn', args: ['str'], returns: 'domain' },
  virDomainDefineXMLFlags: { on: 'conn', args: ['str', 'uint'], returns: 'domain' },
  virDomainCreateXML: { on: 'conn', args: ['str', 'uint'], returns: 'domain', lane: 'long' },
  virDomainGetState: { on: 'domain', args: ['out:int', 'out:int', 'uint'], returns: 'outs' },
  virDomainGetInfo: { on: 'domain', args: ['out:DomainInfo'], returns: 'out' },
  virDomainGetXMLDesc: { on: 'domain', args: ['uint'], returns: 'text' },
  virDomainIsActive: { on: 'domain', args: [], returns: 'bool' },
  virDomainIsPersistent: { on: 'domain', args: [], returns: 'bool' },
  virDomainIsUpdated: { on: 'domain', args: [], returns: 'bool' },
  virDomainGetAutostart: { on: 'domain', args: ['out:int'], returns: 'out' },
  virDomainSetAutostart: { on: 'domain', args: ['int'], returns: 'ok', lane: 'query' },
  virDomainCreateWithFlags: { on: 'domain', args: ['uint'], returns: 'ok', lane: 'long' },
  virDomainShutdownFlags: { on: 'domain', args: ['uint'], returns: 'ok', lane: 'agent' },
  virDomainReboot: { on: 'domain', args: ['uint'], returns: 'ok', lane: 'agent' },
  virDomainReset: { on: 'domain', args: ['uint'], returns: 'ok', lane: 'long' },
  virDomainDestroyFlags: { on: 'domain', args: ['uint'], returns: 'ok', lane: 'long', urgent: true },
  virDomainSuspend: { on: 'domain', args: [], returns: 'ok', lane: 'long' },
  virDomainResume: { on: 'domain', args: [], returns: 'ok', lane: 'long', urgent: true },
  virDomainUndefineFlags: { on: 'domain', args: ['uint'], returns: 'ok', lane: 'long' },
  virDomainRename: { on: 'domain', args: ['str', 'uint'], returns: 'ok', lane: 'long' },
  virDomainSetMetadata: {
    on: 'domain',
    args: ['int', 'str?', 'str?', 'str?', 'uint'],
    returns: 'ok',
    lane: 'query',
  },
  virDomainGetMetadata: { on: 'domain', args: ['int', 'str?', 'uint'], returns: 'text' },
  virDomainAttachDeviceFlags: { on: 'domain', args: ['str', 'uint'], returns: 'ok', lane: 'long' },
  virDomainDetachDeviceFlags: { on: 'domain', args: ['str', 'uint'], returns: 'ok', lane: 'long' },
  virDomainUpdateDeviceFlags: { on: 'domain', args: ['str', 'uint'], returns: 'ok', lane: 'long' },
  virDomainGetBlockInfo: {
    on: 'domain',
    args: ['str', 'out:BlockInfo', 'uint'],
    returns: 'out',
    lane: 'query',
  },
  virDomainBlockStats: {
    on: 'domain',
    args: ['str', 'out:BlockStats', 'uint64'],
    returns: 'out',
    lane: 'query',
  },
  virDomainBlockResize: { on: 'domain', args: ['str', 'uint64', 'uint'], returns: 'ok', lane: 'long' },
  virDomainInterfaceAddresses: {
    on: 'domain',
    args: ['out:interfaces', 'uint', 'uint'],
    returns: 'out',
    lane: 'agent',
  },

  // Save and restore
  virDomainSaveFlags: { on: 'domain', args: ['str', 'str?', 'uint'], returns: 'ok', lane: 'long' },
  virDomainRestoreFlags: { on: 'conn', args: ['str', 'str?', 'uint'], returns: 'ok', lane: 'long' },
  virDomainSaveImageGetXMLDesc: { on: 'conn', args: ['str', 'uint'], returns: 'text' },
  virDomainSaveImageDefineXML: { on: 'conn', args: ['str', 'str', 'uint'], returns: 'ok' },
  virDomainManagedSave: { on: 'domain', args: ['uint'], returns: 'ok', lane: 'long' },
  virDomainManagedSaveRemove: { on: 'domain', args: ['uint'], returns: 'ok' },
  virDomainHasManagedSaveImage: { on: 'domain', args: ['uint'], returns: 'bool' },
  virDomainManagedSaveGetXMLDesc: { on: 'domain', args: ['uint'], returns: 'text' },

  // Jobs
  virDomainGetJobStats: {
    on: 'domain',
    args: ['out:int', 'out:typed', 'uint'],
    returns: 'outs',
    lane: 'query',
  },
  virDomainAbortJob: { on: 'domain', args: [], returns: 'ok', lane: 'query', urgent: true },
  virDomainBlockCommit: {
    on: 'domain',
    args: ['str', 'str?', 'str?', 'ulong', 'uint'],
    returns: 'ok',
    lane: 'long',
  },
  virDomainBlockPull: { on: 'domain', args: ['str', 'ulong', 'uint'], returns: 'ok', lane: 'long' },
  virDomainBlockCopy: {
    on: 'domain',
    args: ['str', 'str', 'copyParams', 'uint'],
    returns: 'ok',
    lane: 'long',
  },
  virDomainGetBlockJobInfo: {
    on: 'domain',
    args: ['str', 'out:BlockJobInfo', 'uint'],
    returns: 'out?',
    lane: 'query',
  },
  virDomainBlockJobAbort: { on: 'domain', args: ['str', 'uint'], returns: 'ok', lane: 'long', urgent: true },
  virDomainBlockJobSetSpeed: { on: 'domain', args: ['str', 'ulong', 'uint'], returns: 'ok', lane: 'long' },

  // QEMU's monitor
  virDomainQemuMonitorCommand: {
    on: 'domain',
    args: ['str', 'out:text', 'uint'],
    returns: 'out',
    lane: 'query',
    qemu: true,
  },

  // Guest agent
  virDomainQemuAgentCommand: {
    on: 'domain',
    args: ['str', 'int', 'uint'],
    returns: 'text',
    lane: 'agent',
    qemu: true,
  },
  virDomainFSFreeze: { on: 'domain', args: ['strs', 'uint'], returns: 'int', lane: 'agent' },
  virDomainFSThaw: { on: 'domain', args: ['strs', 'uint'], returns: 'int', lane: 'agent', urgent: true },
  virDomainAgentSetResponseTimeout: { on: 'domain', args: ['int', 'uint'], returns: 'ok', lane: 'agent' },
  virDomainGetTime: { on: 'domain', args: ['out:int64', 'out:uint', 'uint'], returns: 'outs', lane: 'agent' },
  virDomainSetTime: { on: 'domain', args: ['int64', 'uint', 'uint'], returns: 'ok', lane: 'agent' },

  // Snapshots
  virDomainSnapshotCreateXML: { on: 'domain', args: ['str', 'uint'], returns: 'snapshot', lane: 'long' },
  virDomainListAllSnapshots: { on: 'domain', args: ['out:snapshots', 'uint'], returns: 'out' },
  virDomainSnapshotLookupByName: { on: 'domain', args: ['str', 'uint'], returns: 'snapshot' },
  virDomainHasCurrentSnapshot: { on: 'domain', args: ['uint'], returns: 'bool' },
  virDomainSnapshotCurrent: { on: 'domain', args: ['uint'], returns: 'snapshot' },
  virDomainSnapshotGetXMLDesc: { on: 'snapshot', args: ['uint'], returns: 'text' },
  virDomainSnapshotGetParent: { on: 'snapshot', args: ['uint'], returns: 'snapshot' },
  virDomainSnapshotListAllChildren: { on: 'snapshot', args: ['out:snapshots', 'uint'], returns: 'out' },
  virDomainSnapshotIsCurrent: { on: 'snapshot', args: ['uint'], returns: 'bool' },
  virDomainSnapshotHasMetadata: { on: 'snapshot', args: ['uint'], returns: 'bool' },
  virDomainSnapshotDelete: { on: 'snapshot', args: ['uint'], returns: 'ok', lane: 'long' },
  virDomainRevertToSnapshot: { on: 'snapshot', args: ['uint'], returns: 'ok', lane: 'long' },

  virConnectListAllNetworks: { on: 'conn', args: ['out:networks', 'uint'], returns: 'out' },

  // Storage pools
  virConnectListAllStoragePools: { on: 'conn', args: ['out:pools', 'uint'], returns: 'out' },
  virStoragePoolLookupByName: { on: 'conn', args: ['str'], returns: 'pool' },
  virStoragePoolLookupByUUIDString: { on: 'conn', args: ['str'], returns: 'pool' },
  virStoragePoolLookupByTargetPath: { on: 'conn', args: ['str'], returns: 'pool' },
  virStoragePoolDefineXML: { on: 'conn', args: ['str', 'uint'], returns: 'pool' },
  virStoragePoolCreateXML: { on: 'conn', args: ['str', 'uint'], returns: 'pool', lane: 'long' },
  virStoragePoolGetXMLDesc: { on: 'pool', args: ['uint'], returns: 'text' },
  virStoragePoolGetInfo: { on: 'pool', args: ['out:PoolInfo'], returns: 'out' },
  virStoragePoolIsActive: { on: 'pool', args: [], returns: 'bool' },
  virStoragePoolIsPersistent: { on: 'pool', args: [], returns: 'bool' },
  virStoragePoolGetAutostart: { on: 'pool', args: ['out:int'], returns: 'out' },
  virStoragePoolSetAutostart: { on: 'pool', args: ['int'], returns: 'ok' },
  virStoragePoolBuild: { on: 'pool', args: ['uint'], returns: 'ok', lane: 'long' },
  virStoragePoolCreate: { on: 'pool', args: ['uint'], returns: 'ok', lane: 'long' },
  virStoragePoolDestroy: { on: 'pool', args: [], returns: 'ok', lane: 'long' },
  virStoragePoolDelete: { on: 'pool', args: ['uint'], returns: 'ok', lane: 'long' },
  virStoragePoolUndefine: { on: 'pool', args: [], returns: 'ok' },
  virStoragePoolRefresh: { on: 'pool', args: ['uint'], returns: 'ok', lane: 'long' },
  virStoragePoolListAllVolumes: { on: 'pool', args: ['out:vols', 'uint'], returns: 'out', lane: 'long' },

  // Storage volumes
  virStorageVolLookupByName: { on: 'pool', args: ['str'], returns: 'vol' },
  virStorageVolLookupByPath: { on: 'conn', args: ['str'], returns: 'vol' },
  virStorageVolLookupByKey: { on: 'conn', args: ['str'], returns: 'vol' },
  virStorageVolCreateXML: { on: 'pool', args: ['str', 'uint'], returns: 'vol', lane: 'long' },
  virStorageVolGetXMLDesc: { on: 'vol', args: ['uint'], returns: 'text' },
  virStorageVolGetInfo: { on: 'vol', args: ['out:VolInfo'], returns: 'out' },
  virStorageVolGetPath: { on: 'vol', args: [], returns: 'text' },
  virStorageVolResize: { on: 'vol', args: ['uint64', 'uint'], returns: 'ok', lane: 'long' },
  virStorageVolDelete: { on: 'vol', args: ['uint'], returns: 'ok', lane: 'long' },
} as const satisfies Record<string, CallSpec>;

export type CallName = keyof typeof CALLS;

type Inputs<A extends readonly unknown[]> = A extends readonly [infer H, ...infer R]
  ? H extends keyof InTypes
    ? [InTypes[H], ...Inputs<R>]
    : Inputs<R>
  : [];
type Outputs<A extends readonly unknown[]> = A extends readonly [infer H, ...infer R]
  ? H extends keyof OutTypes
    ? [OutTypes[H], ...Outputs<R>]
    : Outputs<R>
  : [];

/** Arguments of a call as the facade gives them. */
export type CallArgs<N extends CallName> = Inputs<(typeof CALLS)[N]['args']>;

type ResultOf<S extends CallSpec> = S['returns'] extends keyof ReturnTypes
  ? ReturnTypes[S['returns']]
  : S['returns'] extends 'outs'
    ? Outputs<S['args']>
    : S['returns'] extends 'out?'
      ? Outputs<S['args']>[0] | null
      : Outputs<S['args']>[0];

/** Result of a call as the facade gets it. */
export type CallResult<N extends CallName> = ResultOf<(typeof CALLS)[N]>;
