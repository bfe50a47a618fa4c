// From a line of calls.ts to a C call: prototype, arguments, result, and the freeing of all that libvirt handed out.

import koffi, { type TypeObject } from 'koffi';
import { type ArgToken, CALLS, type CallName, type CallSpec } from '../calls.ts';
import type { BlockCopyParams, DomainRef, PoolRef, VolRef } from '../types.ts';
import { checkNumber, checkString } from './check.ts';
import {
  buildCopyParams,
  freeMemory,
  freeTypedParams,
  plain,
  pointers,
  readTypedParams,
  SCALARS,
  STRUCTS,
  takeDomainStats,
  takeInterfaces,
} from './layouts.ts';
import {
  freeHandle,
  type HandleKind,
  lastError,
  type NativeFunction,
  nameOfHandle,
  native,
  type Pointer,
  uuidOf,
} from './native.ts';

const out = (type: string | TypeObject) => koffi.out(koffi.pointer(type)) as unknown as TypeObject;
const OWNED_TEXT = koffi.disposable('str');
const LISTS: Record<string, HandleKind> = {
  'out:domains': 'domain',
  'out:snapshots': 'snapshot',
  'out:pools': 'pool',
  'out:networks': 'network',
  'out:vols': 'vol',
};

/** One argument of a running call: what goes to C, how its result is read (`count` = what the function returned), its end. */
interface Slot {
  natives: unknown[];
  read?: (count: number) => unknown;
  dispose?: () => void;
}

function typesOf(token: ArgToken): (string | TypeObject)[] {
  if (token === 'strs') return ['const char **', 'uint'];
  if (token === 'copyParams') return ['void *', 'int'];
  if (token === 'out:typed') return [out('void *'), out('int')];
  if (token in SCALARS) return [out(SCALARS[token]!)];
  if (token in STRUCTS) return [out(STRUCTS[token]!)];
  if (token.startsWith('out:')) return [out('void *')];
  return [token === 'str?' ? 'str' : token];
}

function inSlot(token: ArgToken, value: unknown): Slot {
  switch (token) {
    case 'str':
      return { natives: [checkString(value)] };
    case 'str?':
      return { natives: [value === null ? null : checkString(value)] };
    case 'strs': {
      const strings = (value as unknown[]).map(checkString);
      return { natives: strings.length ? [strings, strings.length] : [null, 0] };
    }
    case 'copyParams': {
      const { list, count } = buildCopyParams(value as BlockCopyParams);
      return { natives: [list, count], dispose: () => freeTypedParams(list, count) };
    }
    default:
      return { natives: [checkNumber(token, value)] };
  }
}

function outSlot(token: ArgToken, target: readonly string[]): Slot {
  if (token in SCALARS) {
    const cell = [0];
    return { natives: [cell], read: () => plain(cell[0]) };
  }
  if (token in STRUCTS) {
    const struct = {};
    return { natives: [struct], read: () => plain(struct) };
  }
  const list: [Pointer | null] = [null];
  if (token === 'out:typed') {
    const size = [0];
    return {
      natives: [list, size],
      read: () => readTypedParams(list[0], size[0]!),
      dispose: () => freeTypedParams(list[0], size[0]!),
    };
  }
  if (token === 'out:text') return { natives: [list], read: () => (list[0] ? takeText(list[0]) : '') };
  return { natives: [list], read: count => (list[0] ? takeList(token, list[0], count, target) : []) };
}

function takeText(pointer: Pointer): string {
  try {
    return koffi.decode(pointer, 'char', -1) as string;
  } finally {
    freeMemory(pointer);
  }
}

function takeList(token: ArgToken, list: Pointer, count: number, target: readonly string[]): unknown[] {
  if (token === 'out:interfaces') return takeInterfaces(list, count);
  if (token === 'out:domainStats') return takeDomainStats(list, count, domainRef);
  const handles = pointers(list, count);
  freeMemory(list);
  return takeHandles(LISTS[token]!, handles, target);
}

