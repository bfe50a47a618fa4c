/**
 * The agent's gRPC contract as any other program sees it: most of it through a client that knows nothing but the
 * .proto files, or nothing but what reflection tells.
 */
import { join } from 'node:path';
import { connect } from 'node:tls';
import * as grpc from '@grpc/grpc-js';
import { loadFileDescriptorSetFromBuffer, loadSync, type MessageTypeDefinition } from '@grpc/proto-loader';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { orAborted } from '@virtkeep/shared/abort';
import { NodeServiceDefinition } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { newId } from '@virtkeep/shared/ids';
import { type Channel, createChannel, createClient, createClientFactory } from 'nice-grpc';
import { errorDetailsClientMiddleware } from 'nice-grpc-error-details';
import { HealthDefinition } from 'nice-grpc-server-health';
import { loadIdentity } from '../../../agent/src/enroll/identity.ts';
import type { CertificateAuthority } from '../../../controller/src/pki/authority.ts';
import { signNodeRequest } from '../../../controller/src/pki/csr.ts';
import { nodeHost } from '../../../controller/src/pki/names.ts';
import { tableErrors } from '../../lab/table-errors.ts';
import { startTestAgent, type TestAgent } from './agent-server.ts';
import { issue, newAuthority } from './pki.ts';

const PROTOS = join(import.meta.dirname, '../../../protos');
const TEST_PROTOS = join(import.meta.dirname, 'protos');
const CONTROLLER = 'urn:virtkeep:role:controller';

let agent: TestAgent;
let controller: grpc.ChannelCredentials;

beforeAll(async () => {
  agent = await startTestAgent();
  controller = await clientCredentials([CONTROLLER]);
});
afterAll(() => agent.close());

async function clientCredentials(urns: string[], issuer: CertificateAuthority = agent.ca) {
  const certificate = await issue(issuer, 'client', urns);
  return grpc.credentials.createSsl(
    Buffer.from(agent.ca.certificatePem),
    Buffer.from(certificate.privateKeyPem),
    Buffer.from(certificate.chainPem),
  );
}

type Answer = Record<string, unknown>;
interface LooseClient extends grpc.Client {
  [method: string]: unknown;
}

function load(files: string | string[], directory: string) {
  return loadSync(files, {
    includeDirs: [directory],
    longs: Number,
    enums: String,
    oneofs: true,
    defaults: true,
  });
}

/** A client made from the .proto files alone. */
function independentClient(serviceName: string, credentials = controller, options = {}): LooseClient {
  const definition = load(
    ['operation', 'node'].map(name => `virtkeep/agent/v1/${name}.proto`),
    PROTOS,
  );
  const service = definition[`virtkeep.agent.v1.${serviceName}`] as grpc.ServiceDefinition;
  return new (grpc.makeGenericClientConstructor(service, serviceName))(
    agent.target,
    credentials,
    options,
  ) as LooseClient;
}

/** The result of an operation, by the protos alone. */
function unpacked({ result }: Answer): object {
  const { type_url: type, value } = result as { type_url: string; value: Buffer };
  const known = load('virtkeep/agent/v1/operation_result.proto', PROTOS);
  return (known[type.split('/').at(-1)!] as MessageTypeDefinition<object, object>).deserialize(value);
}

function call(client: LooseClient, method: string, request: object, deadlineMs = 240_000): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const done = (error: grpc.ServiceError | null, answer: Answer) =>
      error ? reject(error) : resolve(answer);
    (client[method] as (...args: unknown[]) => void).call(
      client,
      request,
      { deadline: Date.now() + deadlineMs },
      done,
    );
  });
}

async function withClient<T>(client: LooseClient, work: (client: LooseClient) => Promise<T>): Promise<T> {
  try {
    return await work(client);
  } finally {
    client.close();
  }
}

async function collect(
  client: LooseClient,
  method: string,
  request: object,
  count: number,
): Promise<Answer[]> {
  const stream = (client[method] as (request: object) => grpc.ClientReadableStream<Answer>).call(
    client,
    request,
  );
  const items: Answer[] = [];
  stream.on('error', () => {});
  for await (const item of stream) {
    items.push(item as Answer);
    if (items.length === count) break;
  }
  stream.cancel();
  return items;
}

async function finishedOperation(): Promise<string> {
  const id = newId();
  agent.runner.start({
    id,
    kind: 'test',
    request: { a: 1 },
    entities: [],
    locks: [],
    cancellable: true,
    workflow: async context => context.commit({ $case: 'prepare', value: { operations: ['logfiles'] } }),
  });
  for await (const _ of agent.runner.watch(0, id, AbortSignal.timeout(240_000)));
  return id;
}

