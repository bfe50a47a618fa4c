/**
 * What was read of the node: libvirt's domains and pools, the headers of disk images, file systems. Reading changes it
 * thing by thing; nothing here tells anybody.
 */
import type { Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf } from '@virtkeep/shared/errors';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import type { DomainConfig } from '../domain-xml/index.ts';
import {
  type BackupFiles,
  chosenBase,
  type FsFacts,
  fsFacts,
  mountPointOf,
  type PathGate,
  type PoolPlace,
  type PoolRecord,
  poolMarks,
  ROOT_MOUNT,
  rememberPlaces,
  type Settings,
} from '../pools/index.ts';
import type { StateFacts } from '../snapshots/index.ts';
import { asSavedState, zfsInstants } from '../snapshots/index.ts';
import type { ZfsDriver } from '../zfs/index.ts';
import { derivePools } from './derive-pools.ts';
import { type DiskFacts, readDiskFacts } from './disk-facts.ts';
import { type DomainFacts, readDomainFacts } from './domain-facts.ts';
import { type Glance, glanceAtAll } from './glance.ts';
import { type OwnershipRule, readPools } from './pool-facts.ts';
import { keepIfEqual } from './shown.ts';

export interface ModelOptions {
  libvirt(): Libvirt;
  nodeId: string;
  settings: Settings;
  zfs: ZfsDriver;
  /** Keeps hung file systems from holding up others. */
  gate: PathGate;
  backupFiles: BackupFiles;
  log: Logger;
  /** Uuid or name of the base pool as long as nobody chose one. */
  defaultBase?: string | undefined;
  /** What is done about pools in which others than root may write. Default: warn. */
  ownership?: OwnershipRule;
}

/** What a domain's message is made of besides its facts, as far as it was read. */
export interface ModelScope {
  places: readonly PoolPlace[];
  disks: DiskFacts | undefined;
  /** The template of a thin clone, when it is on this node. */
  template: DomainConfig | undefined;
  /** The state of disks that it lends from zfs. */
  lentState: StateFacts | undefined;
}

/** Domains read at a time; each takes a few short calls, one when it is as it was and has no saved state. */
const WIDTH = 8;

export class NodeModel {
  readonly #options: ModelOptions;
  readonly #signal: AbortSignal;
  /** One read of a domain, or of the pools, at a time: an event's and that of everything overlap; the older must not end last. */
  readonly #reads = new KeyedQueue();
  readonly #domains = new Map<string, DomainFacts>();
  readonly #disks = new Map<string, DiskFacts>();
  readonly #outsideFacts = new Map<string, FsFacts>();
  /** What domains lend from zfs, by their ids. */
  #lentStates: ReadonlyMap<string, StateFacts> = new Map();
  #libvirtPools: PoolRecord[] = [];
  #pools: PoolRecord[] = [];
  #places: readonly PoolPlace[] = [];

  /** @param signal ends all reading */
  constructor(options: ModelOptions, signal: AbortSignal) {
    this.#options = options;
    this.#signal = signal;
  }

