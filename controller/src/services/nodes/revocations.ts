/**
 * Revoked certificates: they are stored, then sent to every connected agent, and to each agent that connects later. An agent answers
 * with its own entries. Entries that this database has lost (it was restored from a backup) are taken from there, since every entry
 * has the authority's signature.
 */
import { createPublicKey, X509Certificate } from 'node:crypto';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { isUnimplemented } from '@virtkeep/shared/grpc-status';
import type { Logger } from '@virtkeep/shared/log';
import {
  isGenuine,
  MAX_REVOCATIONS,
  type Revocation,
  type RevocationReason,
} from '@virtkeep/shared/revocations';
import { serialOf } from '@virtkeep/shared/serials';
import type { AgentClients } from '../../agents/clients.ts';
import type { NodeLinks } from '../../agents/links.ts';
import { type CertificateAuthority, signRevocation } from '../../pki/index.ts';
import type { CertificateRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import type { CertificateRegister } from './certificate-register.ts';

export interface CertificateRecord {
  id: string;
  kind: 'node' | 'service' | 'unknown';
  subject: string;
  role: string;
  issued: string;
  expires_on: string;
  revoked_on: string | null;
  reason: string | null;
}

export type RevokedCertificate = Pick<CertificateRecord, 'id' | 'kind' | 'subject'>;

export interface RevocationDependencies {
  ca: CertificateAuthority;
  register: CertificateRegister;
  links: NodeLinks;
  events: EventService;
  log: Logger;
  /** Serial of the certificate that this controller shows to the agents. */
  ownSerial: () => Promise<string>;
}

/** RFC 5280 bounds a serial number to 20 bytes. */
const SERIAL = /^[1-9a-f][0-9a-f]{0,39}$/;
const CALL_TIMEOUT_MS = 30_000;

export class RevocationService {
  readonly #dependencies: RevocationDependencies;
  readonly #caEnd: string;
  /** Signed entries, by what is signed: they are the same for every node. */
  #signed = new Map<string, Revocation>();

  constructor(dependencies: RevocationDependencies) {
    this.#dependencies = dependencies;
    this.#caEnd = new X509Certificate(dependencies.ca.certificatePem).validToDate.toISOString();
  }

  /** What was issued, and what was revoked. */
  async list(): Promise<CertificateRecord[]> {
    return (await this.#dependencies.register.list()).map(recordOf);
  }

  /**
   * Lets a certificate count no more, of a service or a node. A node that is connected by it is cut off. A mistyped serial would
   * seem to be revoked, so one that is not known here is only taken with `mayBeUnknown`.
   * @returns whose it is
   * @throws certificate_in_use, certificate_not_found, invalid_field (serial)
   */
  async revoke(
    text: string,
    reason: RevocationReason,
    user: string,
    mayBeUnknown = false,
  ): Promise<RevokedCertificate> {
    const { register, links, ownSerial, events } = this.#dependencies;
    const serial = serialOf(text.replaceAll(':', ''));
    if (!SERIAL.test(serial))
      throw new VirtkeepError('invalid_field', { field: 'serial', reason: 'is not a serial number in hex' });
    if (serial === (await ownSerial())) throw new VirtkeepError('certificate_in_use', { id: serial });
    const row = await register.find(serial);
    if (row === undefined && !mayBeUnknown) throw new VirtkeepError('certificate_not_found', { id: serial });
    const revoked = { id: serial, kind: row?.kind || 'unknown', subject: row?.subject ?? '' } as const;
    if (!(await register.revoke(serial, reason, this.#caEnd))) return revoked;
    const nodeId = await register.nodeOf(serial);
    const message = `The certificate ${serial} was revoked`;
    const entities = nodeId === undefined ? [] : [{ id: nodeId, class: 'node' }];
    await events.record({ type: 'warning', message, detailMessage: reason, user, entities });
    this.tellAll();
    if (nodeId !== undefined) await links.reconnect(nodeId, 'its certificate was revoked');
    return revoked;
  }

  /** All certificates that a node was ever given, since it is removed. */
  async revokeNode(nodeId: string, reason: RevocationReason): Promise<void> {
    const { register, events } = this.#dependencies;
    for (const serial of await register.serialsOf(nodeId)) await register.revoke(serial, reason, this.#caEnd);
    if (await register.refuseUnknown(nodeId)) {
      const message =
        'A removed node has a certificate whose serial is not known here: the agents go on believing it';
      const detailMessage =
        'Read its serial on the node (openssl x509 -serial) and say "virtkeep certificates revoke <serial> --unknown".';
      const entities = [{ id: nodeId, class: 'node' }];
      await events.record({ type: 'warning', message, detailMessage, entities });
    }
    this.tellAll();
  }

  /** Sends the entries to every connected agent; an agent that cannot be reached gets them when it connects, or in the next round. */
  tellAll(): void {
    for (const { nodeId, clients } of this.#dependencies.links.connected()) void this.tell(nodeId, clients);
  }

  /** Sends the entries to one agent, and takes over its own. Does not reject. */
  async tell(nodeId: string, clients: AgentClients): Promise<void> {
    const { log } = this.#dependencies;
    try {
      const signal = AbortSignal.timeout(CALL_TIMEOUT_MS);
      const entries = await this.#entries();
      const { revocations } = await clients.node.revoke({ revocations: entries }, { signal });
      if (await this.#learn(nodeId, revocations)) this.tellAll();
    } catch (error) {
      // an agent of an earlier version believes what is signed until it ends
      if (isUnimplemented(error))
        log.info('the node knows nothing of revoked certificates', { node: nodeId });
      else log.warn('revoked certificates not told to the node', { node: nodeId, reason: reasonOf(error) });
    }
  }

  async #entries(): Promise<Revocation[]> {
    const now = new Date().toISOString();
    const rows = (await this.#dependencies.register.revoked()).filter(row => this.#until(row) >= now);
    const signed = new Map<string, Revocation>();
    for (const row of rows.slice(0, MAX_REVOCATIONS)) {
      const key = `${row.serial} ${row.reason}`;
      const entry = { serial: row.serial, reason: row.reason ?? '', until: this.#until(row) };
      signed.set(key, this.#signed.get(key) ?? signRevocation(this.#dependencies.ca, entry));
    }
    this.#signed = signed;
    return [...signed.values()];
  }

  /** What a compromised node signed outlives its certificate, so that entry stays as long as the authority. */
  #until(row: CertificateRow): string {
    return row.kind === 'node' && row.reason === 'compromised' ? this.#caEnd : row.expires_on;
  }

  /**
   * Takes over entries that are missing here, but none that has ended: those are removed here on purpose, and agents keep them for
   * longer. An honest agent sends only genuine entries: after the first one that is not, the rest is ignored, since each check costs
   * time.
   * @returns whether any entry was missing here.
   */
  async #learn(from: string, entries: readonly Revocation[]): Promise<boolean> {
    const { register, links, ca, events, log } = this.#dependencies;
    const reasons = new Map((await register.revoked()).map(row => [row.serial, row.reason]));
    const own = await this.#dependencies.ownSerial();
    const authority = createPublicKey(ca.certificatePem);
    const now = Date.now();
    let isNew = false;
    for (const entry of entries.slice(0, MAX_REVOCATIONS)) {
      const reason = reasons.get(entry.serial);
      if (reason === 'compromised' || reason === entry.reason || entry.serial === own) continue;
      if (Date.parse(entry.until) < now) continue;
      if (!isGenuine(entry, authority)) {
        log.warn('the node tells of a revoked certificate what the authority did not sign', { node: from });
        break;
      }
      reasons.set(entry.serial, entry.reason);
      if (!(await register.revoke(entry.serial, entry.reason as RevocationReason, entry.until))) continue;
      isNew = true;
      const nodeId = await register.nodeOf(entry.serial);
      if (nodeId !== undefined) await links.reconnect(nodeId, 'its certificate was revoked');
    }
    if (isNew) {
      const message = 'Revoked certificates were learnt from a node: this database had forgotten them';
      await events.record({ type: 'warning', message });
    }
    return isNew;
  }
}

function recordOf(row: CertificateRow): CertificateRecord {
  const { serial: id, kind, subject, role, issued, expires_on, revoked_on, reason } = row;
  return { id, kind: kind || 'unknown', subject, role, issued, expires_on, revoked_on, reason };
}
