/** Enrolment: the agent's command against an HTTPS server that signs with the controller's own code. */

import { statSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { loadIdentity } from '../../../agent/src/enroll/identity.ts';
import {
  type CertificateAuthority,
  type IssuedCertificate,
  issueServerCertificate,
} from '../../../controller/src/pki/authority.ts';
import { signNodeRequest } from '../../../controller/src/pki/csr.ts';
import { AgentChild, AgentHome } from './agent-child.ts';
import { newAuthority } from './pki.ts';

// Each test starts a process, on machines that may be busy.

const SECRET = 'c2VjcmV0LXNlY3JldC1zZWNyZXQ';
const NODE_ID = newId();

let ca: CertificateAuthority;
let own: IssuedCertificate;
let server: Server;
let home: AgentHome;
let requests: Record<string, unknown>[];
let answer: (request: Record<string, string>) => Promise<[number, object]>;

beforeAll(async () => {
  ca = await newAuthority();
  own = await issueServerCertificate(ca, ['localhost', '127.0.0.1']);
  server = createServer({ key: own.privateKeyPem, cert: own.chainPem }, (request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', async () => {
      const body = JSON.parse(Buffer.concat(chunks).toString()) as Record<string, string>;
      requests.push({ url: request.url, method: request.method, ...body });
      const [status, answered] = await answer(body);
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(answered));
    });
  }).listen(0, '127.0.0.1');
});
afterAll(() => {
  server.close();
});

beforeEach(async () => {
  requests = [];
  answer = async request => [
    200,
    { node_id: request.node_id, certificate_pem: await sign(request), ca_pem: ca.certificatePem },
  ];
  home = await AgentHome.make();
  home.write({
    state_dir: join(home.directory, 'fresh'),
    node_id: NODE_ID,
    advertise: { address: '10.0.0.7' },
    listen: { port: 9000 },
  });
});
afterEach(() => home.remove());

function sign(request: Record<string, string>): Promise<string> {
  return signNodeRequest(ca, request.csr_pem!, request.node_id!);
}

async function enrol(
  options: { url?: string; token?: string; more?: string[] } = {},
): Promise<AgentChild & { code: number | string }> {
  const {
    url = `https://localhost:${(server.address() as AddressInfo).port}`,
    token = `${SECRET}.${ca.fingerprint}`,
    more = [],
  } = options;
  const args = ['enroll', '--config', home.config, '--controller', url, '--token', '-', ...more];
  const child = new AgentChild(args, { VIRTKEEP_ENROLL_TOKEN: token });
  return Object.assign(child, { code: await child.exited });
}

test('the key is made on the node, and the signed certificate stored with it', async () => {
  const child = await enrol();
  expect(child.text).toContain(`Enrolled as node ${NODE_ID}`);
  expect(child.code).toBe(0);
  expect(requests).toEqual([
    expect.objectContaining({
      url: '/api/nodes/enroll/',
      method: 'POST',
      token: `${SECRET}.${ca.fingerprint}`,
      node_id: NODE_ID,
      address: '10.0.0.7',
      port: 9000,
    }),
  ]);
  const directory = join(home.directory, 'fresh', 'tls');
  expect(loadIdentity(directory).nodeId).toBe(NODE_ID);
  expect(statSync(join(directory, 'identity.pem')).mode & 0o777).toBe(0o600);
  expect(JSON.stringify(requests)).not.toContain('PRIVATE KEY');
});

test('a server without the pinned certificate gets nothing', async () => {
  const child = await enrol({ token: `${SECRET}.${'0'.repeat(64)}` });
  expect(child.code).toBe(78);
  expect(child.text).toContain('not the controller that made this token');
  expect(requests).toEqual([]);
});

test('one that shows a certificate of another authority is believed when that is named', async () => {
  const other = await newAuthority();
  const file = join(home.directory, 'other.pem');
  writeFileSync(file, other.certificatePem);
  const shown = await issueServerCertificate(other, ['localhost']);
  server.setSecureContext({ key: shown.privateKeyPem, cert: shown.chainPem });
  try {
    const unknown = await enrol();
    expect(unknown.text).toContain('name that: --ca FILE, or --ca system');
    const strangers = await enrol({ more: ['--ca', 'system'] });
    expect([unknown.code, strangers.code, requests]).toEqual([78, 78, []]);
    const child = await enrol({ more: ['--ca', file] });
    expect(child.text).toContain(`Enrolled as node ${NODE_ID}`);
    expect(child.code).toBe(0);
    // whoever the certificate for clients is of, that of the node is of the authority in the token
    const elsewhere = await enrol({ more: ['--ca', file], token: `${SECRET}.${other.fingerprint}` });
    expect(elsewhere.text).toContain('its CA is not the one in the token');
  } finally {
    server.setSecureContext({ key: own.privateKeyPem, cert: own.chainPem });
  }
});

test('authorities that cannot be read', async () => {
  const child = await enrol({ more: ['--ca', '/nowhere.pem'] });
  expect([child.code, requests]).toEqual([78, []]);
  expect(child.text).toContain('/nowhere.pem cannot be read');
});

test('the host name is checked too', async () => {
  const child = await enrol({ url: `https://127.0.0.2:${(server.address() as AddressInfo).port}` });
  expect(child.code).toBe(78);
  expect(requests).toEqual([]);
});

test("the controller's refusal is shown", async () => {
  answer = async () => [400, { detail: 'The enrolment token is not valid.', errors: [] }];
  const child = await enrol();
  expect(child.code).toBe(78);
  expect(child.text).toContain('The enrolment token is not valid.');
});

test('a certificate of another authority, node or key is not stored', async () => {
  const foreign = await newAuthority();
  answer = async request => [
    200,
    {
      node_id: NODE_ID,
      ca_pem: foreign.certificatePem,
      certificate_pem: await signNodeRequest(foreign, request.csr_pem!, NODE_ID),
    },
  ];
  const child = await enrol();
  expect(child.code).toBe(78);
  expect(child.text).toContain('not the one in the token');
  expect(() => loadIdentity(join(home.directory, 'fresh', 'tls'))).toThrow();
});

test.each(['', 'abc', `${SECRET}.123`])('the token "%s" is refused before anything is sent', async token => {
  const child = await enrol({ token });
  expect(child.code).toBe(78);
  expect(child.text).toContain('enrolment token');
  expect(requests).toEqual([]);
});

test('wrong usage ends with 64', async () => {
  for (const args of [['frobnicate'], ['enroll', '--config', home.config], ['--what'], []]) {
    const child = new AgentChild(args);
    expect(await child.exited).toBe(64);
  }
});
