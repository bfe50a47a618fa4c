import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { AddressSource, type Domain, ErrorCode, type Libvirt } from '../src/index.ts';
import { guestXml, ScriptedAgent } from './guests.ts';
import { TestLibvirtd } from './libvirtd.ts';

let daemon: TestLibvirtd;
let libvirt: Libvirt;
let agent: ScriptedAgent;
let dom: Domain;
/** Domains whose agents do not answer: libvirt works at one command of a domain at a time. */
let silent: { dom: Domain; agent: ScriptedAgent }[];
let other: Domain;
/** Resolved when the hung agent answers again. */
const awake = Promise.withResolvers<object>();

beforeAll(async () => {
  daemon = await TestLibvirtd.start();
  libvirt = await daemon.connect({ workers: { agent: 2 }, reserveWorkers: 2 });
  agent = new ScriptedAgent(join(daemon.dir, 'agent.sock'), {
    'guest-fsfreeze-freeze': () => 3,
    'guest-fsfreeze-freeze-list': ({ mountpoints }) => (mountpoints as string[]).length,
    'guest-fsfreeze-thaw': () => 3,
    'guest-get-time': () => 1_700_000_000_500_000_000,
    'guest-set-time': () => ({}),
    'guest-network-get-interfaces': () => [
      {
        name: 'eth0',
        'hardware-address': '52:54:00:00:00:01',
        'ip-addresses': [
          { 'ip-address': '10.0.0.2', 'ip-address-type': 'ipv4', prefix: 24 },
          { 'ip-address': 'fe80::1', 'ip-address-type': 'ipv6', prefix: 64 },
        ],
      },
      { name: 'eth1' },
    ],
    'test-big': () => 'x'.repeat(1_000_000),
  });
  dom = await answering('agent', agent);
  silent = [];
  for (const name of ['silent-1', 'silent-2', 'silent-3', 'silent-4']) {
    const hung = new ScriptedAgent(join(daemon.dir, `${name}.sock`), { 'test-hang': () => awake.promise });
    silent.push({ dom: await answering(name, hung), agent: hung });
  }
  other = await libvirt.createDomain(guestXml('other'));
});
afterAll(async () => {
  await agent?.close();
  for (const one of silent ?? []) await one.agent.close();
  await daemon?.stop();
  await libvirt?.close();
});

const command = (execute: string) => JSON.stringify({ execute });
/** Leaves libvirt waiting for a guest that does not answer, until it does. */
const hang = (index: number, options = {}) =>
  silent[index]!.dom.agentCommand(command('test-hang'), 3600, options);

/** A domain with this agent, to which libvirt is connected. */
async function answering(name: string, scripted: ScriptedAgent): Promise<Domain> {
  await scripted.listen();
  const connected = libvirt.waitFor('agentLifecycle', e => e.state === 'connected', { timeoutMs: 240_000 });
  const made = await libvirt.createDomain(guestXml(name, scripted.guest));
  expect((await connected)[0]).toMatchObject({ uuid: made.uuid, reason: 'domain-started' });
  return made;
}

describe('guest agent', () => {
  test('commands and their errors', async () => {
    expect(JSON.parse(await dom.agentCommand(command('guest-ping')))).toEqual({ return: {} });
    expect((await dom.agentCommand(command('test-big'))).length).toBeGreaterThan(1_000_000);
    // an internal error (1) for libvirt 9, AGENT_COMMAND_FAILED (113) for later ones
    await expect(dom.agentCommand(command('none-such'))).rejects.toMatchObject({
      code: expect.any(Number),
      message: expect.stringContaining('has not been found'),
      call: 'virDomainQemuAgentCommand',
    });
    await expect(other.agentCommand(command('guest-ping'))).rejects.toMatchObject({ kind: 'libvirt' });
  });

  test('freeze, thaw, time, response time-out', async () => {
    expect(await dom.freeze()).toBe(3);
    expect(await dom.thaw()).toBe(3);
    expect(await dom.freeze(['/', '/srv/dätä'])).toBe(2);
    expect(await dom.thaw()).toBe(3);
    expect((await dom.time()).getTime()).toBe(1_700_000_000_500);
    await dom.setTime(new Date(1_800_000_000_250));
    expect(agent.seen).toContain('guest-set-time');
    await dom.setAgentTimeout(10);
  });

  test('interface addresses', async () => {
    expect(await dom.interfaceAddresses(AddressSource.AGENT)).toEqual([
      {
        name: 'eth0',
        mac: '52:54:00:00:00:01',
        addresses: [
          { family: 'ipv4', address: '10.0.0.2', prefix: 24 },
          { family: 'ipv6', address: 'fe80::1', prefix: 64 },
        ],
      },
      { name: 'eth1', mac: null, addresses: [] },
    ]);
  });

  test('a hung agent delays nobody else, and time-outs and signals end the waiting at once', async () => {
    // All four workers of the lane are up, so that each call below begins before it is given up.
    const ping = () => dom.agentCommand(command('guest-ping'), 30, { urgent: true });
    await Promise.all(Array.from({ length: 4 }, ping));
    const hung = hang(0, { timeoutMs: 1500 }).catch(error => error);
    for (let i = 0; i < 50; i++) expect((await other.state()).state).toBe(1);
    expect(await hung).toMatchObject({ kind: 'timeout', code: ErrorCode.OPERATION_TIMEOUT });

    const controller = new AbortController();
    const aborted = hang(1, { signal: controller.signal });
    while (!silent[1]!.agent.seen.includes('test-hang'))
      await new Promise(resolve => setTimeout(resolve, 10));
    controller.abort(new Error('enough'));
    await expect(aborted).rejects.toMatchObject({ kind: 'aborted', cause: { message: 'enough' } });
    await expect(hang(2, { signal: controller.signal })).rejects.toMatchObject({ kind: 'aborted' });
    await expect(hang(2, { signal: AbortSignal.timeout(1500) })).rejects.toMatchObject({ kind: 'aborted' });
    // Three workers are stuck in libvirt now; the lane has two and a reserve of two: there is one left.
    await expect(other.agentCommand(command('guest-ping'))).rejects.toMatchObject({ kind: 'libvirt' });
    // The fourth is stuck too: what comes now waits for a worker, until its own time is up.
    await expect(hang(3, { timeoutMs: 1500 })).rejects.toMatchObject({ kind: 'timeout' });
    await expect(other.agentCommand(command('guest-ping'), 20, { timeoutMs: 200 })).rejects.toMatchObject({
      kind: 'timeout',
    });
    // The stuck calls return one after the other, and their workers serve again.
    awake.resolve({});
    await expect(dom.agentCommand(command('guest-ping'), 60)).resolves.toContain('return');
  });
});
