/** The statements that a database is asked, caught at the driver. */
import { jest } from '@jest/globals';
import pg from 'pg';
import { StatementCache } from '../../../controller/src/store/statement-cache.ts';

const IS_QUERY = /^(select|insert|update|delete|with)\b/i;

export class Statements {
  readonly #texts: string[] = [];
  readonly #spies: { mockRestore: () => void }[];

  constructor() {
    const { prepare } = StatementCache.prototype;
    const query = pg.Client.prototype.query as (...asked: unknown[]) => unknown;
    const texts = this.#texts;
    const sqlite = jest.spyOn(StatementCache.prototype, 'prepare');
    sqlite.mockImplementation(function (this: StatementCache, text: string) {
      texts.push(text);
      return prepare.call(this, text);
    });
    const postgres = jest.spyOn(pg.Client.prototype, 'query');
    postgres.mockImplementation(function (this: pg.Client, ...asked: unknown[]) {
      texts.push(asked[0] as string);
      return query.apply(this, asked);
    } as never);
    this.#spies = [sqlite, postgres];
  }

  /** Those that were asked while this was done. */
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
