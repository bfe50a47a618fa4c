import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { HttpClient } from './http-client.ts';

let server: Server;
let url: URL;
let answer: RequestListener;

beforeEach(async () => {
  server = createServer((request, response) => answer(request, response));
  await new Promise<void>(resolve => server.listen(0, '127.0.0.1', resolve));
  url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/x/?a=1`);
});
afterEach(async () => {
  const closed = new Promise(resolve => server.close(resolve));
  server.closeAllConnections();
  await closed;
});

const client = (options: { idleTimeoutMs?: number; maxAnswerBytes?: number } = {}) =>
  new HttpClient({ idleTimeoutMs: 600_000, maxAnswerBytes: 10, ...options });

test('sends JSON, or what the headers say, and answers whatever the status is', async () => {
  answer = (request, response) => {
    const { method, url: path, headers } = request;
    void request.toArray().then(chunks => {
      response.writeHead(418, { 'x-seen': JSON.stringify([method, path, headers['content-type']]) });
      response.end(Buffer.concat(chunks as Buffer[]));
    });
  };
  const sent = await client().send({ method: 'POST', url, payload: '{"é":1}' });
  expect([sent.status, sent.text]).toEqual([418, '{"é":1}']);
  expect(sent.headers['x-seen']).toBe('["POST","/x/?a=1","application/json"]');
  const headers = { 'content-type': 'text/plain' };
  const plain = await client().send({ method: 'PUT', url, payload: Buffer.from('x'), headers });
  expect(plain.headers['x-seen']).toBe('["PUT","/x/?a=1","text/plain"]');
  const empty = await client().send({ method: 'GET', url });
  expect([empty.text, empty.headers['x-seen']]).toEqual(['', '["GET","/x/?a=1",null]']);
});

test('an answer that is too large, cut, or late is an error', async () => {
  answer = (_, response) => response.end('12345678901');
  await expect(client().send({ method: 'GET', url })).rejects.toThrow('too large');
  answer = (_, response) => {
    response.writeHead(200, { 'content-length': '9' });
    response.write('123', () => response.destroy());
  };
  await expect(client().send({ method: 'GET', url })).rejects.toThrow('aborted');
  answer = () => {};
  await expect(client({ idleTimeoutMs: 20 }).send({ method: 'GET', url })).rejects.toThrow(
    'no answer in time',
  );
});

test('a stream is as long as it is, and ends with its signal', async () => {
  answer = (_, response) => response.write('x'.repeat(20));
  const stop = new AbortController();
  const { stream, status } = await client().open({ method: 'GET', url, signal: stop.signal });
  const [first] = (await stream.take(1).toArray()) as [Buffer];
  expect([status, first.length]).toEqual([200, 20]);
  const second = await client().open({ method: 'GET', url, signal: stop.signal });
  stop.abort();
  await expect(second.stream.toArray()).rejects.toThrow('aborted');
});
