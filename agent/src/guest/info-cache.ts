/**
 * The last report of each guest about itself, refreshed in the background: a list takes what is here and never waits.
 *
 * A guest is asked when its agent connects, and again from time to time. Few are asked at once, so that a host full of hung
 * agents leaves libvirt's threads for commands that somebody waits for.
 */
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { reasonOf } from '@virtkeep/shared/errors';
import { AgentState, type GuestInfo, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Logger } from '@virtkeep/shared/log';
import type { FreezeWatch } from './freeze-watch.ts';
import { askInfo, type ReportedInfo } from './info.ts';
import type { CommandOptions } from './session.ts';

export interface InfoCacheDependencies {
  link: {
    readonly connected: boolean;
    /** @throws VirtkeepError libvirt_unreachable */
    get(): Libvirt;
    onChange(listener: (connected: boolean) => void): () => void;
  };
  /** The domains of this node as last seen. */
  domains(): { id: string; powerState: PowerState; agentState: AgentState }[];
  freezes: FreezeWatch;
  /** Called when there is something new to show. */
  changed(): void;
  log: Logger;
  /** How old a report may be before the guest is asked again, ms. */
  refreshMs: number;
  /** Asks a guest; for tests. */
  ask?: typeof askInfo;
}

/** Guests asked at a time: half of the threads that libvirt's agent calls have. */
const WIDTH = 2;
const LOOK_MS = 5_000;
const FROZEN_REFRESH_MS = 15_000;
/** After a question without an answer; doubled with each further one. A guest that is still booting answers slowly, and soon well. */
const RETRY_MS = 10_000;
/** A guest that hangs is asked so much more rarely than one that answers, at last. */
const MAX_DELAY_FACTOR = 16;
/** Nobody waits for the answer, and a guest that hangs keeps others waiting. */
const ANSWER_MS = 2_000;
/** A refresh does not queue behind a user's long command. */
const WAIT_MS = 2_000;

const EMPTY: ReportedInfo = {
  agentVersion: '',
  hostname: '',
  ipv4: [],
  ipv6: [],
  os: undefined,
  fileSystems: [],
  users: [],
};

interface Entry {
  /** Undefined: the guest has never answered. */
  info?: ReportedInfo & { refreshed: Date };
  triedMs: number;
  /** Questions in a row without an answer: a guest that hangs is asked less and less often, so that the others get their turn. */
  failures: number;
}

/** What is said of a guest, and the report that it was made of. */
interface Told {
  info: Entry['info'];
  told: GuestInfo;
}