describe('who may call', () => {
  test('no client certificate: refused in the handshake', async () => {
    const naked = grpc.credentials.createSsl(Buffer.from(agent.ca.certificatePem));
    await withClient(independentClient('NodeService', naked), client =>
      expect(call(client, 'GetInfo', {})).rejects.toMatchObject({ code: grpc.status.UNAVAILABLE }),
    );
  });

  test('a certificate of a foreign authority: refused in the handshake', async () => {
    const foreign = await clientCredentials([CONTROLLER], await newAuthority());
    await withClient(independentClient('NodeService', foreign), client =>
      expect(call(client, 'GetInfo', {})).rejects.toMatchObject({ code: grpc.status.UNAVAILABLE }),
    );
  });

  test('plain text: no answer', async () => {
    await withClient(independentClient('NodeService', grpc.credentials.createInsecure()), client =>
      expect(call(client, 'GetInfo', {})).rejects.toMatchObject({ code: grpc.status.UNAVAILABLE }),
    );
  });

  test('TLS 1.1: refused', async () => {
    const outcome = await new Promise(resolve => {
      const options = {
        port: agent.server.port,
        rejectUnauthorized: false,
        minVersion: 'TLSv1' as const,
        maxVersion: 'TLSv1.1' as const,
      };
      const socket = connect({ ...options, ciphers: 'DEFAULT@SECLEVEL=0' }, () => resolve('connected'));
      socket.on('error', () => resolve('refused'));
    });
    expect(outcome).toBe('refused');
  });

  test('a service with the role reader may read and nothing else; the refusal is a google.rpc.ErrorInfo', async () => {
    const reader = await clientCredentials(['urn:virtkeep:role:reader']);
    await withClient(independentClient('OperationService', reader), async client => {
      await call(client, 'List', {});
      const refused = (await call(client, 'Cancel', { id: newId() }).catch(
        error => error,
      )) as grpc.ServiceError;
      expect(refused.code).toBe(grpc.status.PERMISSION_DENIED);
      expect(errorInfo(refused)).toMatchObject({ reason: 'peer_not_allowed', domain: 'virtkeep' });
    });
  });

  test.each([
    ['reader', grpc.status.PERMISSION_DENIED],
    ['operator', undefined],
    ['controller', undefined],
  ])('%s sees an operation, its own or another, and may cancel both or none', async (role, refusal) => {
    const credentials = await clientCredentials([`urn:virtkeep:role:${role}`]);
    await withClient(independentClient('OperationService', credentials), async client => {
      for (const subject of ['test', 'another']) {
        const id = newId();
        agent.runner.start({
          id,
          kind: 'test',
          request: { subject },
          entities: [],
          locks: [],
          cancellable: true,
          workflow: async ({ signal }) => orAborted(new Promise<never>(() => {}), signal),
        });
        expect(await call(client, 'Get', { id })).toMatchObject({ id });
        const refused = await call(client, 'Cancel', { id }).then(
          () => undefined,
          (error: grpc.ServiceError) => error.code,
        );
        expect(refused).toBe(refusal);
        agent.runner.cancel(id);
      }
    });
  });

  test('a client cannot name its own role in the metadata', async () => {
    const none = await clientCredentials(['urn:virtkeep:other']);
    const metadata = new grpc.Metadata();
    metadata.set('virtkeep-internal-peer', encodeURIComponent('{"subject":"me","role":"controller"}'));
    await withClient(independentClient('NodeService', none), async client => {
      const error = await new Promise<grpc.ServiceError | null>(resolve =>
        (client.GetInfo as (...args: unknown[]) => void).call(client, {}, metadata, resolve),
      );
      expect(error?.code).toBe(grpc.status.PERMISSION_DENIED);
    });
  });

  test("a node's own certificate commands no node", async () => {
    const node = await issue(agent.ca, 'client', [`urn:virtkeep:node:${newId()}`]);
    const credentials = grpc.credentials.createSsl(
      Buffer.from(agent.ca.certificatePem),
      Buffer.from(node.privateKeyPem),
      Buffer.from(node.chainPem),
    );
    await withClient(independentClient('NodeService', credentials), client =>
      expect(call(client, 'GetInfo', {})).rejects.toMatchObject({ code: grpc.status.PERMISSION_DENIED }),
    );
  });
});

