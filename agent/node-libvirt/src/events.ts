// Events as the user sees them, and the tables that name libvirt's numbers. A number that a newer libvirt adds
// becomes `unknown`; the number itself is always there too.

/** Names of virDomainEventType. */
export const LIFECYCLE_NAMES = [
  'defined',
  'undefined',
  'started',
  'suspended',
  'resumed',
  'stopped',
  'shutdown',
  'pmsuspended',
  'crashed',
] as const;
/** Names of virConnectDomainEventBlockJobStatus. */
export const BLOCK_JOB_STATUS_NAMES = ['completed', 'failed', 'canceled', 'ready'] as const;
/** Names of virConnectDomainEventAgentLifecycleState. */
export const AGENT_STATE_NAMES = ['unknown', 'connected', 'disconnected'] as const;
/** Names of virConnectDomainEventAgentLifecycleReason. */
export const AGENT_REASON_NAMES = ['unknown', 'domain-started', 'channel'] as const;
/** Names of virStoragePoolEventLifecycleType. */
export const POOL_LIFECYCLE_NAMES = [
  'defined',
  'undefined',
  'started',
  'stopped',
  'created',
  'deleted',
] as const;
/** Names of virDomainEventIOErrorAction. */
export const IO_ERROR_ACTION_NAMES = ['none', 'pause', 'report'] as const;

type NameOf<T extends readonly string[]> = T[number] | 'unknown';

export interface EventSource {
  uuid: string;
  name: string;
}
export interface LifecycleEvent extends EventSource {
  event: NameOf<typeof LIFECYCLE_NAMES>;
  code: number;
  /** Detail, numbered per event (virDomainEvent*DetailType). */
  detail: number;
}
export interface BlockJobEvent extends EventSource {
  /** Target of the disk (`vda`): event BLOCK_JOB_2. */
  disk: string;
  /** One of `BlockJobType`. */
  type: number;
  status: NameOf<typeof BLOCK_JOB_STATUS_NAMES>;
  code: number;
}
export interface AgentEvent extends EventSource {
  state: NameOf<typeof AGENT_STATE_NAMES>;
  reason: NameOf<typeof AGENT_REASON_NAMES>;
}
export interface DeviceEvent extends EventSource {
  /** Alias of the device in the live XML (`virtio-disk1`, `ua-…`). */
  alias: string;
}
export interface JobCompletedEvent extends EventSource {
  params: Record<string, number | string | boolean>;
}
export interface IoErrorEvent extends EventSource {
  path: string;
  alias: string;
  action: NameOf<typeof IO_ERROR_ACTION_NAMES>;
  /** `enospc`, or empty. */
  reason: string;
}
export interface MetadataChangeEvent extends EventSource {
  /** One of `MetadataType`. */
  type: number;
  uri: string | null;
}
export interface PoolLifecycleEvent extends EventSource {
  event: NameOf<typeof POOL_LIFECYCLE_NAMES>;
  code: number;
}

/** Events of a connection, by name, with the arguments of the listener. */
export interface LibvirtEvents {
  lifecycle: [LifecycleEvent];
  reboot: [EventSource];
  blockJob: [BlockJobEvent];
  agentLifecycle: [AgentEvent];
  deviceAdded: [DeviceEvent];
  deviceRemoved: [DeviceEvent];
  deviceRemovalFailed: [DeviceEvent];
  jobCompleted: [JobCompletedEvent];
  ioError: [IoErrorEvent];
  metadataChange: [MetadataChangeEvent];
  poolLifecycle: [PoolLifecycleEvent];
  poolRefresh: [EventSource];
  /** The connection was lost; the pool tries to open it again. Running calls fail with kind `connection`. */
  closed: [{ reason: string }];
  /** The connection is there again, with its event subscriptions. Events in between are lost: read the state again. */
  reconnected: [];
}

/** The name of a number, `unknown` beyond the table. */
export function nameOf<T extends readonly string[]>(names: T, code: number): NameOf<T> {
  return (names[code] as T[number] | undefined) ?? 'unknown';
}
