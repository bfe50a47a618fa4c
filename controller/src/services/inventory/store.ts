/** The rows behind the inventory; decides nothing. */
import { setImmediate, setTimeout } from 'node:timers';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { Pool } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { sql } from 'kysely';
import { relaxedTransaction } from '../../store/dialect.ts';
import { piecesOf } from '../../store/pieces.ts';
import type {
  Database,
  DomainCopyRow,
  DomainRow,
  NodeRow,
  PoolNodeRow,
  PoolRow,
} from '../../store/schema.ts';
import type { DomainEntry, KeptDomain } from './kept-domain.ts';

const POWER: Record<string, number> = {
  [PowerState.OFF]: 1,
  [PowerState.SUSPENDED]: 2,
  [PowerState.RUNNING]: 3,
};

/** The power state's number of the REST contract: 0 undefined, 1 off, 2 suspended, 3 on. */
export function powerNumber(state: PowerState): number {
  return POWER[state] ?? 0;
}

/** While many put domains, what comes within this time is written in one transaction: each has four statements besides those that write, ms. */
const TOGETHER_MS = 4;
/** A transaction with so many keeps the loop for some milliseconds. */
const DOMAINS_AT_ONCE = 100;

/** The columns of a domain that is known already. Made once: a builder of expressions for each write took as long as the write. */
const AS_PUT = {
  node_id: sql.ref<string>('excluded.node_id'),
  verbose_name: sql.ref<string>('excluded.verbose_name'),
  power_state: sql.ref<number>('excluded.power_state'),
  template: sql.ref<number>('excluded.template'),
  thin: sql.ref<number>('excluded.thin'),
  record_json: sql.ref<string>('excluded.record_json'),
  modified: sql.ref<string>('excluded.modified'),
  ran_on: sql.ref<string | null>('excluded.ran_on'),
};

/** Somebody who waits until these are written. */
interface Waiting extends PromiseWithResolvers<void> {
  entries: readonly DomainEntry[];
}

export class InventoryStore {
  readonly #db: Database;
  #waiting: Waiting[] = [];
  /** Several had something to write when it was written last. */
  #areMany = false;

  constructor(db: Database) {
    this.#db = db;
  }

  nodes(): Promise<NodeRow[]> {
    return this.#db.selectFrom('nodes').selectAll().execute();
  }

  domains(): Promise<DomainRow[]> {
    return this.#db.selectFrom('domains').selectAll().execute();
  }

  domainCopies(): Promise<DomainCopyRow[]> {
    return this.#db.selectFrom('domain_copies').selectAll().execute();
  }

  pools(): Promise<PoolRow[]> {
    return this.#db.selectFrom('pools').selectAll().execute();
  }

  poolViews(): Promise<PoolNodeRow[]> {
    return this.#db.selectFrom('pool_nodes').selectAll().execute();
  }

  async putNode(row: NodeRow): Promise<void> {
    const { id: _id, ...columns } = row;
    await this.#db
      .insertInto('nodes')
      .values(row)
      .onConflict(conflict => conflict.column('id').doUpdateSet(columns))
      .execute();
  }

  async updateNode(id: string, columns: Partial<NodeRow>): Promise<void> {
    await this.#db.updateTable('nodes').set(columns).where('id', '=', id).execute();
  }

  /** Domains and pool views go with it. */
  async removeNode(id: string): Promise<void> {
    await this.#db.deleteFrom('nodes').where('id', '=', id).execute();
  }

