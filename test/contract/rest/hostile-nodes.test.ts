/** Nodes that lie: about their name, their place, and who they are. Each test performs the attack. */
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { connect } from 'node:tls';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { Timestamp } from '@virtkeep/shared/gen/google/protobuf/timestamp';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Image, ImageServiceImplementation } from '@virtkeep/shared/gen/virtkeep/agent/v1/image';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { newId } from '@virtkeep/shared/ids';
import { isoIdOf } from '@virtkeep/shared/iso';
import type { Role } from '@virtkeep/shared/permissions';
import { serialOf } from '@virtkeep/shared/serials';
import { nodeUrn } from '../../../controller/src/pki/index.ts';
import { Inventory } from '../../../controller/src/services/inventory/inventory.ts';
import { issue } from '../grpc/pki.ts';
import { type Answer, makeRestApp, type RestApp } from './app.ts';
import { ended, enrolled, nodeRequest, redeem, status, stopAll, until } from './nodes-world.ts';
import { FakeAgent } from './scripted-node.ts';

let rest: RestApp;
beforeEach(async () => {
  rest = await makeRestApp();
});
afterEach(() => stopAll(rest));

async function token(fields: object = {}): Promise<string> {
  return (await rest.call('POST', '/api/nodes/', { body: fields })).body.token;
}

/** What a client that knows the controller by its CA alone (the command, an enrolling node) makes of this server. */
async function trustedAs(host: string, certificatePem: string, key: string): Promise<true | string> {
  const server = createServer({ key, cert: certificatePem + rest.ca.certificatePem }).listen(0, '127.0.0.1');
  // the client goes away at once
  server.on('secureConnection', accepted => accepted.on('error', () => {}));
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const socket = connect({ host: '127.0.0.1', port, servername: host, ca: rest.ca.certificatePem });
  try {
    await once(socket, 'secureConnect');
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code ?? String(error);
  } finally {
    socket.destroy();
    server.close();
  }
}

describe('a node that says it is the controller', () => {
  test('gets no certificate that a client of the controller takes', async () => {
    const id = newId();
    const { csrPem, privateKeyPem } = await nodeRequest(id);
    const answer = await redeem(rest, {
      token: await token({ verbose_name: 'liar' }),
      nodeId: id,
      port: 9,
      csrPem,
      hostname: 'controller.example',
    });
    expect(answer.status).toBe(200);
    const verdict = await trustedAs('controller.example', answer.body.certificate_pem, privateKeyPem);
    expect(verdict).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
  });
});

const keyOf = (answer: Answer) => answer.body.errors[0].msg_key;

/** Asks for a certificate as the node with this id. */
async function enrolAs(nodeId: string, text: string, name = 'stranger.example'): Promise<Answer> {
  return redeem(rest, {
    token: text,
    nodeId,
    port: 9,
    csrPem: (await nodeRequest(nodeId)).csrPem,
    hostname: name,
  });
}

describe('an enrolment token', () => {
  test('for a new node takes the place of none, and stays good for a new one', async () => {
    const { agent } = await enrolled(rest, 'victim');
    const text = await token();
    expect(keyOf(await enrolAs(agent.id, text))).toBe('node_known');
    expect((await rest.call('GET', `/api/nodes/${agent.id}/`)).body.status).toBe('ACTIVE');
    expect((await enrolAs(newId(), text, 'new.example')).status).toBe(200);
  });

  test('for one node is for that one, once, and keeps it in its place', async () => {
    const { agent } = await enrolled(rest, 'reinstalled');
    const text = await token({ replace: agent.id });
    expect(keyOf(await enrolAs(newId(), text))).toBe('enrolment_for_other_node');
    expect((await enrolAs(agent.id, text, 'again.example')).status).toBe(200);
    expect(keyOf(await enrolAs(agent.id, text))).toBe('enrolment_token_invalid');
    expect((await rest.call('GET', `/api/nodes/${agent.id}/`)).body.verbose_name).toBe('reinstalled');
  });

  test('that is redeemed while its node is removed leaves neither the node nor a certificate that counts', async () => {
    const { agent } = await enrolled(rest, 'crossing');
    const text = await token({ replace: agent.id });
    const { putNode } = Inventory.prototype;
    let removal: Promise<Answer> | undefined;
    const put = jest.spyOn(Inventory.prototype, 'putNode').mockImplementation(async function (
      this: Inventory,
      row,
    ) {
      removal = rest.call('POST', `/api/nodes/${agent.id}/remove/`, { body: {} });
      for (let turn = 0; turn < 5; turn++) await rest.call('GET', '/api/nodes/');
      await putNode.call(this, row);
    });
    expect((await enrolAs(agent.id, text)).status).toBe(200);
    expect((await removal)?.status).toBe(200);
    put.mockRestore();
    expect((await rest.call('GET', `/api/nodes/${agent.id}/`)).status).toBe(404);
    const { results } = (await rest.call('GET', '/api/certificates/')).body;
    const its = results.filter(({ subject }: { subject: string }) => subject === agent.id);
    expect(its.map(({ reason }: { reason: string }) => reason)).toEqual(['removed', 'removed']);
  });

  test('cannot be made for a node that is not there, and ends with the node it is for', async () => {
    const unknown = await rest.call('POST', '/api/nodes/', { body: { replace: newId() } });
    expect(keyOf(unknown)).toBe('node_not_found');
    const { agent } = await enrolled(rest, 'going');
    const text = await token({ replace: agent.id });
    expect((await rest.call('POST', `/api/nodes/${agent.id}/remove/`, { body: {} })).status).toBe(200);
    expect(keyOf(await enrolAs(agent.id, text))).toBe('enrolment_token_invalid');
  });

  test('that two nodes redeem at once is for one of them', async () => {
    const text = await token();
    const names = ['race-1.example', 'race-2.example'];
    const answers = await Promise.all(names.map(name => enrolAs(newId(), text, name)));
    expect(answers.map(answer => answer.status).sort()).toEqual([200, 400]);
  });

  test('and another one cannot make two machines the same node at once', async () => {
    const id = newId();
    const tokens = [await token({ verbose_name: 'twin-1' }), await token({ verbose_name: 'twin-2' })];
    const answers = await Promise.all(tokens.map(text => enrolAs(id, text)));
    expect(answers.map(answer => answer.status).sort()).toEqual([200, 409]);
  });
});

