import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import type { Logger } from '@virtkeep/shared/log';
import { MAX_REVOCATIONS, type Revocation } from '@virtkeep/shared/revocations';
import type { AgentClients } from '../../agents/clients.ts';
import type { NodeLinks } from '../../agents/links.ts';
import { keyFiles } from '../../keys/keys.ts';
import {
  type CertificateAuthority,
  ensureCa,
  issueCertificate,
  nodeUrn,
  signRevocation,
} from '../../pki/index.ts';
import type { Database } from '../../store/schema.ts';
import { openTestDatabase } from '../../store/test-database.ts';
import type { EventService } from '../journal/events.ts';
import { CertificateRegister, certificateRow, fingerprintOf } from './certificate-register.ts';
import { RevocationService } from './revocations.ts';

const DAY_MS = 86_400_000;
const at = (ms: number) => new Date(Date.now() + ms).toISOString();

let dir: string;
let ca: CertificateAuthority;
let db: Database;
let register: CertificateRegister;
let events: string[];
let warned: unknown[];
let service: RevocationService;
beforeAll(async () => {
  dir = await mkdtemp(join(tmpdir(), 'revocations-'));
  ca = await ensureCa(keyFiles(dir));
});
afterAll(() => rm(dir, { recursive: true, force: true }));
beforeEach(async () => {
  db = await openTestDatabase();
  register = new CertificateRegister(db);
  [events, warned] = [[], []];
  const log = { warn: (...said: unknown[]) => warned.push(said), info() {} } as unknown as Logger;
  service = new RevocationService({
    ca,
    register,
    links: { connected: () => [], reconnect: async () => {} } as unknown as NodeLinks,
    events: {
      record: async ({ message }: { message: string }) => void events.push(message),
    } as unknown as EventService,
    log,
    ownSerial: async () => '1',
  });
});
afterEach(() => db.destroy());

/** The controller tells an agent, which answers this. */
const hears = (revocations: readonly Revocation[]) =>
  service.tell('node', { node: { revoke: async () => ({ revocations }) } } as unknown as AgentClients);

const entry = (serial: string, until = at(DAY_MS)) =>
  signRevocation(ca, { serial, reason: 'compromised', until });

const known = async () => (await register.revoked()).map(({ serial }) => serial);

test('what an agent keeps of a certificate that has ended is no news, and is not taken back', async () => {
  await hears([entry('aa', at(-DAY_MS)), entry('bb')]);
  expect(await known()).toEqual(['bb']);
  events.length = 0;
  await hears([entry('aa', at(-DAY_MS)), entry('bb')]);
  expect(events).toEqual([]);
});

test('of an answer that holds what nobody signed no more is looked at, and the node is named', async () => {
  let looked = 0;
  const forged = Array.from({ length: MAX_REVOCATIONS }, (_, index) => ({
    ...entry('aa'),
    serial: index.toString(16),
    get signature() {
      looked++;
      return 'AAAA';
    },
  }));
  await hears([entry('bb'), ...forged]);
  expect(looked).toBe(1);
  expect(await known()).toEqual(['bb']);
  expect(warned).toEqual([[expect.any(String), { node: 'node' }]]);
});

test('a removed node that is known by its fingerprint alone is believed no more, and its serial asked for', async () => {
  const node = randomUUID();
  const names = { urns: [nodeUrn(node)], hosts: [] };
  const { certificatePem } = await issueCertificate(ca, { commonName: 'n', names, use: 'server', days: 1 });
  const row = certificateRow(certificatePem, { kind: 'node', subject: node });
  await db
    .insertInto('certificates')
    .values({ ...row, serial: `before:${node}` })
    .execute();
  await register.load();
  const shown = {
    serial: row.serial,
    fingerprint: fingerprintOf(certificatePem),
    notBefore: Date.now() - 9 * DAY_MS,
    notAfter: Date.now() + DAY_MS,
  };
  expect(register.refusal(node, shown)).toBeUndefined();
  await service.revokeNode(node, 'removed');
  const afresh = new CertificateRegister(db);
  await afresh.load();
  for (const one of [register, afresh]) {
    expect(one.refusal(node, shown)).toBeDefined();
    expect(one.refusal(node, { ...shown, fingerprint: 'another' })).toBeDefined();
  }
  expect(events).toEqual([expect.stringContaining('serial is not known')]);
});
