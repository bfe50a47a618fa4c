// Registration of libvirt's events. The callbacks run inside virEventRunDefaultImpl, on the thread of the event worker.

import koffi, { type TypeObject } from 'koffi';
import { ErrorCode } from '../constants.ts';
import {
  AGENT_REASON_NAMES,
  AGENT_STATE_NAMES,
  BLOCK_JOB_STATUS_NAMES,
  type EventSource,
  IO_ERROR_ACTION_NAMES,
  LIFECYCLE_NAMES,
  nameOf,
  POOL_LIFECYCLE_NAMES,
} from '../events.ts';
import type { EventName } from '../messages.ts';
import { readTypedParams } from './layouts.ts';
import { lastError, nameOfHandle, native, type Pointer, uuidOf } from './native.ts';

interface EventSpec {
  on: 'domain' | 'pool';
  /** virDomainEventID or virStoragePoolEventID. */
  id: number;
  name: EventName;
  /** Type the callback returns: only lifecycle callbacks of domains return int. */
  returns?: 'int';
  /** Types of the arguments between the domain or pool and the opaque pointer. */
  args: string[];
  /** The event's own fields from those arguments. */
  fields: (...args: never[]) => Record<string, unknown>;
}

const alias = (device: string) => ({ alias: device });

const EVENTS: EventSpec[] = [
  {
    on: 'domain',
    id: 0,
    name: 'lifecycle',
    returns: 'int',
    args: ['int', 'int'],
    fields: (code: number, detail: number) => ({ event: nameOf(LIFECYCLE_NAMES, code), code, detail }),
  },
  { on: 'domain', id: 1, name: 'reboot', args: [], fields: () => ({}) },
  {
    on: 'domain',
    id: 9,
    name: 'ioError',
    args: ['str', 'str', 'int', 'str'],
    fields: (path: string, device: string, action: number, reason: string) => ({
      path,
      alias: device,
      action: nameOf(IO_ERROR_ACTION_NAMES, action),
      reason,
    }),
  },
  { on: 'domain', id: 15, name: 'deviceRemoved', args: ['str'], fields: alias },
  {
    on: 'domain',
    id: 16,
    name: 'blockJob',
    args: ['str', 'int', 'int'],
    fields: (disk: string, type: number, code: number) => ({
      disk,
      type,
      status: nameOf(BLOCK_JOB_STATUS_NAMES, code),
      code,
    }),
  },
  {
    on: 'domain',
    id: 18,
    name: 'agentLifecycle',
    args: ['int', 'int'],
    fields: (state: number, reason: number) => ({
      state: nameOf(AGENT_STATE_NAMES, state),
      reason: nameOf(AGENT_REASON_NAMES, reason),
    }),
  },
  { on: 'domain', id: 19, name: 'deviceAdded', args: ['str'], fields: alias },
  {
    on: 'domain',
    id: 21,
    name: 'jobCompleted',
    args: ['void *', 'int'],
    // The parameters belong to libvirt, which frees them after the callback.
    fields: (params: Pointer | null, count: number) => ({ params: readTypedParams(params, count) }),
  },
  { on: 'domain', id: 22, name: 'deviceRemovalFailed', args: ['str'], fields: alias },
  {
    on: 'domain',
    id: 23,
    name: 'metadataChange',
    args: ['int', 'str'],
    fields: (type: number, uri: string | null) => ({ type, uri }),
  },
  {
    on: 'pool',
    id: 0,
    name: 'poolLifecycle',
    args: ['int', 'int'],
    fields: (code: number) => ({ event: nameOf(POOL_LIFECYCLE_NAMES, code), code }),
  },
  { on: 'pool', id: 1, name: 'poolRefresh', args: [], fields: () => ({}) },
];

const REGISTER = {
  domain: 'virConnectDomainEventRegisterAny',
  pool: 'virConnectStoragePoolEventRegisterAny',
} as const;
const DEREGISTER = {
  domain: 'virConnectDomainEventDeregisterAny',
  pool: 'virConnectStoragePoolEventDeregisterAny',
} as const;

/** What to undo: libvirt's number of each subscription, and the native function koffi made for it. */
export type Subscriptions = { on: 'domain' | 'pool'; id: number; callback: Pointer }[];

/** Subscribes to every event the driver knows. @throws NativeError when the connection fails */
export function subscribe(
  conn: Pointer,
  emit: (event: EventName, data: EventSource & Record<string, unknown>) => void,
): Subscriptions {
  const subscriptions: Subscriptions = [];
  try {
    for (const spec of EVENTS) {
      const callback = callbackOf(spec, emit);
      const register = native(REGISTER[spec.on], 'int', [
        'void *',
        'void *',
        'int',
        'void *',
        'void *',
        'void *',
      ]);
      const id = register(conn, null, spec.id, callback, null, null) as number;
      if (id >= 0) {
        subscriptions.push({ on: spec.on, id, callback });
        continue;
      }
      const error = lastError(`${REGISTER[spec.on]} failed`);
      koffi.unregister(callback);
      // Drivers without this event, or without storage, are served all the same.
      if (error.fields.code !== ErrorCode.NO_SUPPORT) throw error;
    }
  } catch (error) {
    unsubscribe(conn, subscriptions);
    throw error;
  }
  return subscriptions;
}

/** Ends subscriptions; on a dead connection the daemon's part is gone already and the errors mean nothing. */
export function unsubscribe(conn: Pointer, subscriptions: Subscriptions): void {
  for (const { on, id } of subscriptions) native(DEREGISTER[on], 'int', ['void *', 'int'])(conn, id);
  for (const { callback } of subscriptions) koffi.unregister(callback);
}

const types = new Map<string, TypeObject>();

function callbackOf(spec: EventSpec, emit: Parameters<typeof subscribe>[1]): Pointer {
  let type = types.get(spec.name);
  if (!type) {
    type = koffi.pointer(koffi.proto(spec.returns ?? 'void', ['void *', 'void *', ...spec.args, 'void *']));
    types.set(spec.name, type);
  }
  return koffi.register((_conn: Pointer, source: Pointer, ...rest: unknown[]) => {
    const fields = spec.fields(...(rest.slice(0, -1) as never[]));
    emit(spec.name, { uuid: uuidOf(spec.on, source), name: nameOfHandle(spec.on, source), ...fields });
    return spec.returns ? 0 : undefined;
  }, type);
}
