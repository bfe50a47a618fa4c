/**
 * A controller among several on one database: it stands by, forwarding what it is asked to the one that acts, until its own turn comes. A turn
 * ends with the process: what is in memory is then as it is after any start.
 */
import { randomUUID } from 'node:crypto';
import type { Server } from 'node:net';
import { hostname } from 'node:os';
import { orAborted } from '@virtkeep/shared/abort';
import { EX_TEMPFAIL } from '@virtkeep/shared/daemon-cli';
import { joinHostPort } from '@virtkeep/shared/host-port';
import type { Logger } from '@virtkeep/shared/log';
import type { ControllerConfig } from '../config.ts';
import { openKeys } from '../keys/open-keys.ts';
import { openAuthority } from '../pki/index.ts';
import { admission, type LeaseRow, LeaseTable } from '../store/lease-table.ts';
import { openPostgres } from '../store/postgres.ts';
import { SERVING } from '../store/served.ts';
import type { PostgresTarget } from '../store/target.ts';
import type { ActingPlace } from './forwarder.ts';
import { HeldLease, leaseTimes, STEADY_CLOCK, type TakenLease, takeLease } from './lease.ts';
import { missedNodes, NodeLooks, type Reach } from './reach.ts';
import { Standby } from './standby.ts';

/** Who has taken over since the one before was cut off keeps the turn for so long, whatever he reaches: turns must not go to and fro. */
const KEPT_MS = 600_000;

export interface MemberOptions {
  config: ControllerConfig;
  target: PostgresTarget;
  log: Logger;
  /** It has joined: it stands by, or its turn has come. */
  joined: () => void;
  /** What is under way is not waited for. */
  hurry: AbortSignal;
}

export class Turn {
  readonly lease: HeldLease;
  /** Of a connection that is good for nothing once the turn has ended. */
  readonly target: PostgresTarget;
  readonly #taken: TakenLease;
  readonly #table: LeaseTable;
  readonly #standby: Standby;

  constructor(parts: {
    lease: HeldLease;
    taken: TakenLease;
    target: PostgresTarget;
    table: LeaseTable;
    standby: Standby;
  }) {
    this.lease = parts.lease;
    this.#taken = parts.taken;
    this.target = parts.target;
    this.#table = parts.table;
    this.#standby = parts.standby;
  }

  /**
   * Gives the turn away when this controller is cut off from most nodes and another one is not (reach.ts).
   * @param stop ends this controller in order, to be started again and stand by
   */
  watchReach(reach: () => Reach, stop: (reason: string) => void): void {
    const { isClaimed, takenMs } = this.#taken;
    const mayYield = () => !isClaimed || STEADY_CLOCK.now() - takenMs >= KEPT_MS;
    this.lease.watchReach({
      away: () => (mayYield() ? missedNodes(reach()) : []),
      yields: () => stop('another controller reaches the nodes that this one does not'),
    });
  }

  /**
   * What comes to any controller of them goes to this one from now on.
   * @param peerPort at which it takes what is forwarded
   */
  async begin({ cluster }: ControllerConfig, peerPort: number): Promise<void> {
    const { host } = cluster.peer;
    const isAny = host === '0.0.0.0' || host === '::';
    this.#standby.forwardTo({
      address: joinHostPort(isAny ? '127.0.0.1' : host, peerPort),
      epoch: this.lease.epoch,
    });
    await this.lease.announce(joinHostPort(cluster.address ?? hostname(), peerPort));
  }

  /** @returns false: it has not stood by, and the server is to listen by itself */
  giveSocketTo(server: Server): Promise<boolean> {
    return this.#standby.giveSocketTo(server);
  }

  /** Waits until what still comes over connections of the time before is answered. */
  drain(): Promise<void> {
    return this.#standby.drain();
  }

  /** The others know when it resolves that what comes to them waits for the next one. */
  async yield(): Promise<void> {
    await this.lease.announce('').catch(() => {});
    await this.lease.untilSeen();
  }

  /** Gives the turn to another one. At the very end: the database is closed by then, and no node is asked any more. */
  async end(): Promise<void> {
    await this.#standby.stop();
    await this.lease.release();
    await this.#table.close();
  }
}

/**
 * Stands by until this controller may act, and whoever acted before can write nothing any more.
 * @returns undefined when the signal fires before
 * @throws ConfigError when the keys in the database are not of this controller's key file; the error of the listening socket
 */
export async function awaitTurn(options: MemberOptions, stopping: AbortSignal): Promise<Turn | undefined> {
  const { config, target, log, joined, hurry } = options;
  const candidate = { holder: randomUUID(), name: hostname() };
  log.info('this controller joins those with the same database', candidate);
  const table = new LeaseTable(target);
  const standby = new Standby({ config, log, authority: () => sharedAuthority(config, target) });
  const failed = new AbortController();
  const looks = new NodeLooks({
    authority: () => standby.authority(),
    log,
    reached: ({ epoch }) => table.claim(candidate, epoch),
  });
  const see = (row: LeaseRow | undefined) => {
    if (row) joined();
    if (row && row.away.length > 0 && row.claim === null) looks.consider(row);
    standby.point(...placeOf(row)).catch((error: unknown) => failed.abort(error));
  };
  const base = {
    table,
    candidate,
    log,
    times: leaseTimes(config.cluster.lease_s * 1000),
    clock: STEADY_CLOCK,
  };
  const taken = await takeLease(base, see, AbortSignal.any([stopping, failed.signal]));
  if (!taken) {
    const limit = AbortSignal.any([hurry, AbortSignal.timeout(config.shutdown_drain_s * 1000)]);
    if (stopping.aborted) await orAborted(standby.drain(), limit).catch(() => {});
    await standby.stop();
    await table.close();
    failed.signal.throwIfAborted();
    return undefined;
  }
  const lost = (reason: string) => {
    log.error('this controller acts no more, and ends', { reason });
    process.exit(EX_TEMPFAIL);
  };
  const lease = new HeldLease({ ...base, lost }, taken);
  await table.endConnectionsOfOthers();
  const own: PostgresTarget = {
    ...target,
    applicationName: `${SERVING} ${taken.epoch}`,
    admit: query => admission(query, candidate.holder),
  };
  return new Turn({ lease, taken, target: own, table, standby });
}

async function sharedAuthority(config: ControllerConfig, target: PostgresTarget) {
  const db = openPostgres(target);
  try {
    return await openAuthority(config.state_dir, await openKeys(config, db));
  } finally {
    await db.destroy();
  }
}

function placeOf(row: LeaseRow | undefined): [ActingPlace | undefined, string] {
  if (!row) return [undefined, 'the database does not answer'];
  if (row.holder === null || row.address === '') return [undefined, 'another one is about to take over'];
  return [{ address: row.address, epoch: row.epoch }, ''];
}
