/**
 * The certificates that this controller issued. A node is believed when it shows the newest that it is known to have, or one
 * issued since: during a renewal both the old and the new, since nobody knows whether the node has stored the new one until it
 * shows it. What a newer one has replaced, or what nobody remembers to have issued, is refused, whoever signed it.
 */
import { X509Certificate } from 'node:crypto';
import type { RevocationReason } from '@virtkeep/shared/revocations';
import { serialOf } from '@virtkeep/shared/serials';
import type { NodeCertificate } from '../../agents/clients.ts';
import type { CertificateRow, Database } from '../../store/schema.ts';

/** Certificates begin an hour before they are issued (pki/x509.ts), in whole seconds. */
const BACKDATED_MS = 3_602_000;
/** What an earlier version issued has this and the node's id in place of its serial, until the node shows it. */
const UNKNOWN_SERIAL = 'before:';
const isSerialKnown = ({ serial }: Pick<CertificateRow, 'serial'>): boolean =>
  !serial.startsWith(UNKNOWN_SERIAL);
/** One that an earlier version issued, or that was issued since the database was put back. */
const UNKNOWN = { kind: '' as const, subject: '', role: '', fingerprint: '', superseded: 0 };

export class CertificateRegister {
  readonly #db: Database;
  /** Of nodes, by node, oldest first. */
  readonly #ofNodes = new Map<string, CertificateRow[]>();
  readonly #revoked = new Set<string>();
  /** What each node showed last, when that was taken. */
  readonly #shown = new Map<string, NodeCertificate>();

  constructor(db: Database) {
    this.#db = db;
  }

  /** Reads what was issued; once, before the first node is connected to. */
  async load(): Promise<void> {
    this.#ofNodes.clear();
    const rows = await this.#db
      .selectFrom('certificates')
      .selectAll()
      .where('kind', '=', 'node')
      .orderBy('issued')
      .execute();
    for (const row of rows) this.#rowsOf(row.subject).push(row);
    for (const { serial } of await this.revoked()) this.#revoked.add(serial);
  }

  /** All whose serial is known, the newest first. */
  async list(): Promise<CertificateRow[]> {
    const rows = await this.#db.selectFrom('certificates').selectAll().orderBy('issued', 'desc').execute();
    return rows.filter(isSerialKnown);
  }

  /** Those that count no more, the latest first. */
  revoked(): Promise<CertificateRow[]> {
    return this.#db
      .selectFrom('certificates')
      .selectAll()
      .where('revoked_on', 'is not', null)
      .orderBy('revoked_on', 'desc')
      .execute();
  }

  /**
   * Revokes a certificate, also one of which only the serial is known. A compromised certificate stays compromised.
   * @param unknownUntil until when one is kept of which nothing else is known
   * @returns whether anything changed
   */
  async revoke(serial: string, reason: RevocationReason, unknownUntil: string): Promise<boolean> {
    const existing = await this.find(serial);
    if (existing?.reason === 'compromised' || existing?.reason === reason) return false;
    const now = new Date().toISOString();
    const revocation = { revoked_on: now, reason };
    const row = { ...UNKNOWN, serial, issued: now, expires_on: unknownUntil, ...existing, ...revocation };
    await this.#db
      .insertInto('certificates')
      .values(row)
      .onConflict(conflict => conflict.column('serial').doUpdateSet(revocation))
      .execute();
    this.#revoked.add(serial);
    return true;
  }

  /** Of a node: every certificate that it was ever given. */
  async serialsOf(nodeId: string): Promise<string[]> {
    const rows = await this.#db
      .selectFrom('certificates')
      .select('serial')
      .where('kind', '=', 'node')
      .where('subject', '=', nodeId)
      .execute();
    return rows.filter(isSerialKnown).map(row => row.serial);
  }

  /**
   * Takes no more, for good, what an earlier version issued to this node: its serial is not known, so it cannot be revoked.
   * @returns whether there is such a certificate
   */
  async refuseUnknown(nodeId: string): Promise<boolean> {
    const rows = this.#rowsOf(nodeId).filter(row => !isSerialKnown(row));
    for (const row of rows) await this.#supersede(row);
    return rows.length > 0;
  }

  /** The node whose certificate this is. */
  async nodeOf(serial: string): Promise<string | undefined> {
    const row = await this.find(serial);
    return row?.kind === 'node' ? row.subject : undefined;
  }

