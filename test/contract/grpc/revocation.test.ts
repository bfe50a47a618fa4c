/** Certificates that were revoked: of services whose key leaked, against an agent that they are connected to. */
import { X509Certificate } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as grpc from '@grpc/grpc-js';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Revocation } from '@virtkeep/shared/revocations';
import { serialOf } from '@virtkeep/shared/serials';
import { type Channel, createChannel, createClient } from 'nice-grpc';
import { Revocations } from '../../../agent/src/enroll/revocations.ts';
import type { CertificateAuthority, IssuedCertificate } from '../../../controller/src/pki/authority.ts';
import { signRevocation } from '../../../controller/src/pki/revocation.ts';
import { silent, startTestAgent, type TestAgent } from './agent-server.ts';
import { issue, newAuthority } from './pki.ts';

const UNTIL = new Date(Date.now() + 86_400_000).toISOString();
const REFUSED = { code: grpc.status.PERMISSION_DENIED };

let agent: TestAgent;
let leaked: IssuedCertificate;
let channels: Channel[];
beforeEach(async () => {
  channels = [];
  agent = await startTestAgent();
  leaked = await issue(agent.ca, 'client', ['urn:virtkeep:role:operator']);
});
afterEach(async () => {
  for (const channel of channels) channel.close();
  await agent.close();
});

function connect({ privateKeyPem, chainPem }: IssuedCertificate): Channel {
  const [ca, key, chain] = [agent.ca.certificatePem, privateKeyPem, chainPem].map(pem => Buffer.from(pem));
  const channel = createChannel(agent.target, grpc.credentials.createSsl(ca!, key!, chain!), {
    'grpc.use_local_subchannel_pool': 1,
  });
  channels.push(channel);
  return channel;
}

const serial = ({ certificatePem }: IssuedCertificate) =>
  serialOf(new X509Certificate(certificatePem).serialNumber);

function entry(
  issued: IssuedCertificate,
  reason = 'removed',
  ca: CertificateAuthority = agent.ca,
): Revocation {
  return signRevocation(ca, { serial: serial(issued), reason, until: UNTIL });
}

async function controller() {
  const issued = await issue(agent.ca, 'client', ['urn:virtkeep:role:controller']);
  return createClient(NodeServiceDefinition, connect(issued));
}

const reopened = () =>
  new Revocations({ directory: join(agent.directory, 'tls'), caPem: agent.ca.certificatePem, log: silent });

test('the open calls of a revoked certificate end, and no other is taken on old or new connections', async () => {
  const channel = connect(leaked);
  const other = createClient(
    NodeServiceDefinition,
    connect(await issue(agent.ca, 'client', ['urn:virtkeep:role:reader'])),
  );
  const stream = createClient(NodeServiceDefinition, channel).watchInventory({})[Symbol.asyncIterator]();
  await stream.next();
  const following = stream.next();
  const ended = expect(following).rejects.toMatchObject(REFUSED);
  const answer = await (await controller()).revoke({ revocations: [entry(leaked)] });
  expect(answer.revocations).toEqual([entry(leaked)].map(one => ({ ...one, signature: expect.any(String) })));
  await ended;
  for (const again of [channel, connect(leaked)])
    await expect(createClient(OperationServiceDefinition, again).list({})).rejects.toMatchObject(REFUSED);
  await other.getInfo({});
});

test('nobody but the controller revokes, and nothing counts that the authority has not signed', async () => {
  const victim = await issue(agent.ca, 'client', ['urn:virtkeep:role:reader']);
  const attempt = createClient(NodeServiceDefinition, connect(leaked)).revoke({
    revocations: [entry(victim)],
  });
  await expect(attempt).rejects.toMatchObject(REFUSED);
  const forged = [
    entry(victim, 'removed', await newAuthority()),
    { ...entry(leaked), serial: serial(victim) },
    { ...entry(victim), reason: 'compromised' },
  ];
  const answer = await (await controller()).revoke({ revocations: forged });
  expect(answer.revocations).toEqual([]);
  await createClient(NodeServiceDefinition, connect(victim)).getInfo({});
});

test('it stays revoked after a restart, and when the controller has forgotten it', async () => {
  const caller = await controller();
  await caller.revoke({ revocations: [entry(leaked, 'compromised')] });
  await caller.revoke({ revocations: [] });
  await caller.revoke({ revocations: [entry(leaked, 'removed')] });
  for (const one of [agent.revocations, reopened()]) {
    expect(one.isRevoked(serial(leaked))).toBe(true);
    expect(one.isCompromised(serial(leaked))).toBe(true);
  }
});

test('what a removed one signed counts until it is known to be compromised', async () => {
  const caller = await controller();
  await caller.revoke({ revocations: [entry(leaked, 'removed')] });
  expect(reopened().isCompromised(serial(leaked))).toBe(false);
  await caller.revoke({ revocations: [entry(leaked, 'compromised')] });
  expect(reopened().isCompromised(serial(leaked))).toBe(true);
});

test('entries leave the list after their time', async () => {
  const past = new Date(Date.now() - 31 * 86_400_000).toISOString();
  const old = signRevocation(agent.ca, { serial: serial(leaked), reason: 'removed', until: past });
  expect((await (await controller()).revoke({ revocations: [old] })).revocations).toEqual([]);
});

test('with a damaged list nobody is believed but the controller, until it told it anew', async () => {
  const caller = await controller();
  await caller.revoke({ revocations: [entry(leaked)] });
  writeFileSync(join(agent.directory, 'tls', 'revoked.json'), '[{"serial":');
  const damaged = reopened();
  expect(damaged.unreadable).toBe(true);
  await damaged.add([]);
  expect(damaged.unreadable).toBe(false);
  expect(reopened().unreadable).toBe(false);
});
