/**
 * The agents of all guests of the benchmark, in a thread of their own so that they cost the lists that are timed nothing but the
 * processor. They answer as emulated guests do (5–40 ms) and something new each time; every tenth hangs: one never says anything,
 * the next says everything far too late.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { windowsAgent } from '../integration/guest/windows-agent.ts';
import { type Answer, FakeAgent, type Handler } from '../lab/fake-agent.ts';
import type { ScriptedGuests } from './guest-info-guests.ts';

const LATE_MS = 20_000;
const FILE_SYSTEMS = 10;
const ADDRESSES = 10;

const { sockets, hungEvery } = workerData as ScriptedGuests;
let answers = 0;

function fileSystems(): unknown[] {
  return Array.from({ length: FILE_SYSTEMS }, (_, index) => ({
    name: `\\\\?\\Volume{0b8f3c1e-0000-0000-0000-1000000000${10 + index}}\\`,
    mountpoint: `${String.fromCharCode(67 + index)}:\\`,
    type: 'NTFS',
    'used-bytes': 17_000_000_000 + answers * 4096,
    'total-bytes': 42_000_000_000,
    disk: [],
  }));
}

function network(guest: number): unknown[] {
  return Array.from({ length: ADDRESSES }, (_, index) => ({
    name: `Ethernet ${index}`,
    'ip-addresses': [
      { 'ip-address': `10.${index}.0.${guest}`, 'ip-address-type': 'ipv4', prefix: 24 },
      { 'ip-address': `2001:db8:${index}::${guest.toString(16)}`, 'ip-address-type': 'ipv6', prefix: 64 },
    ],
  }));
}

/** Makes every answer come later. */
function delayed(handlers: Record<string, Handler>, delayMs: number): Record<string, Handler> {
  const later =
    (handler: Handler): Handler =>
    args => {
      answers += 1;
      const answer: Answer = handler(args);
      return { after: sleep(delayMs), answer };
    };
  return Object.fromEntries(Object.entries(handlers).map(([name, handler]) => [name, later(handler)]));
}

function agentOf(socket: string, guest: number): FakeAgent {
  const isHung = guest % hungEvery === 0;
  const handlers: Record<string, Handler> = {
    ...windowsAgent(),
    'guest-sync': ({ id }) => ({ return: id }),
    'guest-fsfreeze-status': () => ({ return: 'thawed' }),
    'guest-get-host-name': () => ({ return: { 'host-name': `HOST-${guest}` } }),
    'guest-network-get-interfaces': () => ({ return: network(guest) }),
    'guest-get-fsinfo': () => ({ return: fileSystems() }),
  };
  const agent = new FakeAgent(socket, delayed(handlers, isHung ? LATE_MS : 5 + ((guest * 7) % 35)));
  agent.stopped = isHung && (guest / hungEvery) % 2 === 0;
  return agent;
}

const agents = sockets.map((socket, guest) => agentOf(socket, guest));
await Promise.all(agents.map(agent => agent.listen()));
parentPort!.postMessage('listening');
parentPort!.on('message', () => parentPort!.postMessage(answers));
