import { mkdirSync } from 'node:fs';
import { dirname } from 'node:path';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import Database from 'better-sqlite3';
import type { Lock } from '../workflows/context.ts';
import type { Effect, UndoWhen } from '../workflows/effect.ts';

/** An operation as the journal keeps it: the message others see, and what the agent alone needs. */
export interface OperationRecord {
  message: Operation;
  /** SHA-256 of kind and request: tells a repeated start from another request under the same id. */
  fingerprint: string;
  locks: Lock[];
  /** The point of no return was passed: `failure` effects are dropped, a crash ends as success. */
  committed: boolean;
}

export interface EffectRecord {
  /** Grows with every effect, so the order of effects is the order of ids. */
  effectId: number;
  operationId: string;
  effect: Effect;
  when: UndoWhen;
}

/**
 * One entry per version of the schema, applied in order; `user_version` counts those applied. Never edit an entry
 * that was released: add one.
 */
const MIGRATIONS = [
  `CREATE TABLE operations (
     id TEXT PRIMARY KEY,
     state TEXT NOT NULL,
     created_ms INTEGER NOT NULL,
     finished_ms INTEGER,
     sequence INTEGER NOT NULL,
     fingerprint TEXT NOT NULL,
     committed INTEGER NOT NULL,
     locks TEXT NOT NULL,
     message TEXT NOT NULL
   ) STRICT, WITHOUT ROWID;
   CREATE INDEX operations_by_sequence ON operations (sequence);
   CREATE INDEX operations_by_created ON operations (created_ms);
   CREATE TABLE effects (
     id INTEGER PRIMARY KEY AUTOINCREMENT,
     operation_id TEXT NOT NULL REFERENCES operations (id),
     undo_when TEXT NOT NULL,
     effect TEXT NOT NULL
   ) STRICT;
   CREATE INDEX effects_by_operation ON effects (operation_id);
   CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;`,
];

/** Sequences are reserved in blocks, so that progress events cost no write; a crash skips the rest of a block. */
const SEQUENCE_BLOCK = 10_000;
const SEQUENCE_KEY = 'journal.sequence_reserved';
const BUSY_TIMEOUT_MS = 5_000;

interface OperationRow {
  message: string;
  fingerprint: string;
  committed: number;
  locks: string;
}

/**
 * What the agent must remember across a crash: operations, the effects still to be undone, and a few settings.
 * SQLite in WAL mode with synchronous=FULL: when a method returns, what it wrote survives a power cut. There are
 * about five writes per operation; progress is never written.
 *
 * Every method throws VirtkeepError `journal_failed`; what it was to write is then not written.
 */
export class Journal {
  readonly path: string;
  /** Durable JSON values of other parts, by key; a key begins with its owner: "pools.base". */
  readonly settings = {
    /** Undefined when nothing is stored. */
    get: (key: string): unknown => this.#getSetting(key),
    set: (key: string, value: unknown): void => this.#setSetting(key, value),
  };
  readonly #db: Database.Database;
  #nextSequence: number;
  #reservedSequence: number;

  /** @param path of the database file; its directory is made (mode 0700) when absent. */
  constructor(path: string, { busyTimeoutMs = BUSY_TIMEOUT_MS } = {}) {
    this.path = path;
    this.#db = this.#guard(() => openDatabase(path, busyTimeoutMs));
    this.#nextSequence = (this.#getSetting(SEQUENCE_KEY) as number | undefined) ?? 1;
    this.#reservedSequence = this.#nextSequence;
  }

  /** The next sequence of this agent's events: grows across restarts, by more than one after a crash. */
  nextSequence(): number {
    if (this.#nextSequence >= this.#reservedSequence) {
      this.#setSetting(SEQUENCE_KEY, this.#reservedSequence + SEQUENCE_BLOCK);
      this.#reservedSequence += SEQUENCE_BLOCK;
    }
    return this.#nextSequence++;
  }

