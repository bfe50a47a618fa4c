/** How fast each data pool fills up: its use is written down once a day, and what that tells is kept in memory for whoever looks. */
import { reasonOf } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { shareLoop } from '@virtkeep/shared/turns';
import { relaxedTransaction } from '../../store/dialect.ts';
import type { Database } from '../../store/schema.ts';
import {
  type Forecast,
  forecastOf,
  type Growth,
  growthOf,
  growthOfBackups,
  type PoolSample,
} from './forecast.ts';
import type { PoolService } from './pools.ts';
import type { ListedPool } from './record.ts';

const KEPT_DAYS = 90;
/** Of backups, for pools that are not known for long. */
const BACKUP_DAYS = 28;
/** So many pools are told of; each has at most `KEPT_DAYS` rows. */
const MAX_POOLS = 1000;
const ROWS_AT_ONCE = 100;
const DAY_MS = 86_400_000;

export interface PoolForecastDependencies {
  db: Database;
  pools: Pick<PoolService, 'list'>;
  log: Logger;
}

export class PoolForecasts {
  readonly #dependencies: PoolForecastDependencies;
  /** By the pool's id. */
  #growths: ReadonlyMap<string, Growth> = new Map();

  constructor(dependencies: PoolForecastDependencies) {
    this.#dependencies = dependencies;
  }

  /** Of one that is away nothing is known: what it says of its room then may be nothing at all. */
  of({ id, free_space, size, status }: Pick<ListedPool, 'id' | 'free_space' | 'size' | 'status'>): Forecast {
    const isThere = status === 'ACTIVE' && size > 0;
    return forecastOf(isThere ? this.#growths.get(id) : undefined, free_space);
  }

  /** To be called now and then: a pool that is away has its sample of the day when it is back. It never throws. */
  async round(now: Date): Promise<void> {
    try {
      await this.#sample(now);
      await this.#forget(now);
      await this.refresh(now);
    } catch (error) {
      this.#dependencies.log.error('the use of data pools was not noted', { reason: reasonOf(error) });
    }
  }

  /** Reads what is known anew. */
  async refresh(now: Date): Promise<void> {
    const growths = new Map<string, Growth>();
    for (const { id } of (await this.#dependencies.pools.list({})).slice(0, MAX_POOLS)) {
      const growth = growthOf(await this.#samples(id)) ?? (await this.#growthOfBackups(id, now));
      if (growth !== undefined) growths.set(id, growth);
      await shareLoop();
    }
    this.#growths = growths;
  }

  async #sample(now: Date): Promise<void> {
    const { db, pools } = this.#dependencies;
    const day = dayOf(now);
    const noted = await db.selectFrom('pool_samples').select('pool_id').where('day', '=', day).execute();
    const known = new Set(noted.map(({ pool_id }) => pool_id));
    const missing = (await pools.list({}))
      .filter(({ id, status, size }) => status === 'ACTIVE' && size > 0 && !known.has(id))
      .slice(0, Math.max(0, MAX_POOLS - known.size))
      .map(({ id, used_space }) => ({ pool_id: id, day, used: used_space }));
    await relaxedTransaction(db, async trx => {
      for (let at = 0; at < missing.length; at += ROWS_AT_ONCE)
        await trx
          .insertInto('pool_samples')
          .values(missing.slice(at, at + ROWS_AT_ONCE))
          .onConflict(conflict => conflict.doNothing())
          .execute();
    });
  }

  async #forget(now: Date): Promise<void> {
    const before = dayOf(daysBefore(now, KEPT_DAYS));
    await this.#dependencies.db.deleteFrom('pool_samples').where('day', '<', before).execute();
  }

  #samples(poolId: string): Promise<PoolSample[]> {
    return this.#dependencies.db
      .selectFrom('pool_samples')
      .select(['day', 'used'])
      .where('pool_id', '=', poolId)
      .execute();
  }

  async #growthOfBackups(poolId: string, now: Date): Promise<Growth | undefined> {
    const { first, bytes } = await this.#dependencies.db
      .selectFrom('files')
      .select(({ fn }) => [
        fn.min<string | null>('created').as('first'),
        fn.sum<number | null>('size').as('bytes'),
      ])
      .where('pool_id', '=', poolId)
      .where('created', '>=', daysBefore(now, BACKUP_DAYS).toISOString())
      .where('status', '!=', 'MISSING')
      .executeTakeFirstOrThrow();
    return first === null ? undefined : growthOfBackups(new Date(first), Number(bytes), now);
  }
}

function dayOf(time: Date): string {
  return time.toISOString().slice(0, 10);
}

function daysBefore(time: Date, days: number): Date {
  return new Date(time.getTime() - days * DAY_MS);
}