  /** What is known of the certificate with this serial. */
  find(serial: string): Promise<CertificateRow | undefined> {
    return this.#db.selectFrom('certificates').selectAll().where('serial', '=', serial).executeTakeFirst();
  }

  /** Writes a node's certificate down: before it leaves, so that the node can show it whatever happens then. */
  async issued(nodeId: string, certificatePem: string): Promise<void> {
    const row = certificateRow(certificatePem, { kind: 'node', subject: nodeId });
    // which one is newer must not depend on a clock that may be put back
    const last = this.#rowsOf(nodeId).at(-1);
    if (last && last.issued >= row.issued) row.issued = new Date(Date.parse(last.issued) + 1).toISOString();
    await this.#db.insertInto('certificates').values(row).execute();
    this.#rowsOf(nodeId).push(row);
  }

  /** Why a node is not to be believed that shows this certificate; undefined: it is. The authority's signature was checked. */
  refusal(nodeId: string, shown: NodeCertificate): string | undefined {
    if (this.#revoked.has(shown.serial)) return 'shows a certificate that was revoked';
    const row = this.#find(nodeId, shown);
    if (row === undefined) return 'shows a certificate that was not issued to it by this controller';
    if (row.superseded === 1) return 'shows a certificate that a newer one has replaced';
    this.#shown.set(nodeId, shown);
    return undefined;
  }

  /** The node is connected: what was issued before the certificate it shows is not taken any more. */
  async connected(nodeId: string): Promise<void> {
    const shown = this.#shown.get(nodeId);
    const row = shown && this.#find(nodeId, shown);
    if (shown === undefined || row === undefined) return;
    if (!isSerialKnown(row)) await this.#learn(row, shown);
    for (const other of this.#rowsOf(nodeId)) {
      if (other.superseded === 1 || other.issued >= row.issued) continue;
      await this.#supersede(other);
    }
  }

  async #supersede(row: CertificateRow): Promise<void> {
    row.superseded = 1;
    await this.#db
      .updateTable('certificates')
      .set({ superseded: 1 })
      .where('serial', '=', row.serial)
      .execute();
  }

  /**
   * Forgets what has expired. Those of nodes stay, two a year and node: what they signed is older than they are, and may yet
   * turn out to be compromised.
   */
  async prune(now: Date): Promise<void> {
    await this.#db
      .deleteFrom('certificates')
      .where('kind', '!=', 'node')
      .where('expires_on', '<', now.toISOString())
      .execute();
  }

  #rowsOf(nodeId: string): CertificateRow[] {
    const rows = this.#ofNodes.get(nodeId) ?? [];
    this.#ofNodes.set(nodeId, rows);
    return rows;
  }

  #find(nodeId: string, { fingerprint, notBefore }: NodeCertificate): CertificateRow | undefined {
    const rows = this.#rowsOf(nodeId);
    const exact = rows.findLast(row => row.fingerprint === fingerprint);
    // Earlier versions lost track of a renewal whose answer was lost: until the first connection what they issued is taken.
    return exact ?? rows.find(row => !isSerialKnown(row) && isBefore(row, notBefore));
  }

  async #learn(row: CertificateRow, { serial, fingerprint, notAfter }: NodeCertificate): Promise<void> {
    const learnt = { serial, fingerprint, expires_on: new Date(notAfter).toISOString() };
    await this.#db.updateTable('certificates').set(learnt).where('serial', '=', row.serial).execute();
    Object.assign(row, learnt);
  }
}

function isBefore(row: CertificateRow, notBefore: number): boolean {
  return row.superseded === 0 && notBefore + BACKDATED_MS < Date.parse(row.issued);
}

/** The row of a certificate that was just issued. */
export function certificateRow(
  certificatePem: string,
  { kind, subject, role = '' }: { kind: 'node' | 'service'; subject: string; role?: string },
): CertificateRow {
  const certificate = new X509Certificate(certificatePem);
  return {
    serial: serialOf(certificate.serialNumber),
    kind,
    subject,
    role,
    fingerprint: fingerprintOf(certificatePem),
    issued: new Date().toISOString(),
    expires_on: certificate.validToDate.toISOString(),
    superseded: 0,
    revoked_on: null,
    reason: null,
  };
}

/** SHA-256 of a certificate's DER, lower-case hex. */
export function fingerprintOf(certificatePem: string): string {
  return new X509Certificate(certificatePem).fingerprint256.replaceAll(':', '').toLowerCase();
}
