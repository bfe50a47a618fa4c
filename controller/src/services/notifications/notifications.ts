/** Notifications: events are put into the outbox for every target that wants them, and delivered from there. */
import { reasonOf } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import type { Logger } from '@virtkeep/shared/log';
import { Sealer } from '../../keys/sealing.ts';
import type { Database, NotificationRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import { type Delivery, DeliveryError, type Send } from './delivery.ts';
import type { AnyEventName, NotificationEvent } from './events.ts';
import { mailSender } from './mail.ts';
import { Outbox, reachedBy } from './outbox.ts';
import { NotificationTargets, type Target } from './targets.ts';
import { ownName, render } from './templates.ts';
import { webhookSender } from './webhook.ts';

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
  /** What goes on, by target: to each of them one message after another. */
  readonly #rounds = new Map<string, Promise<void>>();
  readonly #underWay = new Set<Promise<void>>();

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

  /**
   * Sends what is due, by this clock, to all targets at the same time. One round at a time for each: where one goes on, what came due since is
   * left to another call. Ends with the last of the rounds.
   */
  deliver(now: () => Date): Promise<void> {
    const done = this.#deliverAll(now).finally(() => this.#underWay.delete(done));
    this.#underWay.add(done);
    return done;
  }

  /** Sends a test now, also to a target that is switched off. @throws notification_target_not_found. */
  async test(id: string, user: string, now: Date): Promise<TestResult> {
    await this.targets.get(id);
    const target = (await this.targets.find(id))!;
    const about = { event: 'test' as const, created: now.toISOString(), data: { user } };
    const source = { id: newId(), ...about, reached: [] };
    try {
      return { delivered: true, reason: await this.#send(target, source, now) };
    } catch (error) {
      if (!(error instanceof DeliveryError)) throw error;
      return { delivered: error.reached.length > 0, reason: error.message };
    }
  }

  /** Forgets notifications that were raised before then. */
  prune(before: Date): Promise<number> {
    return this.outbox.prune(before);
  }

  /** Delivers by itself from now on, what has waited at once. */
  start(now: () => Date): void {
    const tick = () =>
      this.deliver(now).catch(error =>
        this.#dependencies.log.error('notifications not delivered', { error }),
      );
    void tick();
    this.#timer = setInterval(() => void tick(), TICK_MS);
    this.#timer.unref();
  }

  /** Breaks off what is being sent, which is sent again after the next start, and waits for the end of the rounds. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    this.#stopped.abort();
    await Promise.allSettled(this.#underWay);
  }

  async #deliverAll(now: () => Date): Promise<void> {
    const due = await this.outbox.dueTargets(now());
    await Promise.all(due.map(id => this.#round(id, now)));
  }

  #round(targetId: string, now: () => Date): Promise<void> {
    const goingOn = this.#rounds.get(targetId);
    if (goingOn !== undefined) return goingOn;
    const round = this.#deliverTo(targetId, now)
      .catch(error => {
        this.#dependencies.log.error('notifications not delivered', { target: targetId, error });
      })
      .finally(() => this.#rounds.delete(targetId));
    this.#rounds.set(targetId, round);
    return round;
  }

  /** What is due when the round begins, or until the target cannot be reached: then the rest waits for another round. */
  async #deliverTo(targetId: string, now: () => Date): Promise<void> {
    for (const id of await this.outbox.due(targetId, now())) {
      const row = await this.outbox.pending(id);
      if (row !== undefined && !(await this.#attempt(row, now))) return;
    }
  }

  /** @returns whether the target can be sent more. */
  async #attempt(row: NotificationRow, now: () => Date): Promise<boolean> {
    const target = await this.targets.find(row.target_id);
    if (target === undefined || !target.enabled || this.#stopped.signal.aborted) return false;
    const { id, created } = row;
    const data = JSON.parse(row.data_json) as object;
    try {
      const source = { id, event: row.event as AnyEventName, created, data, reached: reachedBy(row) };
      const remark = await this.#send(target, source, now());
      await this.outbox.sent(row, now(), remark);
      return true;
    } catch (error) {
      if (this.#stopped.signal.aborted) return false;
      const reason = reasonOf(error);
      const { isAnswer, reached } = error instanceof DeliveryError ? error : { isAnswer: true, reached: [] };
      await this.#note(target, row, now(), { reason, reached });
      if (isAnswer) return true;
      await this.#noteRest(target, now(), reason);
      return false;
    }
  }

  async #note(
    target: Target,
    row: NotificationRow,
    now: Date,
    failure: { reason: string; reached: readonly string[] },
  ): Promise<void> {
    const { reason } = failure;
    const isLast = await this.outbox.failed(row, now, failure);
    this.#dependencies.log.warn('notification not delivered', {
      id: row.id,
      target: target.verbose_name,
      reason,
      isLast,
    });
    if (isLast)
      await this.#tellGivenUp(target, `A notification (${row.event}) for ${target.verbose_name}`, reason);
  }

  /** The target cannot be reached: nor can it for what else is due for it. */
  async #noteRest(target: Target, now: Date, reason: string): Promise<void> {
    const givenUp = await this.outbox.failedToo(target.id, now, reason);
    if (givenUp > 0)
      await this.#tellGivenUp(target, `What else waited for ${target.verbose_name} (${givenUp})`, reason);
  }

  async #tellGivenUp(target: Target, what: string, reason: string): Promise<void> {
    await this.#dependencies.events.record({
      type: 'error',
      message: `${what} was given up: ${reason}`,
      entities: [{ id: target.id, class: 'notification_target' }],
    });
  }

  /** @throws DeliveryError */
  async #send(
    target: Target,
    source: Omit<Delivery, 'controller' | 'message' | 'now'>,
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
