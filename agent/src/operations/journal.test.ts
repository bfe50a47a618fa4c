import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import Database from 'better-sqlite3';
import { Journal, type OperationRecord } from './journal.ts';

let directory: string;
let path: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-journal-'));
  path = join(directory, 'state', 'journal.db');
});

afterEach(() => rmSync(directory, { recursive: true }));

function record(sequence: number, finished?: Date): OperationRecord {
  return {
    message: {
      id: newId(),
      kind: 'backup',
      state: finished ? OperationState.SUCCEEDED : OperationState.RUNNING,
      entities: [],
      created: new Date(),
      finished,
      progress: undefined,
      error: undefined,
      cancellable: true,
      warnings: [],
      resultJson: '',
      inventoryRevision: 0n,
      result: undefined,
      sequence: BigInt(sequence),
    },
    fingerprint: 'f',
    locks: [{ kind: 'file', id: '/x', mode: 'exclusive' }],
    committed: false,
  };
}

test('a record comes back as it was stored, from a directory only its owner can read', () => {
  const journal = new Journal(path);
  const stored = record(1);
  journal.insertOperation(stored);
  expect(journal.operation(stored.message.id)).toEqual(stored);
  expect(statSync(join(directory, 'state')).mode & 0o777).toBe(0o700);
  journal.close();
});

test('sequences never repeat, whether the last run ended well or not', () => {
  let last = 0;
  for (let run = 0; run < 3; run++) {
    const journal = new Journal(path);
    for (let count = 0; count < 3; count++) {
      const sequence = journal.nextSequence();
      expect(sequence).toBeGreaterThan(last);
      last = sequence;
    }
    expect(journal.lastSequence).toBe(last);
    journal.close();
  }
});

test('purge forgets old ended operations, but none that runs or has something to undo', () => {
  const journal = new Journal(path);
  const old = new Date(Date.now() - 10_000);
  const [running, done, leftover, fresh] = [record(1), record(2, old), record(3, old), record(4, new Date())];
  for (const item of [running, done, leftover, fresh]) journal.insertOperation(item!);
  journal.addEffect(leftover!.message.id, { type: 'file', path: '/x' }, 'always');
  expect(journal.purge(Date.now() - 5_000)).toBe(1);
  expect(journal.operation(done!.message.id)).toBeUndefined();
  expect(
    journal
      .unsettled()
      .map(item => item.message.id)
      .sort(),
  ).toEqual([running!.message.id, leftover!.message.id].sort());
  journal.close();
});

test('what is to be undone of one type is known across operations, oldest first', () => {
  const journal = new Journal(path);
  const [one, other] = [record(1), record(2)];
  for (const item of [one, other]) journal.insertOperation(item);
  journal.addEffect(other.message.id, { type: 'directory', path: '/first' }, 'always');
  journal.addEffect(other.message.id, { type: 'file', path: '/x' }, 'always');
  journal.strikeEffect(journal.addEffect(one.message.id, { type: 'directory', path: '/gone' }, 'always'));
  journal.addEffect(one.message.id, { type: 'directory', path: '/last' }, 'failure');
  expect(journal.pendingEffects('directory').map(effect => effect.path)).toEqual(['/first', '/last']);
  journal.close();
});

test('settings are JSON under a key', () => {
  const journal = new Journal(path);
  expect(journal.settings.get('pools.marks')).toBeUndefined();
  journal.settings.set('pools.marks', { a: [1] });
  journal.settings.set('pools.marks', { a: [2] });
  journal.close();
  const again = new Journal(path);
  expect(again.settings.get('pools.marks')).toEqual({ a: [2] });
  again.close();
});

test('a second agent cannot open the journal of a running one', () => {
  const journal = new Journal(path);
  expect(() => new Journal(path, { busyTimeoutMs: 50 })).toThrow(
    expect.objectContaining({ msgKey: 'journal_failed' }),
  );
  journal.close();
  new Journal(path).close();
});

test('a journal of a newer agent is refused, a file that is none too', () => {
  new Journal(path).close();
  const db = new Database(path);
  db.pragma('user_version = 99');
  db.close();
  expect(() => new Journal(path)).toThrow(expect.objectContaining({ msgKey: 'journal_failed' }));
  expect(() => new Journal(directory)).toThrow(expect.objectContaining({ msgKey: 'journal_failed' }));
});
