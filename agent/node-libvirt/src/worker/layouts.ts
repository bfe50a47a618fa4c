// C layouts of what libvirt fills in, and their conversion to plain data.

import koffi, { type TypeObject } from 'koffi';
import type { BlockCopyParams, InterfaceAddress, TypedParams } from '../types.ts';
import { checkNumber } from './check.ts';
import { lastError, native, type Pointer } from './native.ts';

/** Structures made of numbers (and `model`), by the name of the token in calls.ts. */
export const STRUCTS: Record<string, TypeObject> = {
  'out:DomainInfo': koffi.struct({
    state: 'uchar',
    maxMemoryKiB: 'ulong',
    memoryKiB: 'ulong',
    vcpus: 'ushort',
    cpuTimeNs: 'uint64',
  }),
  'out:BlockInfo': koffi.struct({ capacity: 'uint64', allocation: 'uint64', physical: 'uint64' }),
  'out:BlockStats': koffi.struct({
    readRequests: 'int64',
    readBytes: 'int64',
    writeRequests: 'int64',
    writeBytes: 'int64',
    errors: 'int64',
  }),
  'out:BlockJobInfo': koffi.struct({ type: 'int', bandwidth: 'ulong', cur: 'uint64', end: 'uint64' }),
  'out:NodeInfo': koffi.struct({
    cpuModel: koffi.array('char', 32, 'String'),
    memoryKiB: 'ulong',
    cpus: 'uint',
    mhz: 'uint',
    numaNodes: 'uint',
    sockets: 'uint',
    cores: 'uint',
    threads: 'uint',
  }),
  'out:PoolInfo': koffi.struct({
    state: 'int',
    capacity: 'uint64',
    allocation: 'uint64',
    available: 'uint64',
  }),
  'out:VolInfo': koffi.struct({ type: 'int', capacity: 'uint64', allocation: 'uint64' }),
};

/** Scalars libvirt fills in: an array of one number in koffi. */
export const SCALARS: Record<string, string> = {
  'out:int': 'int',
  'out:uint': 'uint',
  'out:ulong': 'ulong',
  'out:int64': 'int64',
};

/** koffi gives bigints beyond 2^53; the API speaks numbers. */
export function plain<T>(value: T): T {
  if (typeof value === 'bigint') return Number(value) as T;
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, field]) => [key, plain(field)])) as T;
}

/** The pointers of an array that libvirt allocated. */
export function pointers(list: Pointer, count: number): Pointer[] {
  if (count <= 0) return [];
  return Array.from(koffi.decode(list, 'uint64', count) as Iterable<number | bigint>, BigInt);
}

export function freeMemory(pointer: Pointer): void {
  koffi.free(pointer);
}

// Typed parameters -----------------------------------------------------------------------------------------------------

// struct virTypedParameter: char field[80]; int type at 80; the value's union at 88; 96 bytes in all.
const PARAM_BYTES = 96;
const PARAM_TYPE_AT = 80;
const PARAM_VALUE_AT = 88;
/** By virTypedParameterType: int, uint, long long, unsigned long long, double, boolean (a char), string. */
const PARAM_TYPES = [null, 'int', 'uint', 'int64', 'uint64', 'double', 'char', 'str'] as const;

/** Reads an array of virTypedParameter; does not free it. */
export function readTypedParams(list: Pointer | null, count: number): TypedParams {
  const params: TypedParams = {};
  for (let i = 0; list && i < count; i++) {
    const at = list + BigInt(i * PARAM_BYTES);
    const type = PARAM_TYPES[koffi.decode(at, PARAM_TYPE_AT, 'int') as number];
    if (!type) continue;
    const value = koffi.decode(at, PARAM_VALUE_AT, type) as number | bigint | string | null;
    params[koffi.decode.string(at)] =
      type === 'char' ? Boolean(value) : (plain(value ?? '') as number | string);
  }
  return params;
}

export function freeTypedParams(list: Pointer | null, count: number): void {
  if (list) native('virTypedParamsFree', 'void', ['void *', 'int'])(list, count);
}

/** Names of virDomainBlockCopy's parameters with the function that adds each. */
const COPY_PARAMS = {
  bandwidthBytesPerSec: ['bandwidth', 'virTypedParamsAddULLong', 'uint64'],
  granularityBytes: ['granularity', 'virTypedParamsAddUInt', 'uint'],
  bufferBytes: ['buf-size', 'virTypedParamsAddULLong', 'uint64'],
} as const;

/** Builds typed parameters; free them with `freeTypedParams`. */
export function buildCopyParams(given: BlockCopyParams): { list: Pointer | null; count: number } {
  const list: [Pointer | null] = [null];
  const count: [number] = [0];
  const max: [number] = [0];
  for (const key of Object.keys(COPY_PARAMS) as (keyof typeof COPY_PARAMS)[]) {
    const value = given[key];
    if (value === undefined) continue;
    const [name, add, type] = COPY_PARAMS[key];
    const inout = (target: string) => koffi.inout(koffi.pointer(target)) as unknown as TypeObject;
    const args = [inout('void *'), inout('int'), inout('int'), 'str', type];
    if ((native(add, 'int', args)(list, count, max, name, checkNumber(type, value)) as number) < 0) {
      const error = lastError(`${add} failed`);
      freeTypedParams(list[0], count[0]);
      throw error;
    }
  }
  return { list: list[0], count: count[0] };
}

// Lists of structures --------------------------------------------------------------------------------------------------

const IP_ADDRESS = koffi.struct({ type: 'int', addr: 'str', prefix: 'uint' });
const INTERFACE = koffi.struct({ name: 'str', hwaddr: 'str', naddrs: 'uint', addrs: 'void *' });

interface RawInterface {
  name: string;
  hwaddr: string | null;
  naddrs: number;
  addrs: Pointer | null;
}

/** Reads and frees the result of virDomainInterfaceAddresses. */
export function takeInterfaces(list: Pointer, count: number): InterfaceAddress[] {
  const free = native('virDomainInterfaceFree', 'void', ['void *']);
  const interfaces = pointers(list, count).map(pointer => {
    const raw = koffi.decode(pointer, INTERFACE) as RawInterface;
    const found = raw.addrs
      ? (koffi.decode(raw.addrs, IP_ADDRESS, raw.naddrs) as { type: number; addr: string; prefix: number }[])
      : [];
    const addresses = found.map(({ type, addr, prefix }) => ({
      family: type === 0 ? ('ipv4' as const) : ('ipv6' as const),
      address: addr,
      prefix,
    }));
    free(pointer);
    return { name: raw.name, mac: raw.hwaddr, addresses };
  });
  freeMemory(list);
  return interfaces;
}

const STATS_RECORD = koffi.struct({ dom: 'void *', params: 'void *', nparams: 'int' });

/** Reads and frees the result of virConnectGetAllDomainStats. */
export function takeDomainStats<T>(
  list: Pointer,
  count: number,
  refOf: (domain: Pointer) => T,
): (T & { params: TypedParams })[] {
  const stats = pointers(list, count).map(pointer => {
    const raw = koffi.decode(pointer, STATS_RECORD) as { dom: Pointer; params: Pointer; nparams: number };
    return { ...refOf(raw.dom), params: readTypedParams(raw.params, raw.nparams) };
  });
  native('virDomainStatsRecordListFree', 'void', ['void *'])(list);
  return stats;
}
