/** What a change of one domain costs, on a scripted libvirt. */
import { afterEach, beforeEach, expect, jest, test } from '@jest/globals';
import type { Libvirt, Domain as NodeDomain } from '@virtkeep/node-libvirt';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { InventoryEvent } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import type { Logger } from '@virtkeep/shared/log';
import { FreezeWatch } from '../guest/freeze-watch.ts';
import { InfoCache } from '../guest/info-cache.ts';
import { GuestRecords } from '../guest/records.ts';
import { type BackupFiles, PathGate } from '../pools/index.ts';
import { ZfsDriver } from '../zfs/index.ts';
import { Inventory } from './inventory.ts';

const COUNT = 40;
const idOf = (index: number) => `5e0f5a7c-3a77-4d0a-9d4f-${String(index).padStart(12, '0')}`;
const OWNER = idOf(0);
const BORROWER = idOf(1);
const LOG = { debug: () => {}, warn: () => {}, error: () => {} } as unknown as Logger;

/** What is said of each domain besides its name, by id. */
let metadata: Map<string, string>;
let locked: Map<string, string>;
/** Domains that libvirt does not tell of. */
let refused: Set<string>;
let inventory: Inventory;
let guests: InfoCache;
let freezes: FreezeWatch;
let encoded: string[];
let stop: AbortController;

function xmlOf(id: string): string {
  return `<domain type='kvm'><name>vm-${id.slice(-3)}</name><uuid>${id}</uuid><memory>1</memory><os><type>hvm</type></os>
    ${metadata.get(id) ?? ''}<devices/></domain>`;
}

const domainOf = (uuid: string) => ({
  uuid,
  name: uuid,
  isPersistent: async () => true,
  snapshots: async () => [],
  state: async () => ({ state: 5, reason: 0 }),
  xml: async () => {
    if (refused.has(uuid)) throw new Error('no answer');
    return xmlOf(uuid);
  },
});

/** What guests tell is held as the agent holds it. */
function makeGuests(
  link: ConstructorParameters<typeof InfoCache>[0]['link'],
  settings: ConstructorParameters<typeof GuestRecords>[0],
): void {
  freezes = new FreezeWatch({
    domain: id => link.get().domain(id),
    records: new GuestRecords(settings),
    log: LOG,
    limitMs: 1e9,
    isHeld: () => false,
    changed: () => {},
  });
  guests = new InfoCache({
    ...{ link, freezes, log: LOG, refreshMs: 1e9 },
    domains: () => [],
    changed: () => {},
    ask: async ({ name }) => ({ isFrozen: false, info: { hostname: name } }),
  });
}

/** The guest of a domain tells that this is its name. */
const told = (uuid: string, name: string) => guests.refresh({ uuid, name } as NodeDomain, stop.signal);

beforeEach(async () => {
  stop = new AbortController();
  metadata = new Map();
  locked = new Map();
  refused = new Set();
  const libvirt = {
    domain: domainOf,
    domains: async () => Array.from({ length: COUNT }, (_, index) => domainOf(idOf(index))),
    pools: async () => [],
    on: () => () => {},
  } as unknown as Libvirt;
  const values = new Map<string, unknown>();
  const settings = {
    get: (key: string) => values.get(key),
    set: (key: string, value: unknown) => void values.set(key, value),
  };
  const link = { uri: 'test', connected: true, get: () => libvirt, onChange: () => () => {} };
  makeGuests(link, settings);
  for (let index = 0; index < COUNT; index += 1) await told(idOf(index), `host-${index}`);
  inventory = new Inventory({
    link,
    nodeId: idOf(999),
    nodeName: 'n',
    settings,
    zfs: new ZfsDriver(),
    backupFiles: { count: () => 0, keepOnly: () => {} } as unknown as BackupFiles,
    gate: new PathGate(),
    lockedBy: id => locked.get(id),
    hold: () => () => {},
    guestInfo: id => guests.get(id),
    log: LOG,
  });
  const { encode } = Domain;
  encoded = [];
  jest.spyOn(Domain, 'encode').mockImplementation((message, writer) => {
    encoded.push(message.id);
    return encode(message, writer);
  });
  inventory.start();
  for await (const { event } of inventory.watch(stop.signal))
    if (event?.$case === 'full' && event.value.domains.length === COUNT) break;
  encoded = [];
});

afterEach(async () => {
  stop.abort();
  freezes.stop();
  await inventory.stop();
  jest.restoreAllMocks();
});

const encodedOnce = () => [...new Set(encoded)].sort();

test('a change of one domain is rendered and encoded as that one', async () => {
  metadata.set(OWNER, '<description>new</description>');
  await inventory.refreshDomain(OWNER);
  expect(inventory.domain(OWNER).description).toBe('new');
  expect(encodedOnce()).toEqual([OWNER]);
});

test('a domain that was read anew and is as before costs nothing', async () => {
  await inventory.refreshDomain(OWNER);
  expect(encodedOnce()).toEqual([]);
});

test('an operation that takes a domain changes that one', () => {
  locked.set(BORROWER, 'operation');
  inventory.locksChanged();
  expect(inventory.domain(BORROWER).lockedBy).toBe('operation');
  expect(encodedOnce()).toEqual([BORROWER]);
});

test('what a guest tells, its freeze and its thaw change its domain', async () => {
  await told(OWNER, 'renamed');
  inventory.locksChanged();
  expect(inventory.domain(OWNER).guestInfo?.hostname).toBe('renamed');
  freezes.frozen(OWNER);
  inventory.locksChanged();
  expect(inventory.domain(OWNER).guestInfo?.frozenSince).toBeInstanceOf(Date);
  freezes.thawed(OWNER);
  inventory.locksChanged();
  expect(inventory.domain(OWNER).guestInfo?.frozenSince).toBeUndefined();
  expect(encodedOnce()).toEqual([OWNER]);
});

test('an operation takes and gives back a domain that cannot be shown', () => {
  jest.spyOn(Domain, 'encode').mockImplementation(() => {
    throw new RangeError('a number that does not fit');
  });
  locked.set(BORROWER, 'operation');
  expect(() => inventory.locksChanged()).not.toThrow();
});

test('what an operation touched is seen in the revision after the look, and what cannot be looked at holds nobody up', async () => {
  const before = inventory.revision;
  metadata.set(OWNER, '<description>changed</description>');
  refused.add(BORROWER);
  await inventory.look([BORROWER, OWNER]);
  expect(inventory.domain(OWNER)).toMatchObject({ description: 'changed', revision: before + 1n });
  expect(inventory.revision).toBe(before + 1n);
});

async function nextOf(events: AsyncIterator<InventoryEvent>): Promise<InventoryEvent> {
  return (await events.next()).value as InventoryEvent;
}

test('a reader is told up to which change it knows everything', async () => {
  const events = inventory.watch(stop.signal)[Symbol.asyncIterator]();
  const full = await nextOf(events);
  expect(full.revision).toBe(inventory.revision);
  for (const [id, words] of [[OWNER, 'one'], [BORROWER, 'two'], [OWNER, 'three']] as const) {
    metadata.set(id, `<description>${words}</description>`);
    await inventory.refreshDomain(id);
  } // biome-ignore format: one story
  const first = await nextOf(events);
  // the newest of it, but of the other change nothing was told yet
  expect(first.event).toMatchObject({ $case: 'domainChanged', value: { description: 'three' } });
  expect(first.revision).toBe(full.revision + 1n);
  const second = await nextOf(events);
  expect(second.revision).toBe(inventory.revision);
});