/** The ErrorInfo in the status details, decoded without our code. */
function errorInfo(error: grpc.ServiceError): Answer {
  const { AsStatus, AsErrorInfo } = load('rich-status.proto', TEST_PROTOS)[
    'rich.Decoders'
  ] as grpc.ServiceDefinition;
  const bytes = error.metadata.get('grpc-status-details-bin')[0] as Buffer;
  const { details } = AsStatus!.responseDeserialize(bytes) as {
    details: { typeUrl: string; value: Buffer }[];
  };
  expect(details[0]!.typeUrl).toBe('type.googleapis.com/google.rpc.ErrorInfo');
  return AsErrorInfo!.responseDeserialize(details[0]!.value) as Answer;
}

/** Asks the reflection service over one stream. */
async function reflect(requests: object[]): Promise<Answer[]> {
  const definition = load('grpc/reflection/v1/reflection.proto', TEST_PROTOS);
  const service = definition['grpc.reflection.v1.ServerReflection'] as grpc.ServiceDefinition;
  const client = new (grpc.makeGenericClientConstructor(service, 'Reflection'))(agent.target, controller);
  const stream = (client.ServerReflectionInfo as () => grpc.ClientDuplexStream<object, Answer>).call(client);
  const answers: Answer[] = [];
  for (const request of requests) stream.write(request);
  stream.end();
  for await (const answer of stream) answers.push(answer as Answer);
  client.close();
  return answers;
}

/** A google.protobuf.FileDescriptorSet of these files: field 1, length-delimited, for each. */
function descriptorSet(files: Buffer[]): Buffer {
  return Buffer.concat(files.flatMap(file => [Buffer.from([0x0a, ...varint(file.length)]), file]));
}

function varint(value: number): number[] {
  return value < 0x80 ? [value] : [(value & 0x7f) | 0x80, ...varint(value >>> 7)];
}

describe('what is there', () => {
  test('reflection tells all services, and a client made from it alone works', async () => {
    // The server answers one file a question; its imports are asked for like any reflection client does.
    const symbols = [
      ...['google.protobuf.Timestamp', 'google.protobuf.Any'],
      ...['Error', 'Operation', 'Domain', 'Pool', 'NodeService'].map(name => `virtkeep.agent.v1.${name}`),
    ];
    const [list, ...files] = await reflect([
      { listServices: '' },
      ...symbols.map(name => ({ fileContainingSymbol: name })),
    ]);
    // who unpacks a result asks for its message
    const [result] = await reflect([{ fileContainingSymbol: 'virtkeep.agent.v1.OperationResult' }]);
    expect(result).toHaveProperty('fileDescriptorResponse');
    const { service: services } = list!.listServicesResponse as { service: { name: string }[] };
    expect(services.map(service => service.name)).toEqual(
      expect.arrayContaining(['virtkeep.agent.v1.OperationService', 'virtkeep.agent.v1.NodeService']),
    );
    const protos = files.flatMap(
      file => (file.fileDescriptorResponse as { fileDescriptorProto: Buffer[] }).fileDescriptorProto,
    );
    const definition = loadFileDescriptorSetFromBuffer(descriptorSet(protos));
    const service = definition['virtkeep.agent.v1.NodeService'] as grpc.ServiceDefinition;
    const client = new (grpc.makeGenericClientConstructor(service, 'NodeService'))(agent.target, controller);
    const info = await withClient(client as LooseClient, node => call(node, 'GetInfo', {}));
    expect(info).toMatchObject({ id: agent.nodeId, version: '1.2.3' });
  });

  test('health follows the hypervisor', async () => {
    const channel = createChannel(agent.target, controller);
    const health = createClient(HealthDefinition, channel);
    expect((await health.check({ service: '' })).status).toBe(2);
    agent.server.setHealthy(true);
    expect((await health.check({ service: '' })).status).toBe(1);
    expect((await health.check({ service: 'virtkeep.agent.v1.NodeService' })).status).toBe(1);
    channel.close();
  });

  test('GetInfo, and WatchInventory beginning with everything', async () => {
    await withClient(independentClient('NodeService'), async client => {
      expect(await call(client, 'GetInfo', {})).toMatchObject({
        id: agent.nodeId,
        libvirtConnected: false,
        draining: false,
      });
      const [first] = await collect(client, 'WatchInventory', {}, 1);
      expect(first).toMatchObject({ event: 'full', full: { node: { id: agent.nodeId } } });
    });
  });
});

