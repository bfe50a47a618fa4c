/**
 * The one row by which several controllers agree who acts. It needs no migration: who stands by has nothing to do with the schema, which may
 * be that of another version. A connection of its own, so that a renewal waits behind no other statement.
 */
import { sleep } from '@virtkeep/shared/abort';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import type pg from 'pg';
import { clientOf } from './one-connection.ts';
import { SERVING } from './served.ts';
import type { PostgresTarget } from './target.ts';

const WAITING_NAME = `${SERVING}-lease`;
export const LEASE_TABLE = 'controller_lease';

/** A renewal that takes longer is as good as none. */
const ANSWER_MS = 3000;
/** What was ended has to be gone by then. */
const GONE_MS = 10_000;
const LOOK_MS = 50;

export interface LeaseRow {
  /** Of the controller that acts; null when it has gone of itself. */
  holder: string | null;
  /** For people. */
  name: string;
  /** Where it takes what the others forward, as host:port; empty until it does. */
  address: string;
  epoch: number;
  /** Another one after each renewal. */
  beat: number;
  /** Addresses of some of the nodes that the one that acts does not reach, when those are most; else none. */
  away: string[];
  /** The one that stands by and reaches these, as it says; null: none. */
  claim: string | null;
}

export interface Candidate {
  /** UUID, made at the start of the process. */
  holder: string;
  name: string;
}

export class LeaseTable {
  readonly #target: PostgresTarget;
  #client: Promise<pg.Client> | undefined;
  #isPrepared = false;

  constructor(target: PostgresTarget) {
    this.#target = target;
  }

  /** @throws VirtkeepError database_unavailable, as every call here */
  async read(): Promise<LeaseRow> {
    if (!this.#isPrepared) await this.#prepare();
    const [row] = await this.#query(
      'select holder, name, address, epoch, beat, away, claim from controller_lease',
    );
    if (!row) throw new VirtkeepError('database_unavailable', { reason: 'the row of the lease is gone' });
    const { epoch, beat, away } = row;
    return { ...row, epoch: Number(epoch), beat: Number(beat), away: listOf(String(away)) } as LeaseRow;
  }