// Handles to plain references ------------------------------------------------------------------------------------------

function domainRef(handle: Pointer): DomainRef {
  const id = native('virDomainGetID', 'uint', ['void *'])(handle) as number;
  return {
    uuid: uuidOf('domain', handle),
    name: nameOfHandle('domain', handle),
    id: id === 0xffffffff ? -1 : id,
  };
}

function poolRef(handle: Pointer): PoolRef {
  return { uuid: uuidOf('pool', handle), name: nameOfHandle('pool', handle) };
}

function volRef(handle: Pointer, poolUuid?: string): VolRef {
  const key = native('virStorageVolGetKey', 'str', ['void *'])(handle) as string;
  return { pool: poolUuid ?? poolOf(handle), name: nameOfHandle('vol', handle), key };
}

function poolOf(vol: Pointer): string {
  const pool = native('virStoragePoolLookupByVolume', 'void *', ['void *'])(vol) as Pointer | null;
  if (!pool) throw lastError('virStoragePoolLookupByVolume failed');
  try {
    return uuidOf('pool', pool);
  } finally {
    freeHandle('pool', pool);
  }
}

/** References of handles; frees every handle, also when one cannot be read. */
function takeHandles(kind: HandleKind, handles: Pointer[], target: readonly string[]): unknown[] {
  try {
    return handles.map(handle => {
      if (kind === 'domain') return domainRef(handle);
      if (kind === 'pool') return poolRef(handle);
      if (kind === 'vol') return volRef(handle, target[0]);
      return nameOfHandle(kind, handle);
    });
  } finally {
    for (const handle of handles) freeHandle(kind, handle);
  }
}

// Targets: looked up for one call, freed after it; those of domains are kept ---------------------------------------------

const LOOKUP = {
  domain: native.bind(null, 'virDomainLookupByUUIDString', 'void *', ['void *', 'str']),
  pool: native.bind(null, 'virStoragePoolLookupByUUIDString', 'void *', ['void *', 'str']),
  network: native.bind(null, 'virNetworkLookupByName', 'void *', ['void *', 'str']),
  snapshot: native.bind(null, 'virDomainSnapshotLookupByName', 'void *', ['void *', 'str', 'uint']),
  vol: native.bind(null, 'virStorageVolLookupByName', 'void *', ['void *', 'str']),
} as const;

function withHandle<T>(kind: HandleKind, parent: Pointer, name: string, use: (handle: Pointer) => T): T {
  const handle = lookUp(kind, parent, name);
  try {
    return use(handle);
  } finally {
    freeHandle(kind, handle);
  }
}

function lookUp(kind: HandleKind, parent: Pointer, name: string): Pointer {
  const extra = kind === 'snapshot' ? [0] : [];
  const handle = (LOOKUP[kind]() as NativeFunction)(parent, checkString(name), ...extra) as Pointer | null;
  if (!handle) throw lastError(`no such ${kind}`);
  return handle;
}

/**
 * Domains of this thread's connection that were looked up, the last used one last. For the daemon a handle is the uuid that it was looked
 * up by: it says whether that domain exists at each call. A lookup for each took half of what a call costs. One on which a call failed is
 * looked up again: errors tell the name that it had then.
 */
const keptDomains = new Map<string, Pointer>();
const MAX_KEPT_DOMAINS = 1000;

function withDomain<T>(conn: Pointer, uuid: string, use: (handle: Pointer) => T): T {
  const handle = keptDomains.get(uuid) ?? lookUp('domain', conn, uuid);
  keptDomains.delete(uuid);
  keptDomains.set(uuid, handle);
  const [oldest] = keptDomains.keys();
  if (keptDomains.size > MAX_KEPT_DOMAINS) forgetDomain(oldest!);
  try {
    return use(handle);
  } catch (error) {
    forgetDomain(uuid);
    throw error;
  }
}