describe('a machine in the place of a node', () => {
  async function refused(reason: string): Promise<void> {
    await until(async () => {
      const { results } = (await rest.call('GET', '/api/events/?limit=100')).body;
      return results.some((event: { detail_message: string }) => event.detail_message.includes(reason));
    });
  }

  test('is refused with another certificate of that node, and taken again with its own', async () => {
    const { agent, tls } = await enrolled(rest, 'place');
    const stolen = await issue(rest.ca, 'server', [nodeUrn(agent.id)]);
    await agent.stop();
    await agent.start({ ...tls, certificatePem: stolen.chainPem, privateKeyPem: stolen.privateKeyPem });
    await refused('was not issued to it');
    expect((await rest.call('GET', `/api/nodes/${agent.id}/`)).body.status).toBe('FAILED');
    await agent.stop();
    await agent.start(tls);
    await status(rest, agent.id, 'ACTIVE');
  });

  test('is taken with the old certificate until the new one was shown, and refused with the old one then', async () => {
    const { agent, tls } = await enrolled(rest, 'replaced');
    const request = await nodeRequest(agent.id);
    const text = await token({ replace: agent.id, verbose_name: 'replaced' });
    const port = Number(agent.address.split(':')[1]);
    const { certificate_pem } = (
      await redeem(rest, { token: text, nodeId: agent.id, port, csrPem: request.csrPem })
    ).body;
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    await agent.start(tls); // the answer was lost, or the agent not started anew
    await status(rest, agent.id, 'ACTIVE');
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    const certificatePem = certificate_pem + rest.ca.certificatePem;
    await agent.start({ ...tls, certificatePem, privateKeyPem: request.privateKeyPem });
    await status(rest, agent.id, 'ACTIVE');
    await agent.stop();
    await status(rest, agent.id, 'FAILED');
    await agent.start(tls);
    await refused('a newer one has replaced');
    expect((await rest.call('GET', `/api/nodes/${agent.id}/`)).body.status).toBe('FAILED');
  });
});

