/**
 * Keeps loans in order whatever others do: a guest that did not let go is asked again when its agent appears or when it
 * resets, a loan ends when its borrower is deleted, stops without the disk, or lost it otherwise. What it does are operations like any other,
 * and nothing is done that a look at all of libvirt does not find as well: a stop of the agent costs nothing.
 */
import { randomUUID } from 'node:crypto';
import type { EventSource, Libvirt } from '@virtkeep/node-libvirt';
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Logger } from '@virtkeep/shared/log';
import { unlessGone } from '../libvirt/domains.ts';
import type { OperationRunner } from '../operations/runner.ts';
import { type ZfsHoldings, zfsHoldings } from '../snapshots/index.ts';
import type { Lock } from '../workflows/context.ts';
import type { WorkflowDependencies } from '../workflows/dependencies.ts';
import { Unheard, withoutRead } from '../workflows/lend/instant-use.ts';
import { reconcileLoansWorkflow } from '../workflows/lend/reconcile.ts';
import {
  type HeldRelease,
  heldReleases,
  type LoanAction,
  planReconciliation,
  stillDue,
} from '../workflows/lend/reconcile-plan.ts';
import { readViews, SeenParties } from './loan-views.ts';
import { type ReleaseMoment, ReleaseTries } from './release-tries.ts';

export interface LoanReconcilerDependencies {
  link: {
    readonly connected: boolean;
    get(): Libvirt;
    onChange(listener: (connected: boolean) => void): () => void;
  };
  runner: OperationRunner;
  workflows: WorkflowDependencies;
  log: Logger;
  /** Events within this time are one look, ms. */
  settleMs?: number;
  /** A look at all without an event, and another try of what was held by an operation, ms. */
  retryMs?: number;
  /** How long after an event a guest is asked again, ms. */
  askMs?: number;
  /** How long an instant stays for a node that gives no answer, ms. */
  unheardMs?: number;
}

/** Kind of the reconciler's operations. */
export const KEEP_LOANS = 'keep_loans';

const SETTLE_MS = 300;
const RETRY_MS = 60_000;
const LOOK_TIMEOUT_MS = 120_000;
/** Another try of what an operation holds; doubles up to the time of a look without an event, ms. */
const BUSY_RETRY_MS = 2_000;
/**
 * So long after an event a guest is asked again, ms: one that goes on does by itself what it was asked before. libvirt 9.0 that is asked for a
 * disk in the moment in which QEMU takes it out counts it as gone at once and leaves its file open, which keeps the owner's instant
 * from being merged until the borrower stops.
 */
const ASK_MS = 10_000;
/** One that does not let go then is asked after ever longer, up to this, ms: it may have missed it while it started. */
const ASK_AGAIN_MS = 600_000;
/** An instant that cannot go is tried again after ever longer, up to this, ms: each try keeps others from its VM. */
const RELEASE_AGAIN_MS = 3_600_000;

export class LoanReconciler {
  readonly #dependencies: LoanReconcilerDependencies;
  readonly #unsubscribe: (() => void)[] = [];
  #subscribedTo: Libvirt | undefined;
  #timer: NodeJS.Timeout | undefined;
  #due = Number.POSITIVE_INFINITY;
  #looking: Promise<void> | undefined;
  #stopped = false;
  /** When guests are asked again, by `performance.now()`, and how long after that the next time. */
  #askAtMs = 0;
  #askAgainMs = 0;
  readonly #seen = new SeenParties();
  readonly #unheard: Unheard;
  readonly #releases: ReleaseTries;
  /** When all domains are read again, by `performance.now()`: not of everything is there an event. */
  #wholeAtMs = 0;
  #busyMs = BUSY_RETRY_MS;
  /** Owners whose instant stays for a domain that cannot be read. */
  #held = new Set<string>();

  constructor(dependencies: LoanReconcilerDependencies) {
    this.#dependencies = dependencies;
    this.#unheard = new Unheard(dependencies.unheardMs);
    this.#releases = new ReleaseTries(dependencies.retryMs ?? RETRY_MS, RELEASE_AGAIN_MS);
  }

  start(): void {
    const { link } = this.#dependencies;
    this.#unsubscribe.push(link.onChange(connected => connected && this.#onConnected()));
    if (link.connected) this.#onConnected();
  }

