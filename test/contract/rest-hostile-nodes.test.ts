/** Nodes that lie: about their name, their place, and who they are. Each test performs the attack. */
import { once } from 'node:events';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { makeRestApp, type RestApp } from './rest-app.ts';
import { nodeRequest, redeem, stopAll } from './rest-nodes-world.ts';

let rest: RestApp;
beforeAll(async () => {
  rest = await makeRestApp();
});
afterAll(() => stopAll(rest));

async function token(fields: object = {}): Promise<string> {
  return (await rest.call('POST', '/api/nodes/', { body: fields })).body.token;
}

/** What a client that knows the controller by its CA alone (the command, an enrolling node) makes of this server. */
async function trustedAs(host: string, certificatePem: string, key: string): Promise<true | string> {
  const server = createServer({ key, cert: certificatePem + rest.ca.certificatePem }).listen(0, '127.0.0.1');
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
    const answer = await redeem(
      rest,
      await token({ verbose_name: 'liar' }),
      id,
      9,
      csrPem,
      'controller.example',
    );
    expect(answer.status).toBe(200);
    const verdict = await trustedAs('controller.example', answer.body.certificate_pem, privateKeyPem);
    expect(verdict).toBe('ERR_TLS_CERT_ALTNAME_INVALID');
  });
});
