/**
 * Asks the controller about the other nodes. The controller has the connection, so it takes the questions from a stream
 * that it keeps open, asks the nodes, and answers by a call. Without a controller, or in time, the answer is unknown.
 */
import { abortReason, orAborted } from '@virtkeep/shared/abort';
import { newId } from '@virtkeep/shared/ids';
import type { Answer, OtherNodes, Thing } from './other-nodes.ts';

export interface Question {
  id: string;
  things: readonly Thing[];
}

const ANSWER_LIMIT_MS = 10_000;
/** From the agent's start: a controller tries a node again every 19 s at most, and notices after 10 s that a try leads nowhere. */
export const FIRST_CONTROLLER_MS = 30_000;
/** More at a time are not asked: somebody asks in a loop. */
const MAX_OPEN = 200;
/** In one question: a request has a bound. */
const MAX_THINGS = 500;

const NO_CONTROLLER = 'no controller is connected to this node';
const GONE = 'the connection to the controller was lost';

interface QuestionTimes {
  /** For an answer. */
  limitMs?: number;
  /** How long from now on `untilController` waits for the first controller. */
  firstMs?: number;
}

interface Watcher {
  waiting: Question[];
  wake: PromiseWithResolvers<void>;
}

interface OpenQuestion {
  watcher: Watcher;
  settle(answers: readonly Answer[]): void;
  fail(reason: string): void;
}

export class QuestionChannel implements OtherNodes {
  readonly #limitMs: number;
  /** A controller was there, or has had its time. */
  readonly #first = Promise.withResolvers<void>();
  /** The latest last. */
  readonly #watchers: Watcher[] = [];
  readonly #open = new Map<string, OpenQuestion>();

  constructor({ limitMs = ANSWER_LIMIT_MS, firstMs = 0 }: QuestionTimes = {}) {
    this.#limitMs = limitMs;
    if (firstMs > 0) setTimeout(this.#first.resolve, firstMs).unref();
    else this.#first.resolve();
  }

  /** Somebody takes questions. */
  get isWatched(): boolean {
    return this.#watchers.length > 0;
  }

  /**
   * Waits for the first controller, but not past the time in which one that is there reaches an agent that has started. Before that an
   * unknown answer says nothing. Rejects with the abort reason.
   */
  untilController(signal: AbortSignal): Promise<void> {
    return orAborted(this.#first.promise, signal);
  }

  async whoUses(things: readonly Thing[], signal: AbortSignal): Promise<Answer[]> {
    const answers: Answer[] = [];
    for (let from = 0; from < things.length; from += MAX_THINGS)
      answers.push(...(await this.#ask(things.slice(from, from + MAX_THINGS), signal)));
    return answers;
  }

  /** The questions for a controller, from now on. Rejects with the abort reason. */
  async *watch(signal: AbortSignal): AsyncGenerator<Question> {
    const watcher: Watcher = { waiting: [], wake: Promise.withResolvers() };
    this.#watchers.push(watcher);
    this.#first.resolve();
    try {
      for (;;) {
        for (let next = watcher.waiting.shift(); next; next = watcher.waiting.shift()) yield next;
        watcher.wake = Promise.withResolvers();
        await orAborted(watcher.wake.promise, signal);
      }
    } finally {
      this.#watchers.splice(this.#watchers.indexOf(watcher), 1);
      for (const open of [...this.#open.values()]) if (open.watcher === watcher) open.fail(GONE);
    }
  }

  /** An answer to a question that is not waited for any more is dropped. */
  answer(questionId: string, answers: readonly Answer[]): void {
    this.#open.get(questionId)?.settle(answers);
  }

  #ask(things: readonly Thing[], signal: AbortSignal): Promise<Answer[]> {
    const unknown = (reason: string): Answer[] => things.map(() => ({ kind: 'unknown', reason }));
    const watcher = this.#watchers.at(-1);
    if (signal.aborted) return Promise.reject(abortReason(signal));
    if (!watcher) return Promise.resolve(unknown(NO_CONTROLLER));
    if (this.#open.size >= MAX_OPEN) return Promise.resolve(unknown('too many questions are open'));
    const question: Question = { id: newId(), things };
    const { promise, resolve } = Promise.withResolvers<Answer[]>();
    const late = `the controller did not answer within ${this.#limitMs / 1000} seconds`;
    const timer = setTimeout(() => resolve(unknown(late)), this.#limitMs);
    this.#open.set(question.id, {
      watcher,
      settle: answers =>
        resolve(answers.length === things.length ? [...answers] : unknown('the answer is short')),
      fail: reason => resolve(unknown(reason)),
    });
    watcher.waiting.push(question);
    watcher.wake.resolve();
    return orAborted(promise, signal).finally(() => {
      clearTimeout(timer);
      this.#open.delete(question.id);
      const at = watcher.waiting.indexOf(question);
      if (at >= 0) watcher.waiting.splice(at, 1);
    });
  }
}
