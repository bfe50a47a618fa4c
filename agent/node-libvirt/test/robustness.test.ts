import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { connect, type Domain, DomainStart, ErrorCode, type Libvirt } from '../src/index.ts';
import { guestXml, removeAll, ScriptedAgent } from './guests.ts';
import { TestLibvirtd } from './libvirtd.ts';

const run = promisify(execFile);
const HERE = fileURLToPath(new URL('.', import.meta.url));
let daemon: TestLibvirtd;

beforeAll(async () => {
  daemon = await TestLibvirtd.start();
});
afterAll(() => daemon?.stop());

/** Resolves at the next event, whose arguments it gives. */
function next(libvirt: Libvirt, event: 'closed' | 'reconnected') {
  return libvirt.waitFor(event, () => true, { timeoutMs: 240_000 });
}

describe('a daemon that goes and comes', () => {
  let libvirt: Libvirt;
  let agent: ScriptedAgent;
  let dom: Domain;

  beforeAll(async () => {
    agent = new ScriptedAgent(join(daemon.dir, 'agent.sock'), { 'test-hang': () => undefined });
    await agent.listen();
    libvirt = await daemon.connect({
      keepAlive: { intervalSec: 2, count: 4 },
      reconnect: { minMs: 50, maxMs: 400 },
    });
    dom = await libvirt.createDomain(guestXml('survivor', agent.guest));
  });
  afterAll(async () => {
    if (libvirt) await removeAll(libvirt);
    await libvirt?.close();
    await agent?.close();
  });

  test('killed: running calls fail at once, later ones too; restarted: calls and events are back', async () => {
    const hung = dom.agentCommand(JSON.stringify({ execute: 'test-hang' }), 30).catch(error => error);
    // The command is under way when the agent has seen it.
    while (!agent.seen.includes('test-hang')) await new Promise(resolve => setTimeout(resolve, 10));
    const closed = next(libvirt, 'closed');
    await daemon.kill('SIGKILL');
    expect(await hung).toMatchObject({
      name: 'LibvirtError',
      kind: 'connection',
      call: 'virDomainQemuAgentCommand',
      code: expect.any(Number),
      message: expect.stringMatching(/./),
    });
    expect((await closed)[0]?.reason).toMatch(/./);
    expect(libvirt.connected).toBe(false);
    await expect(dom.state()).rejects.toMatchObject({ kind: 'connection', code: ErrorCode.SYSTEM_ERROR });

    const back = next(libvirt, 'reconnected');
    await daemon.up();
    await back;
    expect(libvirt.connected).toBe(true);
    expect((await dom.state()).state).toBe(1);
    const event = libvirt.waitFor('lifecycle', e => e.event === 'suspended', { timeoutMs: 240_000 });
    await dom.suspend();
    expect((await event)[0].uuid).toBe(dom.uuid);
    await dom.resume();
  });

  test('frozen: keep-alive finds out', async () => {
    await dom.state();
    const closed = next(libvirt, 'closed');
    process.kill(daemon.pid, 'SIGSTOP');
    try {
      // not its own time, which it has in plenty, ends the call
      await expect(dom.state({ timeoutMs: 280_000 })).rejects.toMatchObject({ kind: 'connection' });
      await closed;
      // Nobody answers the new connection either: the call's own time ends it.
      await expect(dom.state({ timeoutMs: 200 })).rejects.toMatchObject({ kind: 'timeout' });
    } finally {
      process.kill(daemon.pid, 'SIGCONT');
    }
    if (!libvirt.connected) await next(libvirt, 'reconnected');
    expect((await dom.state()).state).toBe(1);
  });
});