  /** What could not be done may work now (a pool is back, say): nothing waits for its time. */
  retryNow(): void {
    this.#releases.forgetAll();
    this.#lookIn(this.#dependencies.settleMs ?? SETTLE_MS);
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    clearTimeout(this.#timer);
    for (const end of this.#unsubscribe.splice(0)) end();
    await this.#looking;
  }

  #onConnected(): void {
    const libvirt = this.#dependencies.link.get();
    if (this.#subscribedTo !== libvirt) {
      this.#subscribedTo = libvirt;
      const { settleMs = SETTLE_MS } = this.#dependencies;
      const changed = ({ uuid }: EventSource) => this.#seen.changed(uuid);
      const look = (source: EventSource) => {
        changed(source);
        this.#releases.forget(source.uuid);
        this.#planToAsk();
        this.#lookIn(settleMs);
      };
      this.#unsubscribe.push(
        libvirt.on('lifecycle', look),
        libvirt.on('reboot', look),
        libvirt.on('deviceRemoved', look),
        libvirt.on('deviceAdded', changed),
        libvirt.on('metadataChange', changed),
        libvirt.on('agentLifecycle', event => event.state === 'connected' && look(event)),
      );
    }
    // what happened meanwhile nobody has told
    this.#wholeAtMs = 0;
    this.#releases.forgetAll();
    this.#planToAsk();
    this.#lookIn(0);
  }