  /**
   * Takes the lease, if nobody has changed its row since.
   * @returns the new epoch; undefined when somebody has
   */
  async take({ holder, name }: Candidate, seen: LeaseRow): Promise<number | undefined> {
    const [row] = await this.#query(
      `update controller_lease
          set holder = $1, name = $2, address = '', epoch = epoch + 1, beat = beat + 1, away = '', claim = null
        where epoch = $3 and beat = $4 returning epoch`,
      [holder, name, seen.epoch, seen.beat],
    );
    return row && Number(row.epoch);
  }

  /**
   * @param away as the row has it; when it is empty nobody has a claim any more
   * @returns who has a claim; undefined when another controller has the lease
   */
  async renew(
    holder: string,
    epoch: number,
    away: readonly string[],
  ): Promise<{ claim: string | null } | undefined> {
    const [row] = await this.#query(
      `update controller_lease
          set beat = beat + 1, away = $3, claim = case when $3 = '' then null else claim end
        where holder = $1 and epoch = $2 returning claim`,
      [holder, epoch, away.join(' ')],
    );
    return row as { claim: string | null } | undefined;
  }

  /** One that stands by reaches the nodes that the one that acts does not; the first to say so is next. */
  async claim({ holder }: Candidate, epoch: number): Promise<void> {
    await this.#query(
      `update controller_lease set claim = $1 where epoch = $2 and claim is null and away <> ''`,
      [holder, epoch],
    );
  }

  /** Nodes have seen higher epochs, of a database that was put back since: this one's becomes higher still. @returns as `renew` */
  async raise(holder: string, epoch: number, above: number): Promise<number | undefined> {
    const [row] = await this.#query(
      `update controller_lease set epoch = greatest(epoch, $3::bigint) + 1, beat = beat + 1
        where holder = $1 and epoch = $2 returning epoch`,
      [holder, epoch, above],
    );
    return row && Number(row.epoch);
  }

  /** Tells the others where it takes what they forward. @returns false when another controller has the lease */
  async announce(holder: string, epoch: number, address: string): Promise<boolean> {
    const rows = await this.#query(
      'update controller_lease set address = $3, beat = beat + 1 where holder = $1 and epoch = $2 returning beat',
      [holder, epoch, address],
    );
    return rows.length === 1;
  }

  /** The next one need not wait. */
  async release(holder: string, epoch: number): Promise<void> {
    await this.#query(
      `update controller_lease set holder = null, address = '', beat = beat + 1 where holder = $1 and epoch = $2`,
      [holder, epoch],
    );
  }

  /**
   * Ends the connections of every controller that acted before, and waits until they are gone: what it was about to write is not written.
   * It gets no other one (`admission`).
   * @throws VirtkeepError database_unavailable when one of them stays
   */
  async endConnectionsOfOthers(): Promise<void> {
    const until = performance.now() + GONE_MS;
    for (;;) {
      const rows = await this.#query(
        `select pg_terminate_backend(pid) from pg_stat_activity
          where datname = current_database() and starts_with(application_name, $1)`,
        [`${SERVING} `],
      );
      if (rows.length === 0) return;
      if (performance.now() > until)
        throw new VirtkeepError('database_unavailable', {
          reason: 'connections of a former controller do not end',
        });
      await sleep(LOOK_MS);
    }
  }

  async close(): Promise<void> {
    const client = await this.#client?.catch(() => undefined);
    this.#client = undefined;
    await client?.end().catch(() => {});
  }

  /** Two that do so at once: the second finds it done. */
  async #prepare(): Promise<void> {
    await this.#query(
      `do $$ begin
        perform pg_advisory_xact_lock(hashtext('virtkeep controller_lease'));
        create table if not exists controller_lease (
          id int primary key check (id = 1), holder text, name text not null, address text not null,
          epoch bigint not null, beat bigint not null);
        insert into controller_lease values (1, null, '', '', 0, 0) on conflict do nothing;
        if not exists (select from pg_attribute where attrelid = 'controller_lease'::regclass and attname = 'claim') then
          -- who reads all tables meanwhile (pg_dump) must not keep the one that acts from renewing behind this
          perform set_config('lock_timeout', '500ms', true);
          alter table controller_lease add column away text not null default '', add column claim text;
        end if;
      end $$`,
    );
    this.#isPrepared = true;
  }

  async #query(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
    this.#client ??= this.#connect();
    const used = this.#client;
    try {
      const client = await used;
      return (await client.query(text, values)).rows;
    } catch (error) {
      // whatever it was: another connection is as good, and this one may be dead
      if (this.#client === used) this.#client = undefined;
      this.#isPrepared = false;
      used.then(client => client.end()).catch(() => {});
      throw new VirtkeepError('database_unavailable', { reason: reasonOf(error) }, { cause: error });
    }
  }

  async #connect(): Promise<pg.Client> {
    const client = clientOf(
      { ...this.#target, applicationName: WAITING_NAME },
      { connectionTimeoutMillis: ANSWER_MS, query_timeout: ANSWER_MS, statement_timeout: ANSWER_MS },
    );
    // a connection that ends while nobody asks is noticed with the next question
    client.on('error', () => {});
    // some of what goes wrong is told by nothing
    const late = setTimeout(() => void client.end(), 2 * ANSWER_MS);
    try {
      await Promise.race([client.connect(), ended(client)]);
      return client;
    } finally {
      clearTimeout(late);
    }
  }
}

const listOf = (text: string) => text.split(' ').filter(item => item !== '');

const ended = (client: pg.Client) =>
  new Promise<never>((_, reject) => {
    client.once('error', reject);
    client.once('end', () => reject(new Error('the connection ended')));
  });

/**
 * What a connection of a controller that acts must pass before it is used: the lease is still its own. Together with
 * `endConnectionsOfOthers`, nothing is written by one that another has taken over from.
 */
export async function admission(
  query: (text: string, values?: unknown[]) => Promise<unknown[]>,
  holder: string,
): Promise<void> {
  const rows = await query('select 1 from controller_lease where holder = $1', [holder]);
  if (rows.length === 0) throw new VirtkeepError('controller_superseded', { epoch: '?', highest: '?' });
}