  /**
   * In one transaction, with what others put at the same time: a thousand nodes tell of a thousand changes a second.
   * @param entries none of which is put by anybody else meanwhile
   */
  putDomains(entries: readonly DomainEntry[]): Promise<void> {
    if (entries.length === 0) return Promise.resolve();
    const waiting = { ...Promise.withResolvers<void>(), entries };
    if (this.#waiting.push(waiting) === 1) {
      const write = () => void this.#writeWaiting();
      // one who puts one after the other would wait for nobody
      if (this.#areMany) setTimeout(write, TOGETHER_MS);
      else setImmediate(write);
    }
    return waiting.promise;
  }

  /** Never rejects. */
  async #writeWaiting(): Promise<void> {
    const all = this.#waiting;
    this.#waiting = [];
    this.#areMany = all.length > 1;
    while (all.length > 0) {
      const some = all.splice(0, 1);
      let count = some[0]!.entries.length;
      while (all.length > 0 && count + all[0]!.entries.length <= DOMAINS_AT_ONCE) {
        count += all[0]!.entries.length;
        some.push(all.shift()!);
      }
      await this.#writeTogether(some);
    }
  }

  /** What one of them has that cannot be written (its node was removed) is no fault of the others. */
  async #writeTogether(some: readonly Waiting[]): Promise<void> {
    try {
      await this.#write(some.flatMap(({ entries }) => entries));
      for (const { resolve } of some) resolve();
    } catch (error) {
      const [only, ...others] = some;
      if (others.length === 0) only!.reject(error);
      else for (const { entries, resolve, reject } of some) await this.#write(entries).then(resolve, reject);
    }
  }

  async #write(entries: readonly DomainEntry[]): Promise<void> {
    await relaxedTransaction(this.#db, async trx => {
      for (const some of piecesOf(entries))
        await trx
          .insertInto('domains')
          .values(some.map(rowOfDomain))
          .onConflict(conflict => conflict.column('id').doUpdateSet(AS_PUT))
          .execute();
    });
  }

  async removeDomain(id: string): Promise<void> {
    await this.#db.deleteFrom('domains').where('id', '=', id).execute();
  }

  /** What the other nodes tell of a domain, by node; what others told before is forgotten. */
  async putDomainCopies(domainId: string, copies: ReadonlyMap<string, KeptDomain>): Promise<void> {
    const rows = [...copies].map(([node_id, { json }]) => ({
      domain_id: domainId,
      node_id,
      record_json: json,
    }));
    await this.#db.transaction().execute(async trx => {
      await trx.deleteFrom('domain_copies').where('domain_id', '=', domainId).execute();
      if (rows.length > 0) await trx.insertInto('domain_copies').values(rows).execute();
    });
  }

  async putPool(row: PoolRow, nodeId: string, pool: Pool, now: string): Promise<void> {
    const { id: _id, created: _created, ...columns } = row;
    const view = { record_json: JSON.stringify(Pool.toJSON(pool)), last_seen: now };
    await relaxedTransaction(this.#db, async trx => {
      await trx
        .insertInto('pools')
        .values(row)
        .onConflict(conflict => conflict.column('id').doUpdateSet(columns))
        .execute();
      await trx
        .insertInto('pool_nodes')
        .values({ pool_id: row.id, node_id: nodeId, ...view })
        .onConflict(conflict => conflict.columns(['pool_id', 'node_id']).doUpdateSet(view))
        .execute();
    });
  }

  async updatePool(id: string, columns: Partial<PoolRow>): Promise<void> {
    await this.#db.updateTable('pools').set(columns).where('id', '=', id).execute();
  }

  async removePoolView(poolId: string, nodeId: string): Promise<void> {
    await this.#db
      .deleteFrom('pool_nodes')
      .where('pool_id', '=', poolId)
      .where('node_id', '=', nodeId)
      .execute();
  }
}

function rowOfDomain({ kept, nodeId, firstSeen, modified, ranOn }: DomainEntry): DomainRow {
  return {
    id: kept.id,
    node_id: nodeId,
    verbose_name: kept.name,
    power_state: powerNumber(kept.powerState),
    template: Number(kept.template),
    thin: Number(kept.parentId !== ''),
    record_json: kept.json,
    first_seen: firstSeen,
    modified,
    ran_on: ranOn,
  };
}
