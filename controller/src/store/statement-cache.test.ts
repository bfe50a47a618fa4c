import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import BetterSqlite from 'better-sqlite3';
import { StatementCache } from './statement-cache.ts';

let directory: string;
let database: BetterSqlite.Database;
let prepared: string[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-statements-'));
  database = new BetterSqlite(join(directory, 'a.db'));
  database.exec('create table t (a)');
  prepared = [];
});
afterEach(() => {
  database.close();
  rmSync(directory, { recursive: true });
});

function cache(most?: number): StatementCache {
  const counting = {
    prepare: (text: string) => {
      prepared.push(text);
      return database.prepare<unknown[]>(text);
    },
    close: () => {},
  };
  return new StatementCache(counting, most);
}

test('a statement is prepared once, and again when others have taken its place', () => {
  const statements = cache(2);
  for (const number of [1, 2, 1, 3, 1, 2]) statements.prepare(`select ${number}`);
  expect(prepared).toEqual(['select 1', 'select 2', 'select 3', 'select 2']);
});

test('a long list of values is not kept', () => {
  const statements = cache();
  const text = `select 1 where 1 in (${Array(3000).fill('1').join()})`;
  statements.prepare(text);
  statements.prepare(text);
  expect(prepared).toHaveLength(2);
});

test('a kept statement has the columns that another process has added since', () => {
  const statements = cache();
  database.exec('insert into t values (1)');
  expect(statements.prepare('select * from t').all([])).toEqual([{ a: 1 }]);
  const other = new BetterSqlite(join(directory, 'a.db'));
  other.exec('alter table t add column b default 2');
  other.close();
  expect(statements.prepare('select * from t').all([])).toEqual([{ a: 1, b: 2 }]);
});