  /** The newest sequence given out in this or an earlier run; 0 when none was. */
  get lastSequence(): number {
    return this.#nextSequence - 1;
  }

  insertOperation(record: OperationRecord): void {
    this.#guard(() =>
      this.#db
        .prepare(
          `INSERT INTO operations (id, state, created_ms, finished_ms, sequence, fingerprint, committed, locks, message)
           VALUES (@id, @state, @createdMs, @finishedMs, @sequence, @fingerprint, @committed, @locks, @message)`,
        )
        .run(toRow(record)),
    );
  }

  updateOperation(record: OperationRecord): void {
    this.#guard(() => this.#update(record));
  }

  /** Stores the record as committed and drops its `failure` effects, in one transaction. */
  commitOperation(record: OperationRecord): void {
    this.#guard(() =>
      this.#db.transaction(() => {
        this.#update(record);
        this.#db
          .prepare(`DELETE FROM effects WHERE operation_id = ? AND undo_when = 'failure'`)
          .run(record.message.id);
      })(),
    );
  }

  operation(id: string): OperationRecord | undefined {
    const row = this.#guard(() =>
      this.#db.prepare<[string], OperationRow>(`SELECT ${COLUMNS} FROM operations WHERE id = ?`).get(id),
    );
    return row && fromRow(row);
  }

  /** All operations, newest first, at most `limit`. */
  operations(limit: number): Operation[] {
    return this.#messages('SELECT message FROM operations ORDER BY created_ms DESC, id LIMIT ?', limit);
  }

  /** Ended operations whose last event is after `sequence`, oldest event first, at most `limit`. */
  endedAfter(sequence: number, limit: number): Operation[] {
    return this.#messages(
      `SELECT message FROM operations WHERE sequence > ? AND finished_ms IS NOT NULL ORDER BY sequence LIMIT ?`,
      sequence,
      limit,
    );
  }

  /** Operations that an earlier run left behind: still running, or with effects to undo. */
  unsettled(): OperationRecord[] {
    const rows = this.#guard(() =>
      this.#db
        .prepare<[], OperationRow>(
          `SELECT ${COLUMNS} FROM operations
           WHERE finished_ms IS NULL OR id IN (SELECT operation_id FROM effects) ORDER BY created_ms, id`,
        )
        .all(),
    );
    return rows.map(fromRow);
  }

  /** Effects of an operation still to be undone, newest first. */
  effects(operationId: string): EffectRecord[] {
    const rows = this.#guard(() =>
      this.#db
        .prepare<[string], { id: number; undo_when: UndoWhen; effect: string }>(
          'SELECT id, undo_when, effect FROM effects WHERE operation_id = ? ORDER BY id DESC',
        )
        .all(operationId),
    );
    return rows.map(row => ({
      effectId: row.id,
      operationId,
      effect: JSON.parse(row.effect) as Effect,
      when: row.undo_when,
    }));
  }

  /** Effects of that type still to be undone, of all operations, oldest first. */
  pendingEffects<T extends Effect['type']>(type: T): Extract<Effect, { type: T }>[] {
    const rows = this.#guard(() =>
      this.#db
        .prepare<[string], { effect: string }>(
          `SELECT effect FROM effects WHERE json_extract(effect, '$.type') = ? ORDER BY id`,
        )
        .all(type),
    );
    return rows.map(({ effect }) => JSON.parse(effect) as Extract<Effect, { type: T }>);
  }

  /** Durably declares an effect; returns its id. */
  addEffect(operationId: string, effect: Effect, when: UndoWhen): number {
    return this.#guard(() => {
      const insert = this.#db.prepare(
        'INSERT INTO effects (operation_id, undo_when, effect) VALUES (?, ?, ?)',
      );
      return Number(insert.run(operationId, when, JSON.stringify(effect)).lastInsertRowid);
    });
  }

  /** What is left to be undone of an effect. */
  amendEffect(effectId: number, effect: Effect): void {
    this.#guard(() =>
      this.#db.prepare('UPDATE effects SET effect = ? WHERE id = ?').run(JSON.stringify(effect), effectId),
    );
  }

  /** The effect is undone, or meant to stay. Idempotent. */
  strikeEffect(effectId: number): void {
    this.#guard(() => this.#db.prepare('DELETE FROM effects WHERE id = ?').run(effectId));
  }

  /** Forgets operations that ended before `beforeMs` (Unix time, ms) and have nothing left to undo; returns how many. */
  purge(beforeMs: number): number {
    return this.#guard(
      () =>
        this.#db
          .prepare(
            'DELETE FROM operations WHERE finished_ms < ? AND id NOT IN (SELECT operation_id FROM effects)',
          )
          .run(beforeMs).changes,
    );
  }

  close(): void {
    this.#db.close();
  }

  #getSetting(key: string): unknown {
    const row = this.#guard(() =>
      this.#db.prepare<[string], { value: string }>('SELECT value FROM settings WHERE key = ?').get(key),
    );
    return row && JSON.parse(row.value);
  }

  #setSetting(key: string, value: unknown): void {
    this.#guard(() =>
      this.#db
        .prepare(
          'INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value',
        )
        .run(key, JSON.stringify(value)),
    );
  }

  #update(record: OperationRecord): void {
    this.#db
      .prepare(
        `UPDATE operations SET state = @state, finished_ms = @finishedMs, sequence = @sequence,
           committed = @committed, locks = @locks, message = @message WHERE id = @id`,
      )
      .run(toRow(record));
  }

  #messages(sql: string, ...parameters: number[]): Operation[] {
    const rows = this.#guard(() => this.#db.prepare<number[], { message: string }>(sql).all(...parameters));
    return rows.map(row => Operation.fromJSON(JSON.parse(row.message)));
  }

  #guard<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      throw new VirtkeepError(
        'journal_failed',
        { path: this.path, reason: reasonOf(error) },
        { cause: error },
      );
    }
  }
}

