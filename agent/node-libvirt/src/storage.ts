import type { Caller } from './caller.ts';
import { ErrorCode } from './constants.ts';
import { nullOn } from './null-on.ts';
import type { CallOptions, PoolInfo, PoolRef, VolInfo, VolRef } from './types.ts';

/** A storage pool, named by its uuid. */
export class StoragePool {
  readonly uuid: string;
  readonly name: string;
  readonly #caller: Caller;
  readonly #target: readonly string[];

  constructor(caller: Caller, ref: PoolRef) {
    this.#caller = caller;
    this.uuid = ref.uuid;
    this.name = ref.name;
    this.#target = [ref.uuid];
  }

  /** The pool XML; flags `PoolXml`. */
  xml(flags = 0, options?: CallOptions): Promise<string> {
    return this.#caller.call('virStoragePoolGetXMLDesc', this.#target, [flags], options);
  }

  /** State and sizes as of the last refresh. */
  info(options?: CallOptions): Promise<PoolInfo> {
    return this.#caller.call('virStoragePoolGetInfo', this.#target, [], options);
  }

  isActive(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virStoragePoolIsActive', this.#target, [], options);
  }

  isPersistent(options?: CallOptions): Promise<boolean> {
    return this.#caller.call('virStoragePoolIsPersistent', this.#target, [], options);
  }

  async autostart(options?: CallOptions): Promise<boolean> {
    return (await this.#caller.call('virStoragePoolGetAutostart', this.#target, [], options)) !== 0;
  }

  setAutostart(on: boolean, options?: CallOptions): Promise<void> {
    return this.#caller.call('virStoragePoolSetAutostart', this.#target, [on ? 1 : 0], options);
  }

  /** Makes the pool's directory or volume group; flags `PoolBuild`. */
  build(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virStoragePoolBuild', this.#target, [flags], options);
  }

  /** Starts a defined pool; flags `PoolCreate`. */
  create(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virStoragePoolCreate', this.#target, [flags], options);
  }

  /** Stops the pool; its data stay. */
  destroy(options?: CallOptions): Promise<void> {
    return this.#caller.call('virStoragePoolDestroy', this.#target, [], options);
  }

  /** Deletes the storage under a stopped pool (an empty directory); flags `PoolDelete`. */
  delete(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virStoragePoolDelete', this.#target, [flags], options);
  }

  undefine(options?: CallOptions): Promise<void> {
    return this.#caller.call('virStoragePoolUndefine', this.#target, [], options);
  }

  /** Reads the pool's content anew. */
  refresh(options?: CallOptions): Promise<void> {
    return this.#caller.call('virStoragePoolRefresh', this.#target, [0], options);
  }

  async volumes(options?: CallOptions): Promise<StorageVol[]> {
    const refs = await this.#caller.call('virStoragePoolListAllVolumes', this.#target, [0], options);
    return refs.map(ref => new StorageVol(this.#caller, ref));
  }

  /** A volume by name, or null. */
  async findVolume(name: string, options?: CallOptions): Promise<StorageVol | null> {
    const ref = await nullOn(
      ErrorCode.NO_STORAGE_VOL,
      this.#caller.call('virStorageVolLookupByName', this.#target, [name], options),
    );
    return ref && new StorageVol(this.#caller, ref);
  }

  /** Makes a volume from XML; flags `VolCreate`. */
  async createVolume(xml: string, flags = 0, options?: CallOptions): Promise<StorageVol> {
    const ref = await this.#caller.call('virStorageVolCreateXML', this.#target, [xml, flags], options);
    return new StorageVol(this.#caller, ref);
  }
}

/** A storage volume, named by its pool's uuid and its own name. */
export class StorageVol {
  readonly poolUuid: string;
  readonly name: string;
  readonly key: string;
  readonly #caller: Caller;
  readonly #target: readonly string[];

  constructor(caller: Caller, ref: VolRef) {
    this.#caller = caller;
    this.poolUuid = ref.pool;
    this.name = ref.name;
    this.key = ref.key;
    this.#target = [ref.pool, ref.name];
  }

  xml(options?: CallOptions): Promise<string> {
    return this.#caller.call('virStorageVolGetXMLDesc', this.#target, [0], options);
  }

  info(options?: CallOptions): Promise<VolInfo> {
    return this.#caller.call('virStorageVolGetInfo', this.#target, [], options);
  }

  path(options?: CallOptions): Promise<string> {
    return this.#caller.call('virStorageVolGetPath', this.#target, [], options);
  }

  /** Resizes to so many bytes; flags `VolResize`. */
  resize(sizeBytes: number, flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virStorageVolResize', this.#target, [sizeBytes, flags], options);
  }

  /** Deletes the volume and its data; flags `VolDelete`. */
  delete(flags = 0, options?: CallOptions): Promise<void> {
    return this.#caller.call('virStorageVolDelete', this.#target, [flags], options);
  }
}