export class InfoCache {
  readonly #dependencies: InfoCacheDependencies;
  readonly #entries = new Map<string, Entry>();
  readonly #told = new Map<string, Told>();
  readonly #waiting = new Set<string>();
  readonly #asking = new Set<string>();
  readonly #stopping = new AbortController();
  readonly #unsubscribe: (() => void)[] = [];
  #subscribedTo: Libvirt | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(dependencies: InfoCacheDependencies) {
    this.#dependencies = dependencies;
  }

  start(): void {
    const { link } = this.#dependencies;
    this.#unsubscribe.push(link.onChange(connected => connected && this.#subscribe()));
    if (link.connected) this.#subscribe();
    this.#timer = setInterval(() => this.look(performance.now()), LOOK_MS);
    this.#timer.unref();
  }

  stop(): void {
    clearInterval(this.#timer);
    for (const end of this.#unsubscribe.splice(0)) end();
    this.#waiting.clear();
    this.#stopping.abort();
  }

  /**
   * The guest's last report, and since when it is frozen; undefined when it has never reported anything. It is the same object until one of
   * them changes: what is made of it for hundreds of guests is made anew of that one only.
   */
  get(domainId: string): GuestInfo | undefined {
    const info = this.#entries.get(domainId)?.info;
    const frozenSince = this.#dependencies.freezes.since(domainId);
    if (!info && !frozenSince) return undefined;
    const before = this.#told.get(domainId);
    const isSame = before?.info === info && before?.told.frozenSince?.getTime() === frozenSince?.getTime();
    if (before && isSame) return before.told;
    const told = { ...(info ?? { ...EMPTY, refreshed: undefined }), frozenSince };
    this.#told.set(domainId, { info, told });
    return told;
  }

  /** Asks the guest now. @throws VirtkeepError as `askInfo` */
  async refresh(domain: Domain, signal: AbortSignal): Promise<void> {
    await this.#ask(domain, { signal });
  }

  /** The guest is asked soon. */
  request(domainId: string): void {
    if (this.#stopping.signal.aborted) return;
    this.#waiting.add(domainId);
    this.#fill();
  }

  /** Asks the guests whose turn it is, and forgets those that are not there any more. */
  look(nowMs: number): void {
    const { link, domains, freezes, refreshMs } = this.#dependencies;
    if (!link.connected) return;
    const present = domains();
    for (const { id, powerState, agentState } of present) {
      if (powerState === PowerState.OFF) freezes.off(id);
      if (powerState !== PowerState.RUNNING || agentState !== AgentState.CONNECTED) continue;
      const { triedMs, failures = 0 } = this.#entries.get(id) ?? {};
      // the end of a freeze is to be noticed, whoever ends it
      const ageMs = freezes.since(id) ? Math.min(FROZEN_REFRESH_MS, refreshMs) : delayMs(refreshMs, failures);
      if (triedMs === undefined || nowMs - triedMs >= ageMs) this.request(id);
    }
    const ids = new Set(present.map(({ id }) => id));
    // before the first look at the node the list is empty
    if (ids.size === 0) return;
    for (const known of [this.#entries, this.#told])
      for (const id of known.keys()) if (!ids.has(id)) known.delete(id);
  }

  #subscribe(): void {
    const libvirt = this.#dependencies.link.get();
    if (this.#subscribedTo === libvirt) return;
    this.#subscribedTo = libvirt;
    this.#unsubscribe.push(
      libvirt.on('agentLifecycle', ({ uuid, state }) => {
        if (state !== 'connected') return;
        const entry = this.#entries.get(uuid);
        if (entry) this.#entries.set(uuid, { ...entry, failures: 0 });
        this.request(uuid);
      }),
    );
  }

  #fill(): void {
    for (const id of this.#waiting) {
      if (this.#asking.size >= WIDTH) return;
      if (this.#asking.has(id)) continue;
      this.#waiting.delete(id);
      this.#asking.add(id);
      void this.#askQuietly(id).finally(() => {
        this.#asking.delete(id);
        this.#fill();
      });
    }
  }

  async #askQuietly(id: string): Promise<void> {
    const { link, log } = this.#dependencies;
    try {
      const { signal } = this.#stopping;
      await this.#ask(link.get().domain(id), { signal, waitMs: WAIT_MS, timeoutMs: ANSWER_MS });
    } catch (error) {
      if (this.#stopping.signal.aborted) return;
      log.debug('a guest told nothing of itself', { domain: id, reason: reasonOf(error) });
    }
  }

  async #ask(domain: Domain, options: CommandOptions): Promise<void> {
    const { freezes, changed, ask = askInfo } = this.#dependencies;
    const { uuid } = domain;
    const before = this.#entries.get(uuid);
    this.#entries.set(uuid, { ...before, failures: (before?.failures ?? 0) + 1, triedMs: performance.now() });
    const askedAtMs = performance.now();
    const { isFrozen, info } = await ask(domain, options);
    freezes.seen(uuid, isFrozen, askedAtMs);
    const old = this.#entries.get(uuid)?.info ?? EMPTY;
    const triedMs = performance.now();
    this.#entries.set(uuid, { info: { ...old, ...info, refreshed: new Date() }, triedMs, failures: 0 });
    changed();
  }
}

/** How long after a question the next one is asked, after so many in a row without an answer, ms. */
function delayMs(refreshMs: number, failures: number): number {
  if (failures === 0) return refreshMs;
  return Math.min(RETRY_MS * 2 ** (failures - 1), refreshMs * MAX_DELAY_FACTOR);
}
