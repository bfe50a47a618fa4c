/**
 * Enrolment of nodes. The token an administrator carries to the node is `<secret>.<fingerprint of the CA>`: the secret
 * opens the door once, the fingerprint lets the node check the controller before it sends the secret. Only the secret's
 * hash is kept.
 */
import { createHash, randomBytes, X509Certificate } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { type CertificateAuthority, isHost, signNodeRequest } from '../pki/index.ts';
import type { Database, NodeEnrolmentRow, NodeRow } from '../store/schema.ts';

export interface NewEnrolment {
  verboseName: string;
  description: string;
  /** Host or `host:port`; empty: what the node tells. */
  address: string;
  username: string;
  lifetimeMs: number;
}

export interface EnrolmentTicket {
  id: string;
  verbose_name: string;
  token: string;
  expires_on: string;
}

/** What the node sends; see docs/grpc.md, *Enrolment*. */
export interface EnrolmentRequest {
  token: string;
  csr_pem: string;
  node_id: string;
  hostname: string;
  address: string;
  port: number;
}

const SECRET_BYTES = 24;
const DEFAULT_AGENT_PORT = 8444;

/** Writes a new enrolment. @returns its token, which is shown this once. @throws invalid_field (address). */
export async function makeEnrolment(
  db: Database,
  ca: CertificateAuthority,
  enrolment: NewEnrolment,
): Promise<EnrolmentTicket> {
  const secret = randomBytes(SECRET_BYTES).toString('base64url');
  const now = Date.now();
  const row: NodeEnrolmentRow = {
    id: newId(),
    token_hash: hashOf(secret),
    verbose_name: enrolment.verboseName,
    description: enrolment.description,
    address: enrolment.address === '' ? '' : checkAddress(enrolment.address),
    created: new Date(now).toISOString(),
    expires_on: new Date(now + enrolment.lifetimeMs).toISOString(),
    used_by_node: null,
    created_by: enrolment.username,
  };
  await db.insertInto('node_enrolments').values(row).execute();
  return {
    id: row.id,
    verbose_name: row.verbose_name,
    token: `${secret}.${ca.fingerprint}`,
    expires_on: row.expires_on,
  };
}

export interface EnrolledNode {
  row: NodeRow;
  certificatePem: string;
}

/**
 * Exchanges a token for a certificate. The token is used up only when everything else was found right; a node that
 * enrols again keeps its marks and gets the new address and name.
 * @throws enrolment_token_invalid, invalid_field, name_taken.
 */
export async function redeemEnrolment(
  db: Database,
  ca: CertificateAuthority,
  request: EnrolmentRequest,
): Promise<EnrolledNode> {
  const tokenHash = hashOf(secretOf(request.token, ca));
  const enrolment = await findOpen(db, tokenHash);
  if (!enrolment) throw new VirtkeepError('enrolment_token_invalid');
  const name = enrolment.verbose_name || request.hostname;
  const address = enrolment.address || checkAddress(hostPort(request.address, request.port));
  await assertNameFree(db, name, request.node_id);
  const certificatePem = await signNodeRequest(ca, request.csr_pem, request.node_id);
  if (!(await useUp(db, tokenHash, request.node_id))) throw new VirtkeepError('enrolment_token_invalid');
  return {
    row: await nodeRow(db, request.node_id, name, address, enrolment, certificatePem),
    certificatePem,
  };
}

async function nodeRow(
  db: Database,
  id: string,
  name: string,
  address: string,
  enrolment: NodeEnrolmentRow,
  certificatePem: string,
): Promise<NodeRow> {
  const now = new Date().toISOString();
  const present = await db.selectFrom('nodes').selectAll().where('id', '=', id).executeTakeFirst();
  const fresh = { service_mode: 0, base_datapool: null, inventory_json: '{}', operation_sequence: 0 };
  return {
    ...fresh,
    last_seen: null,
    created: now,
    ...present,
    id,
    verbose_name: name,
    description: enrolment.description || (present?.description ?? ''),
    address,
    certificate_fingerprint: fingerprintOf(certificatePem),
    modified: now,
  };
}

/** SHA-256 of a certificate's DER, lower-case hex. */
export function fingerprintOf(certificatePem: string): string {
  return new X509Certificate(certificatePem).fingerprint256.replaceAll(':', '').toLowerCase();
}

function secretOf(token: string, ca: CertificateAuthority): string {
  const [secret = '', fingerprint] = token.trim().split('.');
  if (secret === '' || fingerprint?.toLowerCase() !== ca.fingerprint)
    throw new VirtkeepError('enrolment_token_invalid');
  return secret;
}

function hashOf(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}

function findOpen(db: Database, tokenHash: string): Promise<NodeEnrolmentRow | undefined> {
  return db
    .selectFrom('node_enrolments')
    .selectAll()
    .where('token_hash', '=', tokenHash)
    .where('used_by_node', 'is', null)
    .where('expires_on', '>', new Date().toISOString())
    .executeTakeFirst();
}

/** Only one of two requests with the same token gets it. */
async function useUp(db: Database, tokenHash: string, nodeId: string): Promise<boolean> {
  const used = await db
    .updateTable('node_enrolments')
    .set({ used_by_node: nodeId })
    .where('token_hash', '=', tokenHash)
    .where('used_by_node', 'is', null)
    .executeTakeFirst();
  return used.numUpdatedRows === 1n;
}

async function assertNameFree(db: Database, name: string, nodeId: string): Promise<void> {
  const other = await db
    .selectFrom('nodes')
    .select('id')
    .where('verbose_name', '=', name)
    .where('id', '!=', nodeId)
    .executeTakeFirst();
  if (other) throw new VirtkeepError('name_taken', { name, field: 'verbose_name' });
}

function hostPort(host: string, port: number): string {
  return `${isIPv6(host) ? `[${host}]` : host}:${port}`;
}

/** `host`, `host:port`, `[v6]:port` or a bare IPv6 address, made `host:port`. @throws invalid_field (address). */
function checkAddress(text: string): string {
  if (isIPv6(text)) return hostPort(text, DEFAULT_AGENT_PORT);
  const match = /^(\[[0-9a-f:.]+\]|[^:[\]]+)(?::([0-9]{1,5}))?$/i.exec(text);
  const port = Number(match?.[2] ?? DEFAULT_AGENT_PORT);
  const host = match?.[1]?.replace(/^\[|\]$/g, '');
  if (host === undefined || !isHost(host) || port < 1 || port > 65_535) {
    throw new VirtkeepError('invalid_field', { field: 'address', reason: 'must be a host or host:port' });
  }
  return hostPort(host, port);
}

/** The host of a `host:port`, without the brackets of IPv6. */
export function hostOf(address: string): string {
  return address.slice(0, address.lastIndexOf(':')).replace(/^\[|\]$/g, '');
}
