import { EventEmitter } from 'node:events';
import type { Caller } from './caller.ts';
import { Connection } from './connection.ts';
import { ErrorCode } from './constants.ts';
import { Domain } from './domain.ts';
import { LibvirtError, ownError } from './error.ts';
import type { LibvirtEvents } from './events.ts';
import { nullOn } from './null-on.ts';
import { StoragePool, StorageVol } from './storage.ts';
import type { CallOptions, ConnectOptions, DomainStats, NodeInfo, Versions } from './types.ts';

/** Fields of `domainCapabilities`; what is left out is libvirt's default. */
export interface DomainCapabilitiesQuery {
  emulator?: string;
  arch?: string;
  machine?: string;
  virtType?: string;
}

/**
 * Opens a connection and subscribes to its events.
 * @param uri e.g. `qemu:///system`, `qemu+unix:///system?socket=/path/libvirt-sock`
 * @throws LibvirtError kind `library` (no libvirt.so.0), `connection` (refused), `timeout`, `aborted`
 */
export async function connect(uri: string, options: ConnectOptions = {}): Promise<Libvirt> {
  const emitter = new EventEmitter<LibvirtEvents>();
  const connection = new Connection(uri, options, emitter);
  await connection.open();
  return new Libvirt(connection, emitter);
}

/** A connection to one libvirtd. Made by `connect`; `close` it. */
export class Libvirt {
  readonly #connection: Connection;
  readonly #emitter: EventEmitter<LibvirtEvents>;
  readonly #caller: Caller;

  constructor(connection: Connection, emitter: EventEmitter<LibvirtEvents>) {
    this.#connection = connection;
    this.#emitter = emitter;
    this.#caller = connection;
    emitter.setMaxListeners(0);
  }

  get uri(): string {
    return this.#connection.uri;
  }

  /** False between `closed` and `reconnected`. Calls made meanwhile try to connect and fail with kind `connection`. */
  get connected(): boolean {
    return this.#connection.connected;
  }