  get domains(): DomainFacts[] {
    return [...this.#domains.values()];
  }

  /** libvirt's pools and those of files outside of them, as of the last `derivePools`. */
  get pools(): readonly PoolRecord[] {
    return this.#pools;
  }

  domain(domainId: string): DomainFacts | undefined {
    return this.#domains.get(domainId);
  }

  /** What a domain's message is made of besides its facts; what has not changed is the same object as before. */
  scopeOf({ uuid, config }: DomainFacts): ModelScope {
    return {
      places: this.#places,
      disks: this.#disks.get(uuid),
      template: this.#domains.get(config?.metadata.parent?.id ?? '')?.config,
      lentState: this.#lentStates.get(uuid),
    };
  }

  /** The domains whose metadata says that they lend a disk: by borrower and disk. */
  lenders(): Map<string, Map<string, string>> {
    const lenders = new Map<string, Map<string, string>>();
    for (const { uuid, config } of this.#domains.values())
      for (const { diskId, borrowerId } of config?.metadata.loans ?? []) {
        const ofBorrower = lenders.get(borrowerId) ?? new Map<string, string>();
        lenders.set(borrowerId, ofBorrower);
        if (!ofBorrower.has(diskId)) ofBorrower.set(diskId, uuid);
      }
    return lenders;
  }

  /** Domains whose lent disks are on zfs, as last seen. */
  get lendingFromZfs(): string[] {
    return [...this.#lentStates.keys()];
  }

  /** Domains, pools and file systems; the backup files are read by `readAllFiles`. @throws LibvirtError */
  async readAll(): Promise<void> {
    await this.readPools();
    const { domains, glances } = await glanceAtAll(this.#options.libvirt());
    await mapLimited(domains, WIDTH, ({ uuid, name }) => this.readDomain(uuid, name, glances.get(uuid)));
    for (const id of [...this.#domains.keys()]) if (!glances.has(id)) await this.readDomain(id);
    await this.#readOutside();
    await this.#readLentStates();
  }

  /** @throws LibvirtError */
  readDomain(id: string, name = '', glance?: Glance): Promise<void> {
    return this.#reads.run(id, () => this.#readDomain(id, name, glance));
  }

  async #readDomain(id: string, name: string, glance: Glance | undefined): Promise<void> {
    throwIfAborted(this.#signal);
    const old = this.#domains.get(id);
    const facts = await readDomainFacts(this.#options.libvirt().domain(id, name || old?.name), old, glance);
    if (!facts) {
      this.#domains.delete(id);
      this.#disks.delete(id);
      return;
    }
    this.#domains.set(id, facts);
    if (!facts.config) return;
    // libvirt has no event for what zfs does
    if (facts.config.metadata.loans || this.#lentStates.has(id)) await this.#readLentStates();
    const disks = await readDiskFacts(facts.config, this.#pools, this.#options.gate, this.#disks.get(id));
    // it may have been removed while its headers were read
    if (this.#domains.has(id)) this.#disks.set(id, keepIfEqual(this.#disks.get(id), disks));
  }

  /** @throws LibvirtError */
  readPools(): Promise<void> {
    return this.#reads.run('pools', () => this.#readPools());
  }

  async #readPools(): Promise<void> {
    const { libvirt, settings, gate, log, ownership = 'warn' } = this.#options;
    const before = new Map(this.#libvirtPools.map(pool => [pool.id, pool.othersMayWrite?.how]));
    this.#libvirtPools = await readPools(libvirt(), { settings, gate, log, ownership });
    for (const { id, name, othersMayWrite } of this.#libvirtPools)
      if (othersMayWrite && othersMayWrite.how !== before.get(id))
        log.warn('others than root may change what is in a data pool', { pool: name, ...othersMayWrite });
    this.derivePools();
    await this.#rememberOutside();
  }

  /** Directories without a pool are remembered where a file system of their own is mounted; they get no marker. */
  async #rememberOutside(): Promise<void> {
    const outside = this.#pools.filter(pool => pool.kind === 'outside');
    const { gate, settings } = this.#options;
    const places = await mapLimited(outside, WIDTH, async ({ id, name, path }) => {
      // one that hangs is what it was
      const mountPoint = await gate.run(id, () => mountPointOf(path!));
      return mountPoint === undefined || mountPoint === ROOT_MOUNT
        ? []
        : { id, name, path: path!, mountPoint, marker: false };
    });
    rememberPlaces(settings, places.flat());
  }

  async readAllFiles(onChange: () => void): Promise<void> {
    for (const pool of this.#pools) await this.readFiles(pool.id, onChange);
    this.#options.backupFiles.keepOnly(new Set(this.#pools.map(pool => pool.id)));
  }

  /**
   * Looks at the backup files of a pool. A first look at many archives takes long: the gate stops waiting for it.
   * @param onChange called when something is different, be it after this has returned
   */
  async readFiles(poolId: string, onChange: () => void): Promise<void> {
    const pool = this.#pools.find(candidate => candidate.id === poolId);
    if (!pool?.path || !pool.hasDirectory || !pool.active || !pool.mounted) return;
    const place = { id: pool.id, path: pool.path };
    const { backupFiles, log } = this.#options;
    try {
      await this.#options.gate.run(`files ${pool.id}`, async () => {
        if (await backupFiles.refresh(place, { signal: this.#signal })) onChange();
      });
    } catch (error) {
      if (!this.#signal.aborted)
        log.warn('backup files cannot be listed', { pool: pool.name, reason: reasonOf(error) });
    }
  }

  /** Computes the pools anew from what was read and the marks as they are now. */
  derivePools(): void {
    const { settings, nodeId, defaultBase } = this.#options;
    const disks = this.domains.flatMap(facts => facts.config?.disks ?? []);
    this.#pools = derivePools({
      libvirtPools: this.#libvirtPools,
      filePaths: disks.flatMap(disk => (disk.type === 'file' ? (disk.path ?? []) : [])),
      outsideFacts: this.#outsideFacts,
      nodeId,
      marksOf: poolId => poolMarks(settings, poolId),
      chosenBase: chosenBase(settings),
      defaultBase,
    });
    const places = this.#pools.map(({ id, name, path, outside }) => ({
      id,
      name,
      outside,
      ...(path !== undefined && { path }),
    }));
    this.#places = keepIfEqual(this.#places, places);
  }

  /** zfs that does not answer leaves what was seen before. */
  async #readLentStates(): Promise<void> {
    try {
      const instants = await zfsInstants(this.#options.zfs, this.#signal);
      const states = [...instants].map(
        ([id, instant]) => [id, keepIfEqual(this.#lentStates.get(id), asSavedState(instant))] as const,
      );
      this.#lentStates = new Map(states);
    } catch (error) {
      if (!this.#signal.aborted) this.#options.log.warn('zfs cannot be read', { reason: reasonOf(error) });
    }
  }

  /** Sizes of the file systems of outside pools. */
  async #readOutside(): Promise<void> {
    this.derivePools();
    for (const { id, path } of this.#pools.filter(pool => pool.kind === 'outside')) {
      const facts = await this.#options.gate.run(id, () => fsFacts(path!)).catch(() => undefined);
      if (facts) this.#outsideFacts.set(path!, facts);
      else this.#outsideFacts.delete(path!);
    }
  }
}