describe('operations', () => {
  test('Get answers an ended operation; an unknown one is NOT_FOUND with its key', async () => {
    const id = await finishedOperation();
    await withClient(independentClient('OperationService'), async client => {
      const operation = await call(client, 'Get', { id });
      expect(operation).toMatchObject({
        id,
        state: 'OPERATION_STATE_SUCCEEDED',
        resultJson: '{"operations":["logfiles"]}',
      });
      expect(unpacked(operation)).toEqual({ result: 'prepare', prepare: { operations: ['logfiles'] } });
      const unknown = newId();
      const error = (await call(client, 'Get', { id: unknown }).catch(caught => caught)) as grpc.ServiceError;
      expect(error.code).toBe(grpc.status.NOT_FOUND);
      expect(errorInfo(error)).toEqual({
        reason: 'operation_not_found',
        domain: 'virtkeep',
        metadata: { id: unknown },
      });
    });
  });

  test('Watch begins where List ended, and resumes after the last sequence seen', async () => {
    await withClient(independentClient('OperationService'), async client => {
      const { sequence } = (await call(client, 'List', {})) as { sequence: number };
      const first = await finishedOperation();
      const events = await collect(client, 'Watch', { afterSequence: sequence }, 1);
      expect(events.map(event => (event.operation as Answer).id)).toEqual([first]);
      const second = await finishedOperation();
      const resumed = await collect(client, 'Watch', { afterSequence: events[0]!.sequence }, 1);
      expect((resumed[0]!.operation as Answer).id).toBe(second);
      expect(Number(resumed[0]!.sequence)).toBeGreaterThan(Number(events[0]!.sequence));
    });
  });

  test('dropping a stream cancels nothing; Cancel does, and the stream of the operation ends with it', async () => {
    const id = newId();
    agent.runner.start({
      id,
      kind: 'test',
      request: {},
      entities: [],
      locks: [],
      cancellable: true,
      workflow: context =>
        new Promise((_, reject) =>
          context.signal.addEventListener('abort', () => reject(context.signal.reason)),
        ),
    });
    await withClient(independentClient('OperationService'), async client => {
      await collect(client, 'Watch', { operationId: id }, 1);
      expect(await call(client, 'Get', { id })).toMatchObject({ state: 'OPERATION_STATE_RUNNING' });
      await call(client, 'Cancel', { id });
      await call(client, 'Cancel', { id });
      const events = await collect(client, 'Watch', { operationId: id }, 100);
      expect(events.at(-1)!.operation).toMatchObject({
        state: 'OPERATION_STATE_CANCELED',
        error: { msgKey: 'canceled', code: '49900' },
      });
    });
  });

  test('a request that is too large is refused', async () => {
    await withClient(independentClient('OperationService'), client =>
      expect(call(client, 'Get', { id: 'x'.repeat(5 * 1024 * 1024) })).rejects.toMatchObject({
        code: grpc.status.RESOURCE_EXHAUSTED,
      }),
    );
  });
});

describe('renewal of the certificate', () => {
  test('a signed request is taken into use without a restart; a foreign certificate is refused', async () => {
    const channel = createChannel(agent.target, controller);
    const node = nodeClient(channel);
    const wrong = await issue(agent.ca, 'server', [`urn:virtkeep:node:${agent.nodeId}`]);
    await node.renewCertificate({});
    await expect(node.installCertificate({ certificatePem: wrong.certificatePem })).rejects.toMatchObject({
      msgKey: 'invalid_field',
    });
    const before = await presentedSerial();
    const { csrPem } = await node.renewCertificate({});
    const certificatePem = await signNodeRequest(agent.ca, csrPem, agent.nodeId);
    await node.installCertificate({ certificatePem });
    channel.close();
    expect(await presentedSerial()).not.toBe(before);
    const renewed = loadIdentity(join(agent.directory, 'tls'));
    expect(renewed.nodeId).toBe(agent.nodeId);
    const named = { 'grpc.ssl_target_name_override': nodeHost(agent.nodeId) };
    await withClient(independentClient('NodeService', controller, named), client =>
      call(client, 'GetInfo', {}),
    );
  });
});

function nodeClient(channel: Channel) {
  return createClientFactory()
    .use(errorDetailsClientMiddleware)
    .use(tableErrors(agent.nodeId))
    .create(NodeServiceDefinition, channel);
}

function presentedSerial(): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ port: agent.server.port, rejectUnauthorized: false }, () => {
      resolve(socket.getPeerCertificate().serialNumber);
      socket.destroy();
    });
    socket.on('error', reject);
  });
}
