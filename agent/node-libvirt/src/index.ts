// @virtkeep/node-libvirt: a typed, promise-based libvirt binding. This file is the whole public surface.

export * from './constants.ts';
export { Domain } from './domain.ts';
export { type ErrorFields, type ErrorKind, isLibvirtError, LibvirtError } from './error.ts';
export type {
  AgentEvent,
  BlockJobEvent,
  DeviceEvent,
  EventSource,
  IoErrorEvent,
  JobCompletedEvent,
  LibvirtEvents,
  LifecycleEvent,
  MetadataChangeEvent,
  PoolLifecycleEvent,
} from './events.ts';
export { connect, Libvirt } from './libvirt.ts';
export { Snapshot } from './snapshot.ts';
export { StoragePool, StorageVol } from './storage.ts';
export type * from './types.ts';
