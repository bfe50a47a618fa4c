/**
 * Whether another controller should act, since the one that does is cut off from the nodes and not from the database. It tells which nodes it
 * sees nothing of; one that stands by and sees those says so, and gets the turn. Seen is who shows a certificate of the authority: a node
 * that shows one and is of no use all the same is of none to any of them. The two bounds keep two controllers that see different nodes from
 * taking turns: who takes over sees half of all, or nearly, and so misses less than those that make him lose the turn.
 */
import { connect } from 'node:tls';
import { reasonOf } from '@virtkeep/shared/errors';
import { splitHostPort } from '@virtkeep/shared/host-port';
import type { Logger } from '@virtkeep/shared/log';
import type { CertificateAuthority } from '../pki/index.ts';
import type { LeaseRow } from '../store/lease-table.ts';
import { peerCertificate } from './peer-tls.ts';

/** Of all nodes: a part of them that is off is their own affair. */
const MOST = 2 / 3;
/** Of those that another does not reach. */
const ENOUGH = 3 / 4;
/** So many are tried. */
const SOME = 8;
const HANDSHAKE_MS = 5000;
const PAUSE_MS = 10_000;

export interface Reach {
  /** How many nodes there are. */
  all: number;
  /** Addresses of those of which nothing was seen for long. */
  away: readonly string[];
}

/** @returns some of those that are away, from everywhere in the list, when those are most; else none */
export function missedNodes({ all, away }: Reach): string[] {
  if (away.length === 0 || away.length < MOST * all) return [];
  const count = Math.min(SOME, away.length);
  return Array.from({ length: count }, (_, index) => away[Math.floor((index * away.length) / count)]!);
}

export interface NodeLooksDependencies {
  authority: () => Promise<CertificateAuthority>;
  log: Logger;
  /** Most of what the row names is reached from here. */
  reached: (row: LeaseRow) => Promise<void>;
}

/** How one that stands by looks at the nodes that the one that acts misses: one look at a time, and not all the time. */
export class NodeLooks {
  readonly #dependencies: NodeLooksDependencies;
  #nextMs = 0;

  constructor(dependencies: NodeLooksDependencies) {
    this.#dependencies = dependencies;
  }

  /** Called whenever the row was read. */
  consider(row: LeaseRow): void {
    if (performance.now() < this.#nextMs) return;
    this.#nextMs = Number.POSITIVE_INFINITY;
    this.#look(row)
      .catch((error: unknown) =>
        this.#dependencies.log.warn('whether nodes are reached from here is not known', {
          reason: reasonOf(error),
        }),
      )
      .finally(() => {
        this.#nextMs = performance.now() + PAUSE_MS;
      });
  }

  async #look(row: LeaseRow): Promise<void> {
    const { authority, log, reached } = this.#dependencies;
    if (!(await reachesMost(row.away, await authority()))) return;
    log.warn('this controller reaches nodes that the one that acts does not', { nodes: row.away });
    await reached(row);
  }
}

/** Whether agents of our authority show themselves at most of these addresses. */
export async function reachesMost(addresses: readonly string[], ca: CertificateAuthority): Promise<boolean> {
  const own = await peerCertificate(ca, 'client');
  const tls = { ca: ca.certificatePem, cert: own.chainPem, key: own.privateKeyPem };
  const answers = await Promise.all(addresses.map(address => shakesHands(address, tls)));
  const reached = answers.filter(answer => answer).length;
  return reached > 0 && reached >= ENOUGH * addresses.length;
}

/** Which node it is says its certificate, and is judged by whoever has the turn. */
function shakesHands(address: string, tls: { ca: string; cert: string; key: string }): Promise<boolean> {
  return new Promise(resolve => {
    const socket = connect({
      ...splitHostPort(address),
      ...tls,
      minVersion: 'TLSv1.3',
      ALPNProtocols: ['h2'],
      checkServerIdentity: () => undefined,
    });
    const end = (isReached: boolean) => {
      clearTimeout(late);
      socket.destroy();
      resolve(isReached);
    };
    const late = setTimeout(() => end(false), HANDSHAKE_MS);
    socket.once('secureConnect', () => end(true));
    socket.once('error', () => end(false));
    socket.once('close', () => end(false));
  });
}