const COLUMNS = 'message, fingerprint, committed, locks';

function openDatabase(path: string, busyTimeoutMs: number): Database.Database {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 });
  const db = new Database(path, { timeout: busyTimeoutMs });
  // One agent per journal: a second one would undo what the first is doing. The lock goes with the process.
  db.pragma('locking_mode = EXCLUSIVE');
  db.pragma('journal_mode = WAL');
  db.pragma('synchronous = FULL');
  db.pragma('foreign_keys = ON');
  const version = db.pragma('user_version', { simple: true }) as number;
  if (version > MIGRATIONS.length) {
    db.close();
    throw new Error(
      `it was written by a newer agent (schema ${version}, this agent knows ${MIGRATIONS.length})`,
    );
  }
  // nothing is written that need not be: on a full disk the agent must start, to let go of guests that it holds
  if (version === MIGRATIONS.length) return db;
  db.transaction(() => {
    for (const migration of MIGRATIONS.slice(version)) db.exec(migration);
    db.pragma(`user_version = ${MIGRATIONS.length}`);
  }).immediate();
  return db;
}

function toRow(record: OperationRecord): Record<string, string | number | null> {
  const { message } = record;
  const ended = message.state !== OperationState.RUNNING;
  return {
    id: message.id,
    state: message.state,
    createdMs: message.created?.getTime() ?? 0,
    finishedMs: ended ? (message.finished?.getTime() ?? 0) : null,
    sequence: Number(message.sequence),
    fingerprint: record.fingerprint,
    committed: record.committed ? 1 : 0,
    locks: JSON.stringify(record.locks),
    message: JSON.stringify(Operation.toJSON(message)),
  };
}

function fromRow(row: OperationRow): OperationRecord {
  return {
    message: Operation.fromJSON(JSON.parse(row.message)),
    fingerprint: row.fingerprint,
    committed: row.committed === 1,
    locks: JSON.parse(row.locks) as Lock[],
  };
}