describe('a node that tells of what is not its own', () => {
  let victim: FakeAgent;
  let liar: FakeAgent;
  let file: BackupFile;

  beforeEach(async () => {
    [victim, liar] = [(await enrolled(rest, 'victim')).agent, (await enrolled(rest, 'liar')).agent];
    const pool = victim.setPool({});
    file = victim.setFile({ poolId: pool.id });
    await until(async () => (await rest.call('GET', `/api/data-pools/${pool.id}/`)).status === 200);
    const scan = await rest.call('POST', `/api/data-pools/${pool.id}/scan/?async=1`, { body: {} });
    victim.succeed(scan.body._task.id, { files: [file] });
    await until(async () => (await record()).status === 'ACTIVE');
  });
  const record = async () => (await rest.call('GET', `/api/library/${file.id}/`)).body;

  /** Says that an operation has succeeded, and waits until the controller has heard it. */
  async function lie(fields: { id: string; kind: string }): Promise<void> {
    const entities = [{ id: file.id, entityClass: EntityClass.FILE }];
    const heard = newId();
    for (const operation of [
      { ...fields, entities },
      { id: heard, kind: 'scan_pool', entities: [] },
    ]) {
      liar.operations.set(
        operation.id,
        Operation.fromPartial({ ...operation, state: OperationState.RUNNING }),
      );
      liar.succeed(operation.id, {
        ok: true,
        problems: [],
        verified_at: new Date().toISOString(),
        files: [],
      });
    }
    const { sequence } = liar.operations.get(heard)!;
    await until(async () => {
      const row = await rest.services.db
        .selectFrom('nodes')
        .select('operation_sequence')
        .where('id', '=', liar.id)
        .executeTakeFirstOrThrow();
      return BigInt(row.operation_sequence) >= sequence;
    });
  }

  test("does not end another node's task", async () => {
    const { body } = await rest.call('POST', `/api/library/${file.id}/verify/?async=1`, { body: {} });
    const id = body._task.id as string;
    await victim.started('verify');
    await lie({ id, kind: 'x' });
    expect((await rest.call('GET', `/api/tasks/${id}/`)).body.status).toBe('IN_PROGRESS');
    victim.fail(id, new VirtkeepError('disk_full', { path: '/p' }));
    await ended(rest, id, 'FAILED');
  });

  test.each(['delete_backup', 'verify'])(
    'does nothing to a file in a pool it does not have: %s',
    async kind => {
      const before = await record();
      await lie({ id: newId(), kind });
      expect(await record()).toEqual(before);
    },
  );
});

describe('a revoked certificate', () => {
  const revoke = (serial: string, as: Role = 'administrator', body: object = {}) =>
    rest.call('POST', '/api/certificates/revoke/', { as, body: { serial, ...body } });
  const serialIn = (pem: string) => serialOf(new X509Certificate(pem).serialNumber);

  test('of a node that is removed is told to the others at once, and to those that come later', async () => {
    const [{ agent: going, tls }, { agent: other }] = [
      await enrolled(rest, 'going'),
      await enrolled(rest, 'other'),
    ];
    await rest.call('POST', `/api/nodes/${going.id}/remove/`, { body: { compromised: true } });
    const serial = serialIn(tls.certificatePem);
    await until(() => other.revocations.get(serial)?.reason === 'compromised');
    const { agent: later } = await enrolled(rest, 'later');
    await until(() => later.revocations.has(serial));
  });

  test('of a node ends its connection, and is taken no more', async () => {
    const { agent, tls } = await enrolled(rest, 'revoked');
    expect((await revoke(serialIn(tls.certificatePem))).body).toMatchObject({
      kind: 'node',
      subject: agent.id,
    });
    await status(rest, agent.id, 'FAILED');
    await until(async () => {
      const { results } = (await rest.call('GET', '/api/events/?limit=100')).body;
      return results.some(({ detail_message: text }: { detail_message: string }) =>
        text.includes('was revoked'),
      );
    });
    expect((await rest.call('GET', `/api/nodes/${agent.id}/`)).body.status).toBe('FAILED');
  });

  test('of a service is told to the nodes; only an administrator revokes, and the audit tells who did', async () => {
    const { agent } = await enrolled(rest, 'told');
    const serial = serialIn((await issue(rest.ca, 'client', ['urn:virtkeep:role:operator'])).certificatePem);
    for (const role of ['operator', 'auditor', 'backup_service'] as const)
      expect((await revoke(serial, role)).status).toBe(403);
    expect((await rest.call('GET', '/api/certificates/', { as: 'auditor' })).status).toBe(403);
    expect(keyOf(await revoke(serial))).toBe('certificate_not_found');
    expect((await revoke(serial, 'administrator', { unknown: true })).body.kind).toBe('unknown');
    await until(() => agent.revocations.has(serial));
    const { results } = (await rest.call('GET', '/api/certificates/')).body;
    expect(results).toContainEqual(
      expect.objectContaining({ id: serial, kind: 'unknown', reason: 'removed' }),
    );
    const audit = (await rest.call('GET', `/api/audit/?limit=100`)).body.results;
    expect(audit).toContainEqual(
      expect.objectContaining({ action: 'POST /api/certificates/revoke/', status: 200 }),
    );
  });

  test('is never that by which the controller itself is known', async () => {
    await enrolled(rest, 'any');
    const pem = await readFile(join(rest.services.config.state_dir, 'pki', 'controller.pem'), 'utf8');
    const answer = await revoke(serialIn(pem.slice(pem.indexOf('-----BEGIN CERTIFICATE-----'))));
    expect(keyOf(answer)).toBe('certificate_in_use');
  });

  test('that the database has forgotten is learnt from the nodes, and nothing that nobody signed', async () => {
    const { agent, tls } = await enrolled(rest, 'knows');
    const service = await issue(rest.ca, 'client', ['urn:virtkeep:role:operator']);
    const serial = serialIn(service.certificatePem);
    await revoke(serial, 'administrator', { compromised: true, unknown: true });
    await until(() => agent.revocations.has(serial));
    // the database is put back to before
    await rest.services.db.deleteFrom('certificates').where('serial', '=', serial).execute();
    const forged = { ...agent.revocations.get(serial)!, serial: serialIn(tls.certificatePem) };
    agent.revocations.set(forged.serial, forged);
    await agent.stop();
    await agent.start(tls);
    const known = async () => (await rest.call('GET', '/api/certificates/')).body.results as { id: string }[];
    await until(async () => (await known()).some(({ id }) => id === serial));
    expect(await known()).toContainEqual(expect.objectContaining({ id: serial, reason: 'compromised' }));
    expect(await known()).toContainEqual(expect.objectContaining({ id: forged.serial, revoked_on: null }));
  });
});

