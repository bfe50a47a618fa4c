import { randomUUID, X509Certificate } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { serialOf } from '@virtkeep/shared/serials';
import type { NodeCertificate } from '../../agents/clients.ts';
import { keyFiles } from '../../keys/keys.ts';
import { type CertificateAuthority, ensureCa, issueCertificate, nodeUrn } from '../../pki/index.ts';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import { CertificateRegister, certificateRow, fingerprintOf } from './certificate-register.ts';

const NODE = randomUUID();
const DAY_MS = 86_400_000;

let dir: string;
let ca: CertificateAuthority;
let db: Database;
let register: CertificateRegister;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'register-'));
  ca = await ensureCa(keyFiles(dir));
});
afterAll(() => rm(dir, { recursive: true, force: true }));
beforeEach(async () => {
  db = await openTestDatabase();
  register = new CertificateRegister(db);
});
afterEach(() => db.destroy());

async function certificate(nodeId = NODE): Promise<string> {
  const names = { urns: [nodeUrn(nodeId)], hosts: [] };
  const issued = await issueCertificate(ca, { commonName: 'n', names, use: 'server', days: 397 });
  return issued.certificatePem;
}

function shown(pem: string, notBefore?: number): NodeCertificate {
  const { serialNumber, validFromDate, validToDate } = new X509Certificate(pem);
  return {
    serial: serialOf(serialNumber),
    fingerprint: fingerprintOf(pem),
    notBefore: notBefore ?? validFromDate.getTime(),
    notAfter: validToDate.getTime(),
  };
}

/** A node of an installation that was there before certificates were kept. */
async function knownBefore(fingerprint: string): Promise<void> {
  const now = Date.now();
  await db
    .insertInto('certificates')
    .values({
      serial: `before:${NODE}`,
      kind: 'node',
      subject: NODE,
      role: '',
      fingerprint,
      issued: new Date(now).toISOString(),
      expires_on: new Date(now + 398 * DAY_MS).toISOString(),
      superseded: 0,
      revoked_on: null,
      reason: null,
    })
    .execute();
  await register.load();
}

test('only what was issued to this node is taken, also after a restart', async () => {
  const pem = await certificate();
  await register.issued(NODE, pem);
  const restarted = new CertificateRegister(db);
  await restarted.load();
  for (const one of [register, restarted]) {
    expect(one.refusal(NODE, shown(pem))).toBeUndefined();
    expect(one.refusal(NODE, shown(await certificate()))).toContain('not issued to it');
    expect(one.refusal(randomUUID(), shown(pem))).toContain('not issued to it');
  }
});

test('during a renewal the old and every new one is taken, until a newer one was shown', async () => {
  const [old, lost, third] = [await certificate(), await certificate(), await certificate()];
  await register.issued(NODE, old);
  // issued and never heard of again: the answer was lost, or one of the two stopped in between
  await register.issued(NODE, lost);
  await register.issued(NODE, third);
  for (const pem of [old, lost, third, old]) expect(register.refusal(NODE, shown(pem))).toBeUndefined();
  await register.connected(NODE);
  expect(register.refusal(NODE, shown(lost))).toBeUndefined();
  await register.connected(NODE);
  expect(register.refusal(NODE, shown(old))).toContain('replaced');
  expect(register.refusal(NODE, shown(third))).toBeUndefined();
  const restarted = new CertificateRegister(db);
  await restarted.load();
  expect(restarted.refusal(NODE, shown(old))).toContain('replaced');
});

test('a clock that was put back between two renewals lets no old certificate pass for the newer one', async () => {
  const [old, renewed] = [await certificate(), await certificate()];
  await register.issued(NODE, old);
  await db
    .updateTable('certificates')
    .set({ issued: new Date(Date.now() + 9 * DAY_MS).toISOString() })
    .execute();
  register = new CertificateRegister(db);
  await register.load();
  await register.issued(NODE, renewed);
  expect(register.refusal(NODE, shown(old))).toBeUndefined();
  await register.connected(NODE);
  expect(register.refusal(NODE, shown(renewed))).toBeUndefined();
  await register.connected(NODE);
  expect(register.refusal(NODE, shown(old))).toContain('replaced');
});

test('an installation of before goes on with the certificate it has, and with no other after the first connection', async () => {
  const pem = await certificate();
  await knownBefore(fingerprintOf(pem));
  expect(register.refusal(NODE, shown(pem))).toBeUndefined();
  expect(await register.list()).toEqual([]);
  await register.connected(NODE);
  expect((await register.list()).map(({ serial }) => serial)).toEqual([shown(pem).serial]);
  const [row] = await db.selectFrom('certificates').selectAll().execute();
  expect(row).toMatchObject({ serial: shown(pem).serial, fingerprint: fingerprintOf(pem) });
  expect(register.refusal(NODE, shown(await certificate(), Date.now() - 9 * DAY_MS))).toContain('not issued');
});

test('one whose renewal an earlier version lost track of is taken once, one issued since is not', async () => {
  await knownBefore('of the certificate before the last one');
  const pem = await certificate();
  expect(register.refusal(NODE, shown(pem))).toContain('not issued to it');
  expect(register.refusal(NODE, shown(pem, Date.now() - 9 * DAY_MS))).toBeUndefined();
  await register.connected(NODE);
  expect(register.refusal(NODE, shown(pem))).toBeUndefined();
});

test('one of a service is forgotten when it has expired; those of nodes are kept for what they signed', async () => {
  const [ofNode, ofService] = [await certificate(), await certificate()];
  await register.issued(NODE, ofNode);
  const row = certificateRow(ofService, { kind: 'service', subject: 'metrics', role: 'reader' });
  await db.insertInto('certificates').values(row).execute();
  await register.revoke(row.serial, 'removed', row.expires_on);
  await register.prune(new Date(Date.now() + 398 * DAY_MS));
  expect((await register.list()).map(({ serial }) => serial)).toEqual([shown(ofNode).serial]);
});