describe('limits of the pool', () => {
  test('20,000 calls from several workers: no wrong answer, flat memory', async () => {
    const libvirt = await daemon.connect();
    try {
      const domains = [];
      for (const name of ['load-1', 'load-2', 'load-3', 'load-4']) {
        domains.push(await libvirt.defineDomain(guestXml(name)));
      }
      const options = { env: { ...process.env, NODE_OPTIONS: '' }, timeout: 800_000 };
      const { stdout } = await run(process.execPath, [join(HERE, 'load.ts'), daemon.uri, '10000'], options);
      const result = JSON.parse(stdout);
      expect(result).toMatchObject({ wrong: [], isFlat: true });
      expect(result.calls).toBeGreaterThanOrEqual(20_000);
      expect(result.workers).toBeGreaterThan(1);
    } finally {
      await removeAll(libvirt);
      await libvirt.close();
    }
  });

  test('a full queue answers busy', async () => {
    const libvirt = await daemon.connect({ workers: { short: 1 }, maxQueued: 2, reserveWorkers: 0 });
    const calls = Array.from({ length: 5 }, () => libvirt.hostname().catch(error => error.kind));
    const results = await Promise.all(calls);
    expect(results.filter(r => r === 'busy')).toHaveLength(2);
    expect(results.filter(r => r !== 'busy')).toHaveLength(3);
    await libvirt.close();
  });

  test('close fails what waits, is idempotent, and ends the connection for good', async () => {
    const libvirt = await daemon.connect({ workers: { short: 1 } });
    const calls = Array.from({ length: 3 }, () => libvirt.hostname().catch(error => error));
    await Promise.all([libvirt.close(), libvirt.close()]);
    for (const error of await Promise.all(calls)) expect(error).toMatchObject({ kind: 'closed' });
    await expect(libvirt.hostname()).rejects.toMatchObject({ kind: 'closed', code: ErrorCode.INVALID_CONN });
    expect(libvirt.connected).toBe(false);
  });

  test('a call given up while it waits for its turn never happens', async () => {
    const libvirt = await daemon.connect({ workers: { long: 1 }, reserveWorkers: 0 });
    const controller = new AbortController();
    const first = libvirt.createDomain(guestXml('first'), DomainStart.AUTODESTROY);
    const second = libvirt.createDomain(guestXml('never'), DomainStart.AUTODESTROY, {
      signal: controller.signal,
    });
    controller.abort();
    await expect(second).rejects.toMatchObject({ kind: 'aborted' });
    await first;
    // Another call of the same lane comes after it.
    await (await libvirt.domainByName('first')).destroy();
    await expect(libvirt.domainByName('never')).rejects.toMatchObject({ code: ErrorCode.NO_DOMAIN });
    await libvirt.close();
  });

  test('an idle worker ends and a new one serves', async () => {
    const libvirt = await daemon.connect({ idleMs: 100, workers: { short: 3 } });
    await Promise.all(Array.from({ length: 9 }, () => libvirt.hostname()));
    await new Promise(resolve => setTimeout(resolve, 400));
    await Promise.all(Array.from({ length: 9 }, () => libvirt.hostname()));
    await libvirt.close();
  });
});

describe('connecting', () => {
  test('no daemon, a bad address, an aborted signal', async () => {
    const missing = connect('qemu+unix:///system?socket=/none/such');
    await expect(missing).rejects.toMatchObject({ kind: 'connection', code: ErrorCode.SYSTEM_ERROR });
    await expect(connect('none://')).rejects.toMatchObject({ kind: 'connection' });
    await expect(connect(5 as never)).rejects.toMatchObject({ code: ErrorCode.INVALID_ARG });
    const aborted = connect(daemon.uri, { signal: AbortSignal.abort() });
    await expect(aborted).rejects.toMatchObject({ kind: 'aborted' });
  });

  test('several connections in one process, each with its events', async () => {
    const [one, two] = [await daemon.connect(), await daemon.connect()];
    const seen = [one, two].map(l =>
      l.waitFor('lifecycle', e => e.event === 'started', { timeoutMs: 240_000 }),
    );
    const dom = await one.createDomain(guestXml('shared'), DomainStart.AUTODESTROY);
    expect((await Promise.all(seen)).map(([e]) => e.uuid)).toEqual([dom.uuid, dom.uuid]);
    await two.close();
    const stopped = one.waitFor('lifecycle', e => e.event === 'stopped', { timeoutMs: 240_000 });
    await dom.destroy();
    await stopped;
    await one.close();
  });

  test('without libvirt the error says what to install', async () => {
    // A private mount namespace hides the library from one process.
    const script = 'mount --bind /dev/null "$1" && shift && exec "$@"';
    const library = (await run('ldconfig', ['-p'])).stdout.match(/libvirt\.so\.0 .*=> (\S+)/)?.[1];
    const code = `import { connect } from '${new URL('../src/index.ts', import.meta.url).pathname}';
      await connect('test:///default').catch(e => console.log(e.kind, e.name, e.message));`;
    const node = [process.execPath, '--input-type=module', '-e', code];
    const args = ['-m', '--propagation', 'private', 'sh', '-c', script, 'sh', library!, ...node];
    const { stdout } = await run('unshare', args, { env: { ...process.env, NODE_OPTIONS: '' } });
    expect(stdout).toMatch(/^library LibvirtError cannot load libvirt\.so\.0.*libvirt0/);
  });
});
