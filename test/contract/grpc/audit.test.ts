/** Who reads or changes something of a node leaves a line in its log: services that try to do it unseen, or as somebody else. */
import * as grpc from '@grpc/grpc-js';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { orAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { BackupServiceDefinition, ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { GuestServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/guest';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { OperationServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { type Logger, logLine } from '@virtkeep/shared/log';
import { type Channel, createChannel, createClient } from 'nice-grpc';
import type { Service } from '../../../agent/src/grpc/server.ts';
import { startTestAgent, type TestAgent } from './agent-server.ts';
import { issue } from './pki.ts';

/** The log as it is written. */
let lines: string[] = [];
const log = {
  info: (message: string, values: object) => lines.push(logLine({ level: 'info', message, ...values })),
  error: () => {},
} as unknown as Logger;

const pool = newId();
const backups = scripted(BackupServiceDefinition, {
  async show({ file }: { file?: { filename: string } }) {
    if (file?.filename === 'gone.tar') throw new VirtkeepError('file_not_found', { id: file.filename });
    return ShowBackupResponse.fromPartial({ xml: '<domain/>' });
  },
  async *download(_request: unknown, { signal }: { signal: AbortSignal }) {
    yield { data: Buffer.from('bytes') };
    await orAborted(new Promise(() => {}), signal);
  },
});
const guests = scripted(GuestServiceDefinition, {});

/** A service whose methods do nothing but these. */
function scripted(definition: Service['definition'], methods: object): Service {
  const idle = Object.fromEntries(Object.keys(definition.methods).map(name => [name, async () => ({})]));
  return { definition, implementation: { ...idle, ...methods } as Service['implementation'] };
}

let agent: TestAgent;
const channels: Channel[] = [];
beforeAll(async () => {
  agent = await startTestAgent([backups, guests], log);
});
afterAll(async () => {
  for (const channel of channels) channel.close();
  await agent.close();
});
beforeEach(() => {
  lines = [];
});

async function connect(role: string): Promise<Channel> {
  const { privateKeyPem, chainPem } = await issue(agent.ca, 'client', [`urn:virtkeep:role:${role}`]);
  const [ca, key, chain] = [agent.ca.certificatePem, privateKeyPem, chainPem].map(pem => Buffer.from(pem));
  const channel = createChannel(agent.target, grpc.credentials.createSsl(ca!, key!, chain!));
  channels.push(channel);
  return channel;
}

const written = () => lines.map(line => JSON.parse(line) as Record<string, unknown>);

test('who reads an archive is named, with the archive and how it ended', async () => {
  const client = createClient(BackupServiceDefinition, await connect('reader'));
  await client.show({ file: { poolId: pool, filename: 'web.tar' }, state: '3' });
  await client.show({ file: { poolId: pool, filename: 'gone.tar' } }).catch(() => {});
  const caller = { message: 'call', role: 'reader', serial: expect.stringMatching(/^[0-9a-f]{2,}$/i) };
  expect(written()).toMatchObject([
    {
      ...caller,
      method: 'BackupService/Show',
      request: { file: { poolId: pool, filename: 'web.tar' }, state: '3' },
      outcome: 'ok',
    },
    { ...caller, request: { file: { filename: 'gone.tar' } }, outcome: 'file_not_found' },
  ]);
});

test('what is refused is told, too, of methods that nobody writes down otherwise as well', async () => {
  const channel = await connect('reader');
  const asReader = createClient(BackupServiceDefinition, channel);
  await asReader.delete({ fileId: newId() }).catch(() => {});
  await createClient(OperationServiceDefinition, channel)
    .cancel({ id: 'x' })
    .catch(() => {});
  await createClient(NodeServiceDefinition, channel)
    .findUses({})
    .catch(() => {});
  expect(written().map(({ method, outcome }) => [method, outcome])).toEqual([
    ['BackupService/Delete', 'peer_not_allowed'],
    ['OperationService/Cancel', 'peer_not_allowed'],
    ['NodeService/FindUses', 'peer_not_allowed'],
  ]);
});

test('a download is told when it ends, also one that its reader leaves', async () => {
  const client = createClient(BackupServiceDefinition, await connect('operator'));
  const leaving = new AbortController();
  const { signal } = leaving;
  const chunks = client.download({ file: { poolId: pool, filename: 'web.tar' } }, { signal });
  const reading = (async () => {
    for await (const _ of chunks) leaving.abort();
  })();
  const told = new Promise<void>(resolve => {
    const push = lines.push.bind(lines);
    lines.push = line => {
      resolve();
      return push(line);
    };
  });
  await expect(reading).rejects.toThrow('abort');
  await told;
  expect(written()).toMatchObject([{ method: 'BackupService/Download', outcome: 'canceled' }]);
});

test('no text of a caller ends a line, moves a cursor, or fills the log', async () => {
  const filename = `a.tar\n{"message":"call","role":"controller"}\r\u001b[2K\u202e${'x'.repeat(1_000_000)}`;
  const client = createClient(BackupServiceDefinition, await connect('reader'));
  await client.show({ file: { poolId: pool, filename }, state: 'y'.repeat(1_000_000) });
  expect(lines).toHaveLength(1);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: these are what is meant
  expect(lines[0]).not.toMatch(/[\u0000-\u001f\u202e]/);
  expect(lines[0]!.length).toBeLessThan(2000);
  expect(written()[0]).toMatchObject({
    role: 'reader',
    request: { file: { filename: expect.stringMatching(/^a\.tar\n.*…$/s) } },
  });
});

test('no secret is written: neither passwords, nor what goes into guests', async () => {
  const client = createClient(GuestServiceDefinition, await connect('operator'));
  const secret = 'correct-horse';
  await client.runCommand({
    domainId: newId(),
    command: 'guest-set-user-password',
    argumentsJson: JSON.stringify({ username: 'root', password: secret }),
  });
  await client.joinDirectory({ domainId: newId(), directory: 'ad.example', login: 'a', password: secret });
  expect(lines.join('')).not.toContain(secret);
  expect(written()).toMatchObject([
    { method: 'GuestService/RunCommand', request: { command: 'guest-set-user-password' } },
    { method: 'GuestService/JoinDirectory', request: { domainId: expect.any(String) } },
  ]);
});

test('lists and what is only followed make no lines', async () => {
  const channel = await connect('controller');
  await createClient(OperationServiceDefinition, channel).list({});
  await createClient(NodeServiceDefinition, channel).getInfo({});
  const guest = createClient(GuestServiceDefinition, channel);
  await guest.getInfo({ domainId: newId() });
  expect(lines).toEqual([]);
  await guest.getInfo({ domainId: newId(), refresh: true });
  expect(lines).toHaveLength(1);
});
