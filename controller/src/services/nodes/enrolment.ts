/**
 * Enrolment of nodes. The token an administrator carries to the node is `<secret>.<fingerprint of the CA>`: the secret
 * opens the door once, the fingerprint lets the node check the controller before it sends the secret. Only the secret's
 * hash is kept.
 */
import { createHash, randomBytes } from 'node:crypto';
import { isIPv6 } from 'node:net';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { newId } from '@virtkeep/shared/ids';
import { type CertificateAuthority, isHost, signNodeRequest } from '../../pki/index.ts';
import type { Database, NodeEnrolmentRow, NodeRow } from '../../store/schema.ts';
import { fingerprintOf } from './certificate-register.ts';

export interface NewEnrolment {
  verboseName: string;
  description: string;
  /** Host or `host:port`; empty: what the node tells. */
  address: string;
  username: string;
  lifetimeMs: number;
  /** The node that may take its place anew by this token, and no other; null: a node that is not enrolled. */
  replaces: string | null;
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

/** Writes a new enrolment. @returns its token, which is shown this once. @throws invalid_field (address), node_not_found. */
export async function makeEnrolment(
  db: Database,
  ca: CertificateAuthority,
  enrolment: NewEnrolment,
): Promise<EnrolmentTicket> {
  if (enrolment.replaces !== null && !(await findNode(db, enrolment.replaces)))
    throw new VirtkeepError('node_not_found', { id: enrolment.replaces, field: 'replace' });
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
    replaces: enrolment.replaces,
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
 * Exchanges a token for a certificate. The token is used up only when everything else was found right. It is good for a
 * node that is not enrolled, or for the one node it names; that one keeps its marks, and its name unless the token has another;
 * its address is the one that the token has, or that it tells.
 * @throws enrolment_token_invalid, enrolment_for_other_node, node_known, invalid_field, name_taken.
 */
export async function redeemEnrolment(
  db: Database,
  ca: CertificateAuthority,
  request: EnrolmentRequest,
): Promise<EnrolledNode> {
  const tokenHash = hashOf(secretOf(request.token, ca));
  const enrolment = await findOpen(db, tokenHash);
  if (!enrolment) throw new VirtkeepError('enrolment_token_invalid');
  const present = await findNode(db, request.node_id);
  checkFor(enrolment, request.node_id, present);
  const name = enrolment.verbose_name || present?.verbose_name || request.hostname;
  const address = enrolment.address || checkAddress(hostPort(request.address, request.port));
  await assertNameFree(db, name, request.node_id);
  const certificatePem = await signNodeRequest(ca, request.csr_pem, request.node_id);
  if (!(await useUp(db, tokenHash, request.node_id))) throw new VirtkeepError('enrolment_token_invalid');
  return {
    row: nodeRow(present, enrolment, { id: request.node_id, name, address, certificatePem }),
    certificatePem,
  };
}

/** A token that could take any node's place would let whoever has it be that node to the controller. */
function checkFor({ replaces }: NodeEnrolmentRow, nodeId: string, present: NodeRow | undefined): void {
  if (replaces !== null && replaces !== nodeId)
    throw new VirtkeepError('enrolment_for_other_node', { id: replaces });
  if (replaces === null && present) throw new VirtkeepError('node_known', { id: nodeId });
}

function findNode(db: Database, id: string): Promise<NodeRow | undefined> {
  return db.selectFrom('nodes').selectAll().where('id', '=', id).executeTakeFirst();
}

function nodeRow(
  present: NodeRow | undefined,
  enrolment: NodeEnrolmentRow,
  { id, name, address, certificatePem }: Record<'id' | 'name' | 'address' | 'certificatePem', string>,
): NodeRow {
  const now = new Date().toISOString();
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

/** Tokens that name a node end with it: whoever removes a node means that it stays away. */
export async function forgetEnrolmentsOf(db: Database, nodeId: string): Promise<void> {
  await db
    .deleteFrom('node_enrolments')
    .where('replaces', '=', nodeId)
    .where('used_by_node', 'is', null)
    .execute();
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
