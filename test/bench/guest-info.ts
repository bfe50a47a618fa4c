/**
 * What 100 guests tell of themselves is refreshed while lists of domains are asked for over gRPC's own handler: no list may take
 * 50 ms. The guests' agents are scripts in this process that answer like emulated guests (5–40 ms), every tenth hangs for five
 * seconds as libvirt has it; the inventory, the keeper of the information and the service are the agent's own.
 *
 * node test/bench/guest-info.ts [--quick]
 */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { Domain, ListDomainsResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Logger } from '@virtkeep/shared/log';
import { LIVE_XML, UUID } from '../../agent/src/domain-xml/sample-xml.ts';
import { domainService } from '../../agent/src/grpc/domain-service.ts';
import { Guests } from '../../agent/src/guest/index.ts';
import { Inventory } from '../../agent/src/inventory/index.ts';
import { Catalogue } from '../../agent/src/pools/index.ts';
import { benchOptions, median, printTable } from './lib.ts';

const GUESTS = 100;
const HUNG_EVERY = 10;
const HUNG_MS = 5_000;
const LIST_EVERY_MS = 5;

const SILENT = { info() {}, warn() {}, debug() {}, error() {} } as unknown as Logger;
const ids = Array.from({ length: GUESTS }, (_, index) => `${String(index).padStart(8, '0')}${UUID.slice(8)}`);
let commands = 0;

function answerOf(execute: string, index: number): unknown {
  const items = Array.from({ length: 10 }, (_, item) => item);
  if (execute === 'guest-info') {
    const names = [
      'guest-get-host-name',
      'guest-network-get-interfaces',
      'guest-get-osinfo',
      'guest-get-fsinfo',
      'guest-get-users',
      'guest-fsfreeze-status',
    ];
    return { version: '7.2.0', supported_commands: names.map(name => ({ name, enabled: true })) };
  }
  if (execute === 'guest-fsfreeze-status') return 'thawed';
  if (execute === 'guest-get-host-name') return { 'host-name': `host-${index}` };
  if (execute === 'guest-get-osinfo') return { id: 'debian', 'pretty-name': 'Debian 12' };
  if (execute === 'guest-get-users') return [{ user: 'root', 'login-time': Date.now() / 1000 }];
  if (execute === 'guest-get-fsinfo')
    return items.map(item => ({
      name: `vd${item}`,
      mountpoint: `/m${item}`,
      type: 'ext4',
      'used-bytes': commands,
      'total-bytes': 1e10,
    }));
  const addresses = items.map(item => ({ 'ip-address': `192.0.2.${item}`, 'ip-address-type': 'ipv4' }));
  return [{ name: 'eth0', 'ip-addresses': addresses }];
}

function domainOf(uuid: string) {
  const index = ids.indexOf(uuid);
  const name = `guest-${index}`;
  const xml = LIVE_XML.replaceAll(UUID, uuid).replace('web &amp; db', name);
  return {
    uuid,
    name,
    state: async () => ({ state: 1 }),
    xml: async () => xml,
    isPersistent: async () => true,
    isActive: async () => true,
    snapshots: async () => [],
    agentCommand: async (request: string) => {
      commands += 1;
      if (index % HUNG_EVERY === 0) {
        await sleep(HUNG_MS);
        const error = new Error('Guest agent is not responding: Guest agent not available for now');
        throw Object.assign(error, {
          name: 'LibvirtError',
          kind: 'libvirt',
          is: (code: number) => code === 86,
        });
      }
      await sleep(5 + ((index * 7) % 35));
      return JSON.stringify({
        return: answerOf((JSON.parse(request) as { execute: string }).execute, index),
      });
    },
  };
}

const domains = new Map(ids.map(id => [id, domainOf(id)]));
const libvirt = {
  domains: async () => [...domains.values()],
  domain: (uuid: string) => domains.get(uuid),
  pools: async () => [],
  on: () => () => {},
} as unknown as Libvirt;
const link = { uri: 'bench', connected: true, get: () => libvirt, onChange: () => () => {} };
const settings = { get: () => undefined, set: () => {} };

const catalogue = new Catalogue(async () => {
  throw new Error('no archives here');
});
const lockedBy = () => undefined;
const inventory: Inventory = new Inventory({
  link, nodeId: UUID, nodeName: 'bench', settings, catalogue, lockedBy, log: SILENT,
  guestInfo: id => guests.info(id),
}); // biome-ignore format: options
const guests = new Guests({
  link, settings, log: SILENT, isHeld: () => false,
  domains: () => inventory.domains(), changed: () => inventory.guestsChanged(),
  freezeLimitMs: 300_000, fileIdleMs: 600_000, infoRefreshMs: 10_000,
}); // biome-ignore format: options
const service = domainService({ inventory } as unknown as Parameters<typeof domainService>[0]);

/** One list, from the moment it is due: what holds the event loop counts too. */
async function list(dueMs: number): Promise<number> {
  const answer = await service.list({}, {} as Parameters<typeof service.list>[1]);
  ListDomainsResponse.encode({ domains: answer.domains!.map(domain => Domain.fromPartial(domain)) }).finish();
  return performance.now() - dueMs;
}

const { quick } = benchOptions();
const endMs = performance.now() + (quick ? 40_000 : 120_000);
inventory.start();
guests.start();
while (inventory.domains().length < GUESTS) await sleep(10);
const times: number[] = [];
/** Processor time of this process while a list was due: what a machine busy with other things does not add to. */
const ownTimes: number[] = [];
for (
  let dueMs = performance.now();
  dueMs < endMs;
  dueMs = Math.max(dueMs + LIST_EVERY_MS, performance.now())
) {
  const usage = process.cpuUsage();
  await sleep(Math.max(0, dueMs - performance.now()));
  times.push(await list(dueMs));
  const { user, system } = process.cpuUsage(usage);
  ownTimes.push((user + system) / 1000);
}
const told = inventory.domains().filter(domain => domain.guestInfo?.hostname).length;
guests.stop();
await inventory.stop();
const sorted = times.toSorted((first, second) => first - second);
const isMet = printTable(`lists of ${GUESTS} domains while their guests are asked (${commands} commands)`, [
  { name: 'median', value: median(times), unit: 'ms', note: `${times.length} lists` },
  { name: '99 of 100', value: sorted[Math.floor(sorted.length * 0.99)]!, unit: 'ms' },
  { name: 'slowest', value: sorted.at(-1)!, unit: 'ms', note: 'with what else the machine does' },
  { name: 'slowest, processor time', value: Math.max(...ownTimes), unit: 'ms', target: 50 },
  {
    name: 'guests that told',
    value: told,
    unit: '',
    target: GUESTS - GUESTS / HUNG_EVERY,
    sense: 'at least',
  },
]);
process.exit(isMet ? 0 : 1);