describe('a node that tells of ISO images', () => {
  const told = (poolId: string, given: Partial<Image> = {}): Image => ({
    id: isoIdOf(poolId, 'a.iso'),
    poolId,
    filename: 'a.iso',
    path: '/pools/a.iso',
    size: 4n,
    modified: new Date('2026-01-01'),
    ...given,
  });
  const imagesOf = (list: (poolId: string) => Image[], bytes: string): ImageServiceImplementation => ({
    list: async ({ poolId }) => ({ images: list(poolId) }),
    download: async function* () {
      yield { size: BigInt(bytes.length), data: Buffer.from(bytes) };
    },
    upload: async () => told(newId(), { filename: 'made-up.iso' }),
  });
  const body = (path: string) =>
    rest.app.inject({ method: 'GET', url: path, headers: { authorization: `jwt ${rest.tokens.operator}` } });

  /** The liar's pool, seen first, and an honest one with an image. */
  async function twoPools(): Promise<{ own: string; other: string; lies: (list: Image[]) => void }> {
    const [evil, good] = [new FakeAgent(), new FakeAgent()];
    let images: Image[] = [];
    evil.images = imagesOf(() => images, 'EVIL');
    good.images = imagesOf(poolId => [told(poolId)], 'GOOD');
    const pools: string[] = [];
    for (const [name, agent] of [
      ['evil', evil],
      ['good', good],
    ] as const) {
      await enrolled(rest, name, agent);
      const { id } = agent.setPool({});
      await until(async () => (await rest.call('GET', `/api/data-pools/${id}/`)).status === 200);
      pools.push(id);
    }
    return {
      own: pools[0]!,
      other: pools[1]!,
      lies: list => {
        images = list;
      },
    };
  }

  test('puts nothing in the place of an image of another node', async () => {
    const { own, other, lies } = await twoPools();
    const id = isoIdOf(other, 'a.iso');
    for (const lie of [
      told(own, { id }),
      told(other),
      told(other, { id, filename: 'other.iso' }),
      told(own, { id, filename: '../a.iso' }),
    ]) {
      lies([lie]);
      expect((await body(`/api/iso/${id}/download/`)).body).toBe('GOOD');
      expect((await rest.call('GET', `/api/iso/${id}/`)).body).toMatchObject({
        filename: 'a.iso',
        datapool: { id: other },
      });
      const { results } = (await rest.call('GET', '/api/iso/')).body;
      expect(results.filter((image: { id: string }) => image.id === id)).toHaveLength(1);
    }
  });

  test('with a date that is none leaves the images of others be', async () => {
    const { own, other, lies } = await twoPools();
    for (const modified of [new Date(8.64e15), new Date(-8.64e15)]) {
      lies([told(own, { modified })]);
      const list = await rest.call('GET', '/api/iso/');
      expect([list.status, list.body.count]).toEqual([200, 2]);
      expect((await rest.call('GET', `/api/iso/${isoIdOf(other, 'a.iso')}/`)).status).toBe(200);
    }
    jest.spyOn(Timestamp, 'decode').mockReturnValue({ seconds: 10n ** 18n, nanos: 0 });
    const list = await rest.call('GET', '/api/iso/').finally(() => jest.restoreAllMocks());
    expect([list.status, list.body.count]).toEqual([200, 2]);
  });

  test('is believed nothing but its own of an upload', async () => {
    const { own } = await twoPools();
    const answer = await rest.app.inject({
      method: 'POST',
      url: `/api/iso/upload/?datapool=${own}&filename=new.iso`,
      headers: {
        authorization: `jwt ${rest.tokens.administrator}`,
        'content-type': 'application/octet-stream',
      },
      payload: 'x',
    });
    expect(answer.statusCode).toBe(200);
    expect(JSON.parse(answer.body)).toMatchObject({
      id: isoIdOf(own, 'new.iso'),
      filename: 'new.iso',
      datapool: { id: own },
    });
  });
});
