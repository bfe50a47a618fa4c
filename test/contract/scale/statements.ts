/** The statements that a database is asked, caught at the driver. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { jest } from '@jest/globals';
import pg from 'pg';
import { StatementCache } from '../../../controller/src/store/statement-cache.ts';

const IS_QUERY = /^(select|insert|update|delete|with)\b/i;

export class Statements {
  readonly #texts: string[] = [];
  /** Follows a work through all that it awaits. */
  readonly #own = new AsyncLocalStorage<string[]>();
  readonly #spies: { mockRestore: () => void }[];

  constructor() {
    const { prepare } = StatementCache.prototype;
    const query = pg.Client.prototype.query as (...asked: unknown[]) => unknown;
    const take = (text: string) => {
      this.#texts.push(text);
      this.#own.getStore()?.push(text);
    };
    const sqlite = jest.spyOn(StatementCache.prototype, 'prepare');
    sqlite.mockImplementation(function (this: StatementCache, text: string) {
      take(text);
      return prepare.call(this, text);
    });
    const postgres = jest.spyOn(pg.Client.prototype, 'query');
    postgres.mockImplementation(function (this: pg.Client, ...asked: unknown[]) {
      take(asked[0] as string);
      return query.apply(this, asked);
    } as never);
    this.#spies = [sqlite, postgres];
  }

  /** Those that this work asked, and not what was asked beside it: of a request, those of its own. */
  async of(work: () => Promise<unknown>): Promise<string[]> {
    const own: string[] = [];
    await this.#own.run(own, work);
    return own;
  }

  /** Those that were asked while this was done, by whatever it set off as well. */
  async during(work: () => Promise<unknown>): Promise<string[]> {
    const from = this.#texts.length;
    await work();
    return this.#texts.slice(from);
  }

  all(): string[] {
    return [...new Set(this.#texts)].filter(text => IS_QUERY.test(text));
  }

  forget(): void {
    this.#texts.length = 0;
  }

  end(): void {
    for (const spy of this.#spies) spy.mockRestore();
  }
}

export const writesTo = (table: string) => (text: string) =>
  new RegExp(`^(insert into|update|delete from) "${table}"`).test(text);
