/** Everything about guests that lives as long as the agent: what they told, what was opened and frozen in them. */
import type { Domain } from '@virtkeep/node-libvirt';
import type { GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Logger } from '@virtkeep/shared/log';
import { FileHandles } from './file-handles.ts';
import { FreezeWatch } from './freeze-watch.ts';
import { InfoCache, type InfoCacheDependencies } from './info-cache.ts';
import { type DurableSettings, GuestRecords } from './records.ts';
import { GuestCommands } from './run-command.ts';

export interface GuestsDependencies {
  link: InfoCacheDependencies['link'];
  domains: InfoCacheDependencies['domains'];
  settings: DurableSettings;
  /** An operation holds the domain's disks. */
  isHeld(domainId: string): boolean;
  /** What is known of a guest is different from before. */
  changed(): void;
  log: Logger;
  /** A freeze by hand is thawed after so long, ms. */
  freezeLimitMs: number;
  /** A file that was opened and is not used is closed after so long, ms. */
  fileIdleMs: number;
  /** A guest is asked what it tells of itself this often, ms. */
  infoRefreshMs: number;
}

export class Guests {
  readonly commands: GuestCommands;
  readonly #freezes: FreezeWatch;
  readonly #files: FileHandles;
  readonly #infos: InfoCache;

  constructor(dependencies: GuestsDependencies) {
    const { link, settings, log, changed, isHeld, domains } = dependencies;
    const records = new GuestRecords(settings);
    const domain = (id: string): Domain => link.get().domain(id);
    const { freezeLimitMs: limitMs, fileIdleMs: idleMs, infoRefreshMs: refreshMs } = dependencies;
    this.#freezes = new FreezeWatch({ domain, records, log, limitMs, isHeld, changed });
    this.#files = new FileHandles({ domain, records, log, idleMs });
    this.#infos = new InfoCache({ link, domains, freezes: this.#freezes, changed, log, refreshMs });
    this.commands = new GuestCommands({ files: this.#files, freezes: this.#freezes });
  }

  /** Takes up what an agent before this one left, and begins to ask. */
  start(): void {
    this.#freezes.start();
    this.#files.start();
    this.#infos.start();
  }

  stop(): void {
    this.#infos.stop();
    this.#files.stop();
    this.#freezes.stop();
  }

  /** Closes the files in guests that nobody has used for long. Never rejects. */
  closeAbandoned(nowMs: number): Promise<void> {
    return this.#files.sweep(nowMs);
  }

  /** What the guest told last; undefined when it never told anything. */
  info(domainId: string): GuestInfo | undefined {
    return this.#infos.get(domainId);
  }

  /** Asks the guest soon: something in it was changed. */
  request(domainId: string): void {
    this.#infos.request(domainId);
  }

  /** Asks the guest now. @throws VirtkeepError as `guestCommand` */
  refresh(domain: Domain, signal: AbortSignal): Promise<void> {
    return this.#infos.refresh(domain, signal);
  }
}
