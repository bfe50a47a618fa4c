/**
 * What the node has, as last seen: domains and pools, kept fresh by libvirt's events, by a look at everything from time to
 * time, and after each reconnection. A list is answered from here and never waits for libvirt; while libvirt is away the
 * last known state stands.
 */
import { join } from 'node:path';
import type { Libvirt, LibvirtEvents } from '@virtkeep/node-libvirt';
import { orAborted, throwIfAborted } from '@virtkeep/shared/abort';
import { BACKUPS_DIR } from '@virtkeep/shared/beneath';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { Domain, type GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type {
  InventoryEvent,
  Inventory as InventoryMessage,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { KeyedQueue } from '@virtkeep/shared/keyed-queue';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import { fromLibvirt } from '../libvirt/errors.ts';
import { type BackupFiles, isShared, type PathGate, type PoolRecord, type Settings } from '../pools/index.ts';
import type { ZfsDriver } from '../zfs/index.ts';
import { domainSource } from './domain-source.ts';
import { InventoryFeed } from './feed.ts';
import { poolMessage } from './messages.ts';
import { NodeModel } from './node-model.ts';
import type { OwnershipRule } from './pool-facts.ts';
import { Refresher } from './refresher.ts';
import { Revisions } from './revisions.ts';
import { Shown } from './shown.ts';
import { type HoldDomain, StateWatch } from './state-watch.ts';

/** The agent's connection, which may not be there yet. */
export interface LibvirtSource {
  readonly uri: string;
  readonly connected: boolean;
  /** @throws VirtkeepError libvirt_unreachable */
  get(): Libvirt;
  onChange(listener: (connected: boolean) => void): () => void;
}

export interface InventoryDependencies {
  link: LibvirtSource;
  nodeId: string;
  /** Name of the node, for error texts. */
  nodeName: string;
  settings: Settings;
  zfs: ZfsDriver;
  backupFiles: BackupFiles;
  gate: PathGate;
  /** Id of the operation that holds a domain, from the operations' locks. */
  lockedBy: (domainId: string) => string | undefined;
  /** Keeps operations away from a domain that is written to. */
  hold: HoldDomain;
  /** What a guest told of itself last. */
  guestInfo?: (domainId: string) => GuestInfo | undefined;
  /** Called when a pool is there that was not. */
  poolIsBack?: () => void;
  log: Logger;
  /** Uuid or name of the base pool as long as nobody chose one. */
  defaultBase?: string | undefined;
  /** What is done about pools in which others than root may write. Default: warn. */
  ownership?: OwnershipRule;
  /** How often everything is looked at, ms. Default 30 000. */
  refreshMs?: number;
}

/** Events of one domain within this time are one look, ms. */
const SETTLE_MS = 100;
/** What is read within this time is shown at once, ms. */
const SHOW_MS = 20;
/** What guests tell is less urgent, and comes from many, one after the other, ms. */
const SHOW_GUESTS_MS = 250;
const DEFAULT_REFRESH_MS = 30_000;
/** How long the end of an operation waits for a look at what it touched. */
const LOOK_TIMEOUT_MS = 10_000;
const LOOK_WIDTH = 8;
/** How long a question waits for the first look at everything; less than callers wait for the start of an operation. */
const FIRST_LOOK_MS = 10_000;
/** Events after which a domain is looked at. */
const DOMAIN_EVENTS = [
  'lifecycle',
  'agentLifecycle',
  'blockJob',
  'deviceAdded',
  'deviceRemoved',
  'jobCompleted',
  'metadataChange',
] as const satisfies (keyof LibvirtEvents)[];

const ALL = 'all';
const POOLS = 'pools';

export class Inventory {
  readonly #dependencies: InventoryDependencies;
  readonly #model: NodeModel;
  readonly #revisions: Revisions;
  readonly #feed = new InventoryFeed(
    () => ({ $case: 'full', value: this.snapshot() }),
    () => (this.#loaded ? this.#revisions.newest : 0n),
  );
  readonly #stopping = new AbortController();
  readonly #refresher: Refresher;
  readonly #states: StateWatch;
  readonly #looks = new KeyedQueue();
  readonly #shownDomains: Shown<Domain>;
  readonly #shownPools: Shown<Pool>;
  #unsubscribe: (() => void)[] = [];
  #subscribedTo: Libvirt | undefined;
  #timer: NodeJS.Timeout | undefined;
  #showTimer: NodeJS.Timeout | undefined;
  #guestTimer: NodeJS.Timeout | undefined;
  readonly #firstLook = Promise.withResolvers<void>();
  #loaded = false;
  #poolsThere: ReadonlySet<string> = new Set();

  constructor(dependencies: InventoryDependencies) {
    this.#dependencies = dependencies;
    this.#revisions = new Revisions(dependencies.settings);
    this.#shownDomains = new Shown(Domain, this.#revisions, {
      changed: (value, at) => this.#feed.publish(`domain ${value.id}`, { $case: 'domainChanged', value }, at),
      removed: (value, at) => this.#feed.publish(`domain ${value}`, { $case: 'domainRemoved', value }, at),
    });
    this.#shownPools = new Shown(Pool, this.#revisions, {
      changed: (value, at) => this.#feed.publish(`pool ${value.id}`, { $case: 'poolChanged', value }, at),
      removed: (value, at) => this.#feed.publish(`pool ${value}`, { $case: 'poolRemoved', value }, at),
    });
    this.#model = new NodeModel(
      { ...dependencies, libvirt: () => dependencies.link.get() },
      this.#stopping.signal,
    );
    this.#states = new StateWatch(dependencies.settings, dependencies.log);
    this.#refresher = new Refresher(SETTLE_MS, key => this.#refresh(key), dependencies.log);
  }

  /** Begins to look; returns at once. */
  start(): void {
    const { link, refreshMs = DEFAULT_REFRESH_MS } = this.#dependencies;
    this.#unsubscribe.push(link.onChange(connected => connected && this.#onConnected()));
    if (link.connected) this.#onConnected();
    this.#timer = setInterval(() => this.#refresher.request(ALL), refreshMs);
    this.#timer.unref();
  }

  /** Ends all looking; readers of `watch` are ended by their own signals. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    for (const end of this.#unsubscribe.splice(0)) end();
    this.#stopping.abort(new VirtkeepError('draining'));
    await this.#refresher.stop();
    clearTimeout(this.#showTimer);
    clearTimeout(this.#guestTimer);
  }

  /** Everything was looked at once. Before it, what is absent from the lists may well exist. */
  get loaded(): boolean {
    return this.#loaded;
  }

  /**
   * Waits until everything was looked at once. Whoever concludes from what is absent here asks this before: just after a start
   * of the agent everything is.
   * @throws VirtkeepError libvirt_unreachable when libvirt is not there, or answers too slowly
   */
  async complete(): Promise<void> {
    if (this.#loaded) return;
    const { link } = this.#dependencies;
    link.get();
    const limit = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(FIRST_LOOK_MS)]);
    await orAborted(this.#firstLook.promise, limit).catch(() => {
      const reason = 'its domains and pools are still being read for the first time';
      throw new VirtkeepError('libvirt_unreachable', { uri: link.uri, reason });
    });
  }

  /** All domains and pools as last seen, by name; empty before libvirt was reached. */
  snapshot(): InventoryMessage {
    return { node: undefined, domains: this.domains(), pools: this.poolMessages() };
  }

  watch(signal: AbortSignal): AsyncIterable<InventoryEvent> {
    return this.#feed.read(signal);
  }

  domains(): Domain[] {
    return this.#shownDomains.all();
  }

  poolMessages(): Pool[] {
    return this.#shownPools.all();
  }

  /** @throws VirtkeepError domain_not_found */
  domain(id: string): Domain {
    const message = this.#shownDomains.get(id);
    if (!message) throw new VirtkeepError('domain_not_found', { id });
    return message;
  }

  /** @throws VirtkeepError pool_not_found */
  pool(id: string): { message: Pool; record: PoolRecord } {
    const record = this.#model.pools.find(pool => pool.id === id);
    const message = this.#shownPools.get(id);
    if (!record || !message) throw new VirtkeepError('pool_not_found', { id });
    return { message, record };
  }

  /** The pools as they are now: asks libvirt and the file systems. @throws VirtkeepError libvirt_unreachable, libvirt_failed */
  async pools(signal: AbortSignal): Promise<PoolRecord[]> {
    throwIfAborted(signal);
    await this.#callLibvirt(() => this.#model.readPools());
    this.#show();
    return [...this.#model.pools];
  }

  /** Looks at one domain now (it was changed by us). @throws VirtkeepError libvirt_unreachable, libvirt_failed */
  async refreshDomain(id: string): Promise<void> {
    await this.#callLibvirt(() => this.#model.readDomain(id));
    this.#show();
  }

  /**
   * Looks at what an operation has touched, as far as that can be looked at in time: what cannot be is seen later, as any change.
   * Then it is seen in `revision`. Never rejects.
   */
  async look(ids: readonly string[]): Promise<void> {
    const { log } = this.#dependencies;
    const limit = AbortSignal.any([this.#stopping.signal, AbortSignal.timeout(LOOK_TIMEOUT_MS)]);
    const looks = mapLimited(ids, LOOK_WIDTH, id =>
      this.#model
        .readDomain(id)
        .catch((error: unknown) =>
          log.debug('a domain was not looked at', { domain: id, reason: reasonOf(error) }),
        ),
    ).then(() => this.#show());
    await orAborted(looks, limit).catch((error: unknown) =>
      log.warn('not all that an operation touched was looked at', { domains: ids, reason: reasonOf(error) }),
    );
  }

  /** What is shown now is told to who has been told everything up to this one. */
  get revision(): bigint {
    return this.#revisions.newest;
  }

  /**
   * Reads those of a pool's backup files that have changed, or all.
   * @param options thorough: all, also those that must be unpacked for it
   * @throws VirtkeepError io_failed, canceled
   */
  async refreshFiles(poolId: string, options: { signal: AbortSignal; thorough: boolean }): Promise<void> {
    const { record } = this.pool(poolId);
    const { id, path } = record;
    if (path) {
      // what a network file system tells of a file's size and time is a minute old, until the file is opened
      const fresh = options.thorough || (await isShared(join(path, BACKUPS_DIR), record).catch(() => true));
      await this.#dependencies.backupFiles.refresh({ id, path }, { ...options, fresh });
    }
    this.#show();
  }

  /** A backup file of a pool came, changed or went: looked at soon, as is what is free there. */
  filesChanged(poolId: string): void {
    this.#refresher.request(`files ${poolId}`);
    this.#refresher.request(POOLS);
  }

  /** An operation took or gave back its locks. It goes on, and ends, though a domain cannot be shown. */
  locksChanged(): void {
    for (const id of this.#model.lendingFromZfs) this.#refresher.request(`domain ${id}`);
    try {
      this.#show();
    } catch (error) {
      this.#dependencies.log.error('the inventory could not be shown', { error });
    }
  }

  /** What is known of a guest is different from before. */
  guestsChanged(): void {
    if (!this.#stopping.signal.aborted) this.#guestTimer ??= setTimeout(() => this.#show(), SHOW_GUESTS_MS);
  }

  #onConnected(): void {
    const libvirt = this.#dependencies.link.get();
    if (this.#subscribedTo !== libvirt) {
      this.#subscribedTo = libvirt;
      for (const event of DOMAIN_EVENTS) {
        this.#unsubscribe.push(libvirt.on(event, ({ uuid }) => this.#refresher.request(`domain ${uuid}`)));
      }
      this.#unsubscribe.push(libvirt.on('poolLifecycle', () => this.#refresher.request(POOLS)));
      this.#unsubscribe.push(libvirt.on('poolRefresh', () => this.#refresher.request(POOLS)));
    }
    this.#refresher.request(ALL);
  }

  async #callLibvirt(work: () => Promise<void>): Promise<void> {
    return work().catch((error: unknown) => {
      throw fromLibvirt(error, 'libvirt');
    });
  }

  async #refresh(key: string): Promise<void> {
    const { link, log } = this.#dependencies;
    const [what, id = ''] = key.split(' ');
    if (!link.connected && what !== 'files') return;
    try {
      if (what === 'domain') await this.#readDomain(id);
      else if (what === 'files') await this.#model.readFiles(id, () => this.#showSoon());
      else if (what === POOLS) await this.#model.readPools();
      else await this.#readAll();
      this.#showSoon();
    } catch (error) {
      // the connection went away in the middle: what is shown stays, the reconnection looks again
      if (!this.#stopping.signal.aborted)
        log.warn('the inventory could not be refreshed', { key, reason: reasonOf(error) });
    }
  }

  async #readDomain(id: string): Promise<void> {
    await this.#model.readDomain(id);
    await this.#watchStates(id);
  }

  /** Looks for states that others deleted or reverted to; a domain that is held is looked at when it is free. */
  #watchStates(id: string): Promise<void> {
    return this.#looks.run(id, () => this.#lookAtStates(id));
  }

  async #lookAtStates(id: string): Promise<void> {
    const { link, hold, log } = this.#dependencies;
    const facts = this.#model.domain(id);
    if (!facts) return;
    try {
      const domain = link.get().domain(id, facts.name);
      if (await this.#states.look(domain, facts, hold)) await this.#model.readDomain(id);
    } catch (error) {
      if (!this.#stopping.signal.aborted)
        log.warn('the saved states of a domain could not be compared', {
          domain: facts.name,
          reason: reasonOf(error),
        });
    }
  }

  async #readAll(): Promise<void> {
    await this.#model.readAll();
    for (const { uuid } of this.#model.domains) await this.#watchStates(uuid);
    if (!this.#loaded) {
      this.#loaded = true;
      this.#show();
      this.#feed.resync();
      this.#firstLook.resolve();
    }
    await this.#model.readAllFiles(() => this.#showSoon());
  }

  /** The marks of a pool were changed. */
  marksChanged(): void {
    this.#show();
  }

  /** A storm of events (a host that starts all its domains) is shown in a few steps. */
  #showSoon(): void {
    this.#showTimer ??= setTimeout(() => this.#show(), SHOW_MS);
  }

  /** Makes those messages anew that may be different, and tells the readers what is. */
  #show(): void {
    clearTimeout(this.#showTimer);
    clearTimeout(this.#guestTimer);
    this.#showTimer = undefined;
    this.#guestTimer = undefined;
    const { backupFiles, nodeName, lockedBy } = this.#dependencies;
    this.#model.derivePools();
    const { pools } = this.#model;
    this.#noticePools(pools);
    const lenders = this.#model.lenders();
    this.#shownDomains.replace(
      this.#model.domains.map(facts =>
        domainSource(facts, {
          ...this.#model.scopeOf(facts),
          lenders: lenders.get(facts.uuid),
          lockedBy: lockedBy(facts.uuid) ?? '',
          guestInfo: this.#dependencies.guestInfo?.(facts.uuid),
        }),
      ),
    );
    const disks = this.#diskCounts();
    this.#shownPools.replace(
      pools.map(pool => {
        const counts = { disks: disks.get(pool.id) ?? 0, files: backupFiles.count(pool.id) };
        const inputs = [counts.disks, counts.files, JSON.stringify(pool)];
        return { id: pool.id, inputs, render: () => poolMessage(pool, counts, nodeName) };
      }),
    );
  }

  /** How many disks lie in each pool. */
  #diskCounts(): Map<string, number> {
    const counts = new Map<string, number>();
    for (const { disks } of this.#shownDomains.values())
      for (const { poolId } of disks) counts.set(poolId, (counts.get(poolId) ?? 0) + 1);
    return counts;
  }

  #noticePools(pools: readonly PoolRecord[]): void {
    for (const { id, mounted } of pools) if (!mounted) this.#dependencies.backupFiles.lostSight(id);
    const there = new Set(pools.filter(pool => pool.mounted).map(pool => pool.id));
    const isBack = [...there].some(id => !this.#poolsThere.has(id));
    this.#poolsThere = there;
    if (isBack) this.#dependencies.poolIsBack?.();
  }
}