  /** Something happened after which guests may let go. */
  #planToAsk(): void {
    const { askMs = ASK_MS, retryMs = RETRY_MS } = this.#dependencies;
    const atMs = performance.now() + askMs;
    // a time that was planned before stays, so that a storm of events does not put it off
    this.#askAtMs = this.#askAtMs > performance.now() ? Math.min(this.#askAtMs, atMs) : atMs;
    this.#askAgainMs = retryMs;
  }

  /** Looks then at the latest; an earlier look that is planned stays. */
  #lookIn(delayMs: number): void {
    const due = Date.now() + delayMs;
    if (this.#stopped || due >= this.#due) return;
    clearTimeout(this.#timer);
    this.#due = due;
    this.#timer = setTimeout(() => void this.#look(), delayMs);
    this.#timer.unref();
  }

  async #look(): Promise<void> {
    this.#due = Number.POSITIVE_INFINITY;
    if (this.#looking) return this.#lookIn(this.#dependencies.settleMs ?? SETTLE_MS);
    this.#looking = this.#settle().then(
      nextMs => {
        this.#looking = undefined;
        this.#lookIn(nextMs);
      },
      (error: unknown) => {
        this.#looking = undefined;
        if (!this.#stopped)
          this.#dependencies.log.warn('loans could not be looked at', { reason: reasonOf(error) });
        this.#lookIn(this.#dependencies.retryMs ?? RETRY_MS);
      },
    );
    await this.#looking;
  }

  /** @returns when to look again, ms */
  async #settle(): Promise<number> {
    const { link, runner, retryMs = RETRY_MS } = this.#dependencies;
    if (!link.connected || runner.draining) return retryMs;
    if (performance.now() >= this.#wholeAtMs) {
      this.#seen.forget();
      this.#wholeAtMs = performance.now() + retryMs;
    }
    const askAtMs = this.#askAtMs;
    const isAsking = performance.now() >= askAtMs;
    const { views, unread } = await this.#views();
    this.#tellHeld(heldReleases(views, unread));
    const planned = planReconciliation(views, unread);
    this.#releases.keepOnly(ownersOfReleases(planned));
    // the other nodes are asked about all of them, also before their time: an answer may be what was waited for
    const confirmed = await this.#confirmed(planned.filter(action => isAsking || action.do !== 'take_back'));
    const due = confirmed.filter(
      ({ do: what, ownerId }) => what !== 'release' || this.#releases.isDue(ownerId, this.#momentOf(ownerId)),
    );
    let isBusy = false;
    for (const actions of togetherOf(due)) {
      const there = new Set(views.map(({ id }) => id));
      if (!(await this.#begin(actions, there))) isBusy = true;
    }
    this.#busyMs = isBusy ? Math.min(this.#busyMs * 2, retryMs) : BUSY_RETRY_MS;
    // what happened meanwhile has a time of its own
    if (isAsking && !isBusy && this.#askAtMs === askAtMs) {
      this.#askAtMs = performance.now() + this.#askAgainMs;
      this.#askAgainMs = Math.min(2 * this.#askAgainMs, ASK_AGAIN_MS);
    }
    const untilAskMs = Math.max(0, this.#askAtMs - performance.now());
    return isBusy ? this.#busyMs : Math.min(retryMs, untilAskMs);
  }

  #momentOf(ownerId: string): ReleaseMoment {
    return { nowMs: performance.now(), isUnheard: this.#unheard.has(ownerId) };
  }

  async #views(): ReturnType<typeof readViews> {
    const { link, workflows } = this.#dependencies;
    const pools = () => workflows.pools(AbortSignal.timeout(LOOK_TIMEOUT_MS));
    return readViews(link.get(), await this.#zfs(), pools, this.#seen);
  }

  /**
   * What a second look finds too. The domains are read one after another, so a lending that goes on meanwhile is seen in part; what would be
   * begun for that would find nothing to do, but keep the user from both VMs for as long as it looks.
   */
  async #confirmed(found: readonly LoanAction[]): Promise<LoanAction[]> {
    return found.length === 0 ? [] : stillDue(found, await this.#dueNow());
  }

  /** By a look at all domains, and so is the look after it: there is something going on. */
  async #dueNow(): Promise<LoanAction[]> {
    this.#seen.forget();
    this.#wholeAtMs = 0;
    const { views, unread } = await this.#views();
    const due = planReconciliation(views, unread);
    const signal = AbortSignal.timeout(LOOK_TIMEOUT_MS);
    return withoutRead(this.#dependencies.workflows, due, this.#unheard, signal);
  }

  #tellHeld(held: readonly HeldRelease[]): void {
    for (const { owner, unread } of held)
      if (!this.#held.has(owner))
        this.#dependencies.log.warn('an instant stays: a VM that cannot be read may have a disk of it', {
          owner,
          unread,
        });
    this.#held = new Set(held.map(({ owner }) => owner));
  }

  /** zfs that does not answer is no reason to leave the other loans alone: nothing on it counts as gone then. */
  #zfs(): Promise<ZfsHoldings> {
    const { log, workflows } = this.#dependencies;
    return zfsHoldings(workflows.zfs, AbortSignal.timeout(LOOK_TIMEOUT_MS)).catch((error: unknown) => {
      log.warn('zfs cannot be read', { reason: reasonOf(error) });
      return { releasable: new Set(), hasClone: () => true };
    });
  }

  /** @returns false when an operation holds one of the domains */
  async #begin(actions: LoanAction[], there: ReadonlySet<string>): Promise<boolean> {
    const { runner, workflows, log } = this.#dependencies;
    const named = new Set(actions.flatMap(({ ownerId, borrowerId }) => [ownerId, borrowerId]));
    named.delete('');
    const ids = [...named];
    const lock =
      (kind: 'domain' | 'power') =>
      (id: string): Lock => ({ kind, id, mode: 'exclusive' });
    // also of those that are not there: one may come back, by a restore say, while its loans end
    const locks = [...ids.map(lock('domain')), ...(await this.#ownersOff(actions)).map(lock('power'))];
    const domains = ids.filter(id => there.has(id));
    try {
      const id = randomUUID();
      runner.start({
        id,
        kind: KEEP_LOANS,
        request: { id },
        entities: domains.map(domain => ({ id: domain, entityClass: EntityClass.DOMAIN })),
        locks,
        // It takes away what is over. Of a VM that moved nothing is merged: whoever merges a domain that is off here asks the other nodes,
        // sees whether they wrote to what was lent (`askElsewhere` in snapshots/merge), and QEMU's locks keep an image that is written to
        // from being merged.
        mayBeCopies: 'all',
        cancellable: false,
        heavy: false,
        workflow: reconcileLoansWorkflow(workflows, actions, () => this.#dueNow()),
      });
      for (const ownerId of ownersOfReleases(actions)) this.#releases.tried(ownerId, this.#momentOf(ownerId));
      log.info('loans are put right', { actions });
      return true;
    } catch (error) {
      if (!hasKey(error, 'domain_busy', 'draining')) throw error;
      return false;
    }
  }

  /** Those whose state may be merged by qemu-img: they must not start meanwhile. */
  async #ownersOff(actions: readonly LoanAction[]): Promise<string[]> {
    const libvirt = this.#dependencies.link.get();
    const off = new Set<string>();
    for (const { do: what, ownerId } of actions)
      if (what !== 'note' && ownerId !== '' && !(await isActive(libvirt, ownerId))) off.add(ownerId);
    return [...off];
  }
}

const isActive = (libvirt: Libvirt, id: string): Promise<boolean> =>
  unlessGone(async () => (await libvirt.domainByUuid(id)).isActive(), false);

const ownersOfReleases = (actions: readonly LoanAction[]): Set<string> =>
  new Set(actions.flatMap(({ do: what, ownerId }) => (what === 'release' ? [ownerId] : [])));

/** Actions that share a domain, since one operation holds it. */
function togetherOf(actions: readonly LoanAction[]): LoanAction[][] {
  const groups: { ids: Set<string>; actions: LoanAction[] }[] = [];
  for (const action of actions) {
    const ids = new Set([action.ownerId, action.borrowerId].filter(id => id !== ''));
    const met = groups.filter(group => [...ids].some(id => group.ids.has(id)));
    const merged = {
      ids: new Set([...ids, ...met.flatMap(group => [...group.ids])]),
      actions: [...met.flatMap(group => group.actions), action],
    };
    for (const group of met) groups.splice(groups.indexOf(group), 1);
    groups.push(merged);
  }
  return groups.map(group => group.actions);
}