  /** Ends the connection: waiting calls fail with kind `closed`. Idempotent. */
  close(): Promise<void> {
    return this.#connection.close();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // Events -----------------------------------------------------------------------------------------------------------

  /** Calls the listener at each event; returns the function that ends it. */
  on<E extends keyof LibvirtEvents>(event: E, listener: (...args: LibvirtEvents[E]) => void): () => void {
    const emitter = this.#emitter as unknown as EventEmitter;
    emitter.on(event, listener as (...args: unknown[]) => void);
    return () => emitter.off(event, listener as (...args: unknown[]) => void);
  }

  /**
   * Waits for the next event that matches. Start waiting before the call that causes it.
   * @throws LibvirtError kind `timeout` or `aborted`
   */
  async waitFor<E extends keyof LibvirtEvents>(
    event: E,
    matches: (...args: LibvirtEvents[E]) => boolean,
    options: Pick<CallOptions, 'signal' | 'timeoutMs'> = {},
  ): Promise<LibvirtEvents[E]> {
    const emitter = this.#emitter as unknown as EventEmitter;
    const deadline = options.timeoutMs ? AbortSignal.timeout(options.timeoutMs) : undefined;
    const signal = AbortSignal.any([options.signal, deadline].filter(s => s !== undefined));
    const failure = () => {
      const kind = options.signal?.aborted ? 'aborted' : 'timeout';
      return new LibvirtError(ownError(kind, `no such event: ${event}`), `waitFor ${event}`, {
        cause: signal.reason,
      });
    };
    if (signal.aborted) throw failure();
    const { promise, resolve, reject } = Promise.withResolvers<LibvirtEvents[E]>();
    const onEvent = (...args: unknown[]) => {
      try {
        if (matches(...(args as LibvirtEvents[E]))) resolve(args as LibvirtEvents[E]);
      } catch (error) {
        reject(error);
      }
    };
    const onAbort = () => reject(failure());
    emitter.on(event, onEvent);
    signal.addEventListener('abort', onAbort);
    try {
      return await promise;
    } finally {
      emitter.off(event, onEvent);
      signal.removeEventListener('abort', onAbort);
    }
  }

  // Host -------------------------------------------------------------------------------------------------------------

  async versions(options?: CallOptions): Promise<Versions> {
    const library = await this.#caller.call('virGetVersion', [], [null, null], options);
    const daemon = await this.#caller.call('virConnectGetLibVersion', [], [], options);
    const hypervisor = await nullOn(
      ErrorCode.NO_SUPPORT,
      this.#caller.call('virConnectGetVersion', [], [], options),
    );
    return {
      library: versionText(library),
      daemon: versionText(daemon),
      hypervisor: hypervisor === null ? null : versionText(hypervisor),
    };
  }

  hostname(options?: CallOptions): Promise<string> {
    return this.#caller.call('virConnectGetHostname', [], [], options);
  }

  /** The capabilities XML of the host. */
  capabilities(options?: CallOptions): Promise<string> {
    return this.#caller.call('virConnectGetCapabilities', [], [], options);
  }

  /** The capabilities XML of an emulator and machine type. */
  domainCapabilities(query: DomainCapabilitiesQuery = {}, options?: CallOptions): Promise<string> {
    const { emulator = null, arch = null, machine = null, virtType = null } = query;
    const args: [string | null, string | null, string | null, string | null, number] = [
      emulator,
      arch,
      machine,
      virtType,
      0,
    ];
    return this.#caller.call('virConnectGetDomainCapabilities', [], args, options);
  }

  /** The host's uuid as libvirtd knows it (from its capabilities). */
  async hostUuid(options?: CallOptions): Promise<string> {
    const xml = await this.capabilities(options);
    const uuid = /<host>\s*<uuid>([0-9a-f-]{36})<\/uuid>/i.exec(xml)?.[1];
    if (uuid) return uuid;
    const fields = { code: ErrorCode.XML_ERROR, domain: 0, level: 2, kind: 'libvirt' } as const;
    throw new LibvirtError({ ...fields, message: 'no host uuid' }, 'virConnectGetCapabilities');
  }

  /** The SMBIOS XML of the host; error 67 or 3 where there is none. */
  sysinfo(options?: CallOptions): Promise<string> {
    return this.#caller.call('virConnectGetSysinfo', [], [0], options);
  }

  nodeInfo(options?: CallOptions): Promise<NodeInfo> {
    return this.#caller.call('virNodeGetInfo', [], [], options);
  }

  /** Free memory of the host in bytes. */
  freeMemory(options?: CallOptions): Promise<number> {
    return this.#caller.call('virNodeGetFreeMemory', [], [], options);
  }

  // Domains ----------------------------------------------------------------------------------------------------------

  /** Names of the virtual networks, running or not; none where libvirt has no driver for them. */
  async networks(options?: CallOptions): Promise<string[]> {
    const call = this.#caller.call('virConnectListAllNetworks', [], [0], options);
    return (await nullOn(ErrorCode.NO_SUPPORT, call)) ?? [];
  }

  /** All domains; filter `ListDomains`. */
  async domains(filter = 0, options?: CallOptions): Promise<Domain[]> {
    const refs = await this.#caller.call('virConnectListAllDomains', [], [filter], options);
    return refs.map(ref => new Domain(this.#caller, ref));
  }

  /** A domain by uuid, without asking libvirt whether it exists. `name` is empty unless given. */
  domain(uuid: string, name = ''): Domain {
    return new Domain(this.#caller, { uuid, name });
  }

  /** @throws LibvirtError 42 when there is none */
  async domainByName(name: string, options?: CallOptions): Promise<Domain> {
    return new Domain(this.#caller, await this.#caller.call('virDomainLookupByName', [], [name], options));
  }

  /** @throws LibvirtError 42 when there is none */
  async domainByUuid(uuid: string, options?: CallOptions): Promise<Domain> {
    const ref = await this.#caller.call('virDomainLookupByUUIDString', [], [uuid], options);
    return new Domain(this.#caller, ref);
  }

  /** Makes or changes a persistent domain; flags `DomainDefine`. */
  async defineDomain(xml: string, flags = 0, options?: CallOptions): Promise<Domain> {
    const ref = await this.#caller.call('virDomainDefineXMLFlags', [], [xml, flags], options);
    return new Domain(this.#caller, ref);
  }

  /** Starts a transient domain; flags `DomainStart`. */
  async createDomain(xml: string, flags = 0, options?: CallOptions): Promise<Domain> {
    return new Domain(this.#caller, await this.#caller.call('virDomainCreateXML', [], [xml, flags], options));
  }

  /** Statistics of all domains in one call. @param groups or-ed VIR_DOMAIN_STATS_*, 0 = all; @param filter `ListDomains` */
  domainStats(groups = 0, filter = 0, options?: CallOptions): Promise<DomainStats[]> {
    return this.#caller.call('virConnectGetAllDomainStats', [], [groups, filter], options);
  }

  /**
   * Starts a domain from saved memory. @param xml replaces the XML in the file: give it whenever disks have moved, else the
   * domain writes into the files that were current when it was saved; flags `SaveRestore`.
   */
  restoreDomain(file: string, xml: string | null = null, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainRestoreFlags', [], [file, xml, flags], options);
  }

  /** The domain XML inside a memory file; flags `SaveImageXml`. */
  saveImageXml(file: string, flags = 0, options?: CallOptions): Promise<string> {
    return this.#caller.call('virDomainSaveImageGetXMLDesc', [], [file, flags], options);
  }

  /** Replaces the domain XML inside a memory file (same name and uuid); flags `SaveRestore`. */
  defineSaveImageXml(file: string, xml: string, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virDomainSaveImageDefineXML', [], [file, xml, flags], options);
  }

  // Storage ----------------------------------------------------------------------------------------------------------

  /** All storage pools; filter `ListPools`. */
  async pools(filter = 0, options?: CallOptions): Promise<StoragePool[]> {
    const refs = await this.#caller.call('virConnectListAllStoragePools', [], [filter], options);
    return refs.map(ref => new StoragePool(this.#caller, ref));
  }

  /** A pool by uuid, without asking libvirt whether it exists. `name` is empty unless given. */
  pool(uuid: string, name = ''): StoragePool {
    return new StoragePool(this.#caller, { uuid, name });
  }

  /** @throws LibvirtError 49 when there is none */
  async poolByName(name: string, options?: CallOptions): Promise<StoragePool> {
    const ref = await this.#caller.call('virStoragePoolLookupByName', [], [name], options);
    return new StoragePool(this.#caller, ref);
  }

  /** @throws LibvirtError 49 when there is none */
  async poolByUuid(uuid: string, options?: CallOptions): Promise<StoragePool> {
    const ref = await this.#caller.call('virStoragePoolLookupByUUIDString', [], [uuid], options);
    return new StoragePool(this.#caller, ref);
  }

  /** The pool whose target is this directory, or null. */
  async poolByTarget(path: string, options?: CallOptions): Promise<StoragePool | null> {
    const call = this.#caller.call('virStoragePoolLookupByTargetPath', [], [path], options);
    const ref = await nullOn(ErrorCode.NO_STORAGE_POOL, call);
    return ref && new StoragePool(this.#caller, ref);
  }

  /** Makes or changes a persistent pool. */
  async definePool(xml: string, options?: CallOptions): Promise<StoragePool> {
    const ref = await this.#caller.call('virStoragePoolDefineXML', [], [xml, 0], options);
    return new StoragePool(this.#caller, ref);
  }

  /** Starts a transient pool; flags `PoolCreate`. */
  async createPool(xml: string, flags = 0, options?: CallOptions): Promise<StoragePool> {
    const ref = await this.#caller.call('virStoragePoolCreateXML', [], [xml, flags], options);
    return new StoragePool(this.#caller, ref);
  }

  /** The volume with this path, or null: also when its pool is stopped or has not been refreshed. */
  async volumeByPath(path: string, options?: CallOptions): Promise<StorageVol | null> {
    const call = this.#caller.call('virStorageVolLookupByPath', [], [path], options);
    const ref = await nullOn(ErrorCode.NO_STORAGE_VOL, call);
    return ref && new StorageVol(this.#caller, ref);
  }

  /** The volume with this key, or null. */
  async volumeByKey(key: string, options?: CallOptions): Promise<StorageVol | null> {
    const call = this.#caller.call('virStorageVolLookupByKey', [], [key], options);
    const ref = await nullOn(ErrorCode.NO_STORAGE_VOL, call);
    return ref && new StorageVol(this.#caller, ref);
  }
}

/** libvirt's version number 1 000 000·major + 1000·minor + release as text. */
function versionText(version: number): string {
  return `${Math.floor(version / 1e6)}.${Math.floor(version / 1000) % 1000}.${version % 1000}`;
}