function forgetDomain(uuid: string): void {
  freeHandle('domain', keptDomains.get(uuid)!);
  keptDomains.delete(uuid);
}

/** Before the connection is closed, which its handles keep open. */
export function forgetDomains(): void {
  for (const uuid of [...keptDomains.keys()]) forgetDomain(uuid);
}

function withTarget<T>(
  spec: CallSpec,
  conn: Pointer,
  target: readonly string[],
  use: (handle: Pointer | null) => T,
): T {
  const [first = '', second = ''] = target;
  switch (spec.on) {
    case 'none':
      return use(null);
    case 'conn':
      return use(conn);
    case 'domain':
      return withDomain(conn, first, use);
    case 'pool':
      return withHandle('pool', conn, first, use);
    case 'snapshot':
      return withDomain(conn, first, dom => withHandle('snapshot', dom, second, use));
    case 'vol':
      return withHandle('pool', conn, first, pool => withHandle('vol', pool, second, use));
  }
}

// The call -------------------------------------------------------------------------------------------------------------

function returnType(spec: CallSpec): string | TypeObject {
  if (spec.returns === 'text') return OWNED_TEXT;
  if (spec.returns === 'uint64') return 'uint64';
  return spec.returns in HANDLE_KINDS ? 'void *' : 'int';
}

const HANDLE_KINDS: Record<HandleKind, true> = {
  ...{ domain: true, snapshot: true, pool: true },
  ...{ network: true, vol: true },
};

function failed(spec: CallSpec, result: unknown): boolean {
  if (result === null) return true;
  if (spec.returns === 'uint64') return BigInt(result as number) === 0n;
  return typeof result === 'number' && result < 0;
}

function resultOf(spec: CallSpec, result: unknown, slots: Slot[], target: readonly string[]): unknown {
  switch (spec.returns) {
    case 'ok':
      return undefined;
    case 'int':
    case 'text':
    case 'uint64':
      return plain(result);
    case 'bool':
      return result !== 0;
    case 'out':
    case 'out?':
    case 'outs': {
      if (spec.returns === 'out?' && result === 0) return null;
      const values = slots.flatMap(slot => (slot.read ? [slot.read(result as number)] : []));
      return spec.returns === 'outs' ? values : values[0];
    }
    case 'domain':
    case 'snapshot':
    case 'pool':
    case 'vol':
      return takeHandles(spec.returns, [result as Pointer], spec.on === 'pool' ? target : [])[0];
  }
}

/** With their prototypes, whose making costs more than a short call. */
const functions = new Map<CallName, NativeFunction>();

function functionOf(name: CallName, spec: CallSpec): NativeFunction {
  const found = functions.get(name);
  if (found) return found;
  const head = spec.on === 'none' ? [] : ['void *'];
  const file = spec.qemu ? 'libvirt-qemu.so.0' : undefined;
  const made = native(name, returnType(spec), [...head, ...spec.args.flatMap(typesOf)], file);
  functions.set(name, made);
  return made;
}

/** Runs a libvirt function in this thread. @throws NativeError with libvirt's own error */
export function invoke(
  conn: Pointer,
  name: CallName,
  target: readonly string[],
  args: readonly unknown[],
): unknown {
  const spec: CallSpec = CALLS[name];
  const call = functionOf(name, spec);
  return withTarget(spec, conn, target, handle => {
    const slots: Slot[] = [];
    let next = 0;
    try {
      for (const token of spec.args) {
        slots.push(token.startsWith('out:') ? outSlot(token, target) : inSlot(token, args[next++]));
      }
      const natives = slots.flatMap(slot => slot.natives);
      const result = spec.on === 'none' ? call(...natives) : call(handle, ...natives);
      if (failed(spec, result)) throw lastError(`${name} failed`);
      return resultOf(spec, result, slots, target);
    } finally {
      for (const slot of slots) slot.dispose?.();
    }
  });
}
