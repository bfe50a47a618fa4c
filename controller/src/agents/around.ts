/**
 * Client middleware that is no generator. Each that is makes a handful of promises for each message; those of a thousand streams wait for a
 * second or more, which the collector takes for long: with a message a second of each, three such were a sixth of what it took so.
 */
import type { CallOptions, ClientMiddleware } from 'nice-grpc';

/** What is done with one call. */
export interface Around {
  /** What it is made with. */
  options: CallOptions;
  /** @returns what is thrown in its place */
  failed(error: unknown): unknown;
  /** Called once, however it ended. */
  ended(): void;
}

/** @param begin called when the call begins; what it throws is thrown as it is */
export function around(begin: (options: CallOptions) => Around): ClientMiddleware {
  return (call, options) => new Surrounded(begin, options, given => call.next(call.request, given) as never);
}

type Call<T, R> = (options: CallOptions) => AsyncGenerator<T, R, undefined>;

class Surrounded<T, R> implements AsyncGenerator<T, R, undefined> {
  readonly #make: (options: CallOptions) => Around;
  readonly #options: CallOptions;
  readonly #next: Call<T, R>;
  #around: Around | undefined;
  #inner: AsyncGenerator<T, R, undefined> | undefined;
  /** It has ended, or will not begin. */
  #isOver = false;

  constructor(make: (options: CallOptions) => Around, options: CallOptions, next: Call<T, R>) {
    this.#make = make;
    this.#options = options;
    this.#next = next;
  }

  /** Not async: one promise for each message is enough. */
  next(): Promise<IteratorResult<T, R>> {
    if (!this.#inner && this.#isOver) return Promise.resolve({ done: true, value: undefined as never });
    try {
      this.#inner ??= this.#begin();
    } catch (error) {
      this.#isOver = true;
      return Promise.reject(error);
    }
    return this.#inner.next().then(this.#took, this.#failed);
  }

  /** As the body of a generator, not before somebody wants something of it. */
  #begin(): AsyncGenerator<T, R, undefined> {
    this.#around = this.#make(this.#options);
    try {
      return this.#next(this.#around.options);
    } catch (error) {
      this.#around.ended();
      throw error;
    }
  }

  async return(value: R | PromiseLike<R>): Promise<IteratorResult<T, R>> {
    if (this.#inner) return this.#inner.return(value).then(this.#took, this.#failed);
    this.#isOver = true;
    return { done: true, value: await value };
  }

  async throw(error: unknown): Promise<IteratorResult<T, R>> {
    if (this.#inner) return this.#inner.throw(error).then(this.#took, this.#failed);
    this.#isOver = true;
    throw error;
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.return(undefined as never);
  }

  readonly #took = (result: IteratorResult<T, R>): IteratorResult<T, R> => {
    if (result.done) this.#end();
    return result;
  };

  readonly #failed = (error: unknown): never => {
    this.#end();
    throw this.#around!.failed(error);
  };

  #end(): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#around!.ended();
  }
}
