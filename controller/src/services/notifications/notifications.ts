/** Notifications: events are put into the outbox for every target that wants them, and delivered from there. */
import { reasonOf } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import type { Database, NotificationRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import { DeliveryError, type Send } from './delivery.ts';
import type { AnyEventName, NotificationEvent } from './events.ts';
import { mailSender } from './mail.ts';
import { Outbox } from './outbox.ts';
import { Sealer } from './sealing.ts';
import { NotificationTargets, type Target } from './targets.ts';
import { ownName, render } from './templates.ts';
import { webhookSender } from './webhook.ts';

/** Targets that are sent to at the same time; to each of them one message after another. */
const TARGETS_AT_ONCE = 4;
const PAGE = 50;
/** To one target in one round. */
const MAX_PER_ROUND = 2000;
/** For one attempt, everything. */
export const SEND_TIMEOUT_MS = 30_000;
const TICK_MS = 15_000;
const KEY_LOST =
  'its secrets were sealed with another key of the controller: set the password, or URL and secret, again';

export interface NotificationDependencies {
  db: Database;
  /** 32 bytes, derived from the controller's own key. */
  key: Uint8Array;
  events: EventService;
  log: Logger;
  /** Address of this controller, when one is set. */
  publicUrl: string | undefined;
  /** For tests: for one attempt, everything. */
  sendTimeoutMs?: number;
}

/** What came of a test. */
export interface TestResult {
  delivered: boolean;
  /** Why not; or what is to be known of it all the same. */
  reason: string;
}

export class NotificationService {
  readonly targets: NotificationTargets;
  readonly outbox: Outbox;
  readonly #dependencies: NotificationDependencies;
  readonly #controller: string;
  readonly #stopped = new AbortController();
  #timer: NodeJS.Timeout | undefined;
  #round: Promise<void> | undefined;

  constructor(dependencies: NotificationDependencies) {
    this.#dependencies = dependencies;
    this.#controller = ownName(dependencies.publicUrl);
    this.targets = new NotificationTargets(dependencies.db, new Sealer(dependencies.key));
    this.outbox = new Outbox(dependencies.db);
  }

  /**
   * Puts an event into the outbox of every target that wants it; it is on disk, or part of the caller's transaction, when this returns.
   * @param at `key` names what has happened: a target is told once under a key, whatever is raised again
   * @param db or a transaction of the caller's
   * @returns how many targets will be told
   */
  async raise(
    event: NotificationEvent,
    at: { key: string; now: Date },
    db: Database = this.#dependencies.db,
  ): Promise<number> {
    return this.outbox.put(event, await this.targets.wanting(event.event, db), at, db);
  }

  /** Sends what is due, by this clock. One round at a time: another call meanwhile waits for the end of the one that goes on. */
  deliver(now: Date): Promise<void> {
    this.#round ??= this.#deliverAll(now).finally(() => {
      this.#round = undefined;
    });
    return this.#round;
  }

  /** Sends a test now, also to a target that is switched off. @throws notification_target_not_found. */
  async test(id: string, user: string, now: Date): Promise<TestResult> {
    await this.targets.get(id);
    const target = (await this.targets.find(id))!;
    const source = { id: newId(), event: 'test' as const, created: now.toISOString(), data: { user } };
    try {
      return { delivered: true, reason: await this.#send(target, source, now) };
    } catch (error) {
      if (!(error instanceof DeliveryError)) throw error;
      return { delivered: false, reason: error.message };
    }
  }

  /** Forgets notifications that were raised before then. */
  prune(before: Date): Promise<number> {
    return this.outbox.prune(before);
  }

  /** Delivers by itself from now on, what has waited at once. */
  start(now: () => Date): void {
    const tick = () =>
      this.deliver(now()).catch(error =>
        this.#dependencies.log.error('notifications not delivered', { error }),
      );
    void tick();
    this.#timer = setInterval(() => void tick(), TICK_MS);
    this.#timer.unref();
  }

  /** Breaks off what is being sent, which is sent again after the next start, and waits for the round's end. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopped.abort();
    await this.#round;
  }

  async #deliverAll(now: Date): Promise<void> {
    const due = await this.outbox.dueTargets(now);
    await mapLimited(due, TARGETS_AT_ONCE, id =>
      this.#deliverTo(id, now).catch(error =>
        this.#dependencies.log.error('notifications not delivered', { target: id, error }),
      ),
    );
  }

  /** Until nothing is due, or the target cannot be reached: then what else is due for it waits for another round. */
  async #deliverTo(targetId: string, now: Date): Promise<void> {
    for (let sent = 0; sent < MAX_PER_ROUND; sent += PAGE) {
      const rows = await this.outbox.due(targetId, now, PAGE);
      for (const row of rows) if (!(await this.#attempt(row, now))) return;
      if (rows.length < PAGE) return;
    }
  }

  /** @returns whether the target can be sent more. */
  async #attempt(row: NotificationRow, now: Date): Promise<boolean> {
    const target = await this.targets.find(row.target_id);
    if (target === undefined || !target.enabled || this.#stopped.signal.aborted) return false;
    const { id, created } = row;
    const data = JSON.parse(row.data_json) as object;
    try {
      const remark = await this.#send(target, { id, event: row.event as AnyEventName, created, data }, now);
      await this.outbox.sent(row, now, remark);
      return true;
    } catch (error) {
      if (this.#stopped.signal.aborted) return false;
      await this.#note(target, row, now, reasonOf(error));
      return !(error instanceof DeliveryError) || error.isAnswer;
    }
  }

  async #note(target: Target, row: NotificationRow, now: Date, reason: string): Promise<void> {
    const { events, log } = this.#dependencies;
    const isLast = await this.outbox.failed(row, now, reason);
    log.warn('notification not delivered', { id: row.id, target: target.verbose_name, reason, isLast });
    if (!isLast) return;
    await events.record({
      type: 'error',
      message: `A notification (${row.event}) for ${target.verbose_name} was given up: ${reason}`,
      entities: [{ id: target.id, class: 'notification_target' }],
    });
  }

  /** @throws DeliveryError */
  async #send(
    target: Target,
    source: { id: string; event: AnyEventName; created: string; data: object },
    now: Date,
  ): Promise<string> {
    if (target.channel === undefined) throw new DeliveryError(KEY_LOST);
    const timeoutMs = this.#dependencies.sendTimeoutMs ?? SEND_TIMEOUT_MS;
    const inTime = AbortSignal.timeout(timeoutMs);
    const named = { ...source, controller: this.#controller };
    const delivery = { ...named, message: render(named, target.templates), now };
    try {
      return await senderOf(target.channel)(delivery, AbortSignal.any([inTime, this.#stopped.signal]));
    } catch (error) {
      if (error instanceof DeliveryError) throw error;
      if (inTime.aborted) throw new DeliveryError(`it took longer than ${timeoutMs / 1000} s`);
      if (this.#stopped.signal.aborted) throw new DeliveryError('the controller is stopping');
      throw error;
    }
  }
}

function senderOf(channel: NonNullable<Target['channel']>): Send {
  return channel.kind === 'mail' ? mailSender(channel) : webhookSender(channel);
}
