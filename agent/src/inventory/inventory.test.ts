import { beforeEach, describe, expect, jest, test } from '@jest/globals';
import { AgentState, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { InventoryEvent } from '@virtkeep/shared/gen/virtkeep/agent/v1/node';
import { mapLimited } from '@virtkeep/shared/limit';
import type { Logger } from '@virtkeep/shared/log';
import { parseDomain } from '../domain-xml/index.ts';
import { LIVE_XML, UUID } from '../domain-xml/sample-xml.ts';
import type { PoolRecord } from '../pools/index.ts';
import { PathGate } from '../pools/index.ts';
import type { SavedState } from '../snapshots/index.ts';
import { derivePools } from './derive-pools.ts';
import { firstOwnLayer } from './disk-facts.ts';
import { powerStateOf } from './domain-facts.ts';
import { InventoryFeed } from './feed.ts';
import { domainMessage, poolMessage } from './messages.ts';
import { Refresher } from './refresher.ts';

const pool: PoolRecord = {
  id: '22222222-2222-4333-8444-555555555555', name: 'p', kind: 'local', path: '/pool', hasDirectory: true,
  active: true, mounted: true, capacity: 10, allocation: 4, available: 6, readonly: false, outside: false,
  shared: false, description: '', isBase: true,
}; // biome-ignore format: one record
const layer = (path: string, virtualSize = 5) => ({
  path, format: 'qcow2' as const, virtualSize, allocatedSize: 3, fileSize: 4, dataFile: false, encrypted: false,
  unknownFeatures: false,
}); // biome-ignore format: one record
const savedState = (name: string, parent: string | null): SavedState => ({
  name, parent, current: false, description: '', createdUnix: 1, memory: 'no', memoryPath: null, overlays: {},
  frozen: {}, internalDisks: [], deleting: false, xml: '',
}); // biome-ignore format: one record

/** Everything that waits for nothing but each other has gone on. */
const turn = () => new Promise(setImmediate);

describe('messages', () => {
  const facts = {
    uuid: UUID,
    name: 'web & db',
    xml: LIVE_XML,
    config: parseDomain(LIVE_XML),
    power: PowerState.RUNNING,
    persistent: true,
    savedStates: [savedState('a', null), savedState('b', 'a')],
  };
  const disks = new Map([
    ['vda', { layers: [layer('/pool/top.qcow2'), layer('/pool/mid.qcow2'), layer('/pool/base.img')] }],
  ]);
  const scope = { pools: [pool], disks, lockedBy: 'op' };

  test('a domain with disks, drives, LUNs and mediated devices', () => {
    const message = domainMessage(facts, scope);
    expect(message).toMatchObject({
      id: UUID, powerState: PowerState.RUNNING, agentState: AgentState.CONNECTED, memoryCount: 129n, cpuCount: 2,
      template: true, parentId: 'aaaaaaaa-2222-4333-8444-555555555555', snapshots: ['a', 'b'],
      savedStates: [{ name: 'a', parent: '' }, { name: 'b', parent: 'a' }], osType: 'Linux',
      osVersion: 'debian/12', lockedBy: 'op', mdevs: ['dddddddd-2222-4333-8444-555555555555'],
      cdroms: [{ targetDev: 'sdb', path: '/iso/a.iso', poolId: '' }], luns: [{ targetDev: 'sda', source: '/dev/sdx' }],
    }); // biome-ignore format: one record
    expect(message.disks.map(disk => disk.targetDev)).toEqual(['vda', 'vdb', 'vdc']);
    expect(message.disks[0]).toMatchObject({
      name: 'mid', path: '/pool/top.qcow2', poolId: pool.id, virtualSize: 5n, allocatedSize: 3n, usedSize: 6n, driverCache: 'none',
      backingChain: ['/pool/mid.qcow2', '/pool/base.img'],
    }); // biome-ignore format: one record
  });

  test('a domain whose XML cannot be read is listed all the same', () => {
    const message = domainMessage({ ...facts, config: undefined }, scope);
    expect(message).toMatchObject({
      name: 'web & db',
      disks: [],
      agentState: AgentState.NO_CHANNEL,
      osType: 'Other',
      unreadable: true,
    });
    expect(domainMessage(facts, scope).unreadable).toBe(false);
  });

  test('a volume of a directory pool has a path', () => {
    const named = { ...pool, name: 'p', path: '/vols' };
    expect(domainMessage(facts, { ...scope, pools: [named] }).disks[2]).toMatchObject({
      path: '/vols/v',
      poolId: pool.id,
    });
  });

  test('a pool says why it holds no backups', () => {
    expect(poolMessage(pool, { disks: 1, files: 2 }, 'n')).toMatchObject({
      backupTarget: true, backupTargetReason: '', diskCount: 1, fileCount: 2, available: 6n,
    }); // biome-ignore format: one record
    const refused = poolMessage({ ...pool, active: false }, { disks: 0, files: 0 }, 'n');
    expect(refused.backupTarget).toBe(false);
    expect(refused.backupTargetReason).toContain('not active on the node n');
  });

  test.each([
    [1, PowerState.RUNNING],
    [2, PowerState.RUNNING],
    [3, PowerState.SUSPENDED],
    [4, PowerState.RUNNING],
    [5, PowerState.OFF],
    [6, PowerState.OFF],
    [7, PowerState.SUSPENDED],
    [0, PowerState.UNSPECIFIED],
  ])('state %i is %s', (state, power) => {
    expect(powerStateOf(state)).toBe(power);
  });
});

test('the first own layer of a thin clone is above its template', () => {
  const paths = ['/top', '/own', '/template', '/below'];
  expect(firstOwnLayer(paths, false, undefined)).toBe('/below');
  expect(firstOwnLayer(paths, true, new Set(['/template', '/x']))).toBe('/own');
  expect(firstOwnLayer(paths, true, undefined)).toBe('/template');
  expect(firstOwnLayer(['/only'], true, undefined)).toBe('/only');
  expect(firstOwnLayer(paths, true, new Set(['/elsewhere']))).toBe('/below');
});

test('pools are derived with outside ones, their sizes and the base', () => {
  const facts = new Map([['/o', { capacity: 10, available: 4 }]]);
  const inputs = {
    libvirtPools: [{ ...pool, isBase: false }], filePaths: ['/o/x', '/pool/y'], outsideFacts: facts,
    nodeId: UUID, marksOf: () => ({ readonly: false, outside: false, description: '', marker: false }), chosenBase: undefined, defaultBase: undefined,
  }; // biome-ignore format: one record
  const [own, outside] = derivePools(inputs);
  expect(own?.isBase).toBe(true);
  expect(outside).toMatchObject({ kind: 'outside', capacity: 10, allocation: 6, isBase: false });
  const second = { ...pool, id: 'other', name: 'q', isBase: false };
  const named = derivePools({ ...inputs, libvirtPools: [pool, second], defaultBase: 'q' });
  expect(named.find(item => item.isBase)?.id).toBe('other');
  const chosen = derivePools({
    ...inputs,
    libvirtPools: [pool, second],
    defaultBase: 'q',
    chosenBase: pool.id,
  });
  expect(chosen.find(item => item.isBase)?.id).toBe(pool.id);
});

describe('InventoryFeed', () => {
  type Change = InventoryEvent['event'];
  const full: Change = { $case: 'full', value: { node: undefined, domains: [], pools: [] } };
  const removed = (value: string): Change => ({ $case: 'domainRemoved', value });

  let newest: bigint;
  let feed: InventoryFeed;
  const publish = (key: string, value: string) => {
    newest += 1n;
    feed.publish(key, removed(value), newest);
  };

  beforeEach(() => {
    newest = 10n;
    feed = new InventoryFeed(
      () => full,
      () => newest,
    );
  });

  test('begins with everything, then the newest change of each thing, and says how far they reach', async () => {
    const stop = new AbortController();
    const reader = feed.read(stop.signal);
    expect((await reader.next()).value).toEqual({ event: full, revision: 10n });
    publish('a', 'a1');
    publish('b', 'b');
    publish('a', 'a2');
    expect((await reader.next()).value).toEqual({ event: removed('a2'), revision: 11n });
    expect((await reader.next()).value).toEqual({ event: removed('b'), revision: 13n });
    const waiting = reader.next();
    publish('c', 'c');
    expect((await waiting).value).toEqual({ event: removed('c'), revision: 14n });
    const last = reader.next();
    stop.abort();
    await expect(last).rejects.toEqual(expect.objectContaining({ msgKey: 'canceled' }));
  });

  test('a thing that changes all the time lets a reader get no further than what it was told of the others', async () => {
    const reader = feed.read(new AbortController().signal);
    await reader.next();
    publish('a', 'a1');
    publish('b', 'b1');
    for (let round = 2; round < 10; round += 1) {
      publish('a', `a${round}`);
      const { revision } = (await reader.next()).value as InventoryEvent;
      const toldOfB = round > 2;
      expect(revision < 12n).toBe(!toldOfB);
    }
  });

  test('nothing is said of how far it reaches while not everything was seen', async () => {
    newest = 0n;
    const reader = feed.read(new AbortController().signal);
    expect((await reader.next()).value).toEqual({ event: full, revision: 0n });
    feed.publish('a', removed('a'), 5n);
    expect((await reader.next()).value).toEqual({ event: removed('a'), revision: 0n });
  });

  test('a reader that is far behind starts again', async () => {
    const reader = feed.read(new AbortController().signal);
    await reader.next();
    for (let index = 0; index <= 10_000; index++) publish(`k${index}`, `${index}`);
    expect((await reader.next()).value).toEqual({ event: full, revision: newest });
    publish('z', 'z');
    expect((await reader.next()).value).toEqual({ event: removed('z'), revision: newest });
  });
});

describe('bounded work', () => {
  test('mapLimited keeps order and width, and fails with the first', async () => {
    const ends: (() => void)[] = [];
    const job = (item: number) => new Promise<number>(resolve => ends.push(() => resolve(item * 2)));
    const mapped = mapLimited([1, 2, 3, 4, 5], 2, job);
    let done = 0;
    for (const started of [2, 3, 4, 5, 5]) {
      expect(ends).toHaveLength(started);
      ends[done++]!();
      await turn();
    }
    expect(await mapped).toEqual([2, 4, 6, 8, 10]);
    await expect(mapLimited([1], 2, () => Promise.reject(new Error('x')))).rejects.toThrow('x');
  });

  test('a key that hangs lets nothing else of it in, and comes back', async () => {
    const gate = new PathGate(30);
    const hang = Promise.withResolvers<string>();
    const second = jest.fn(async () => 'second');
    expect(await gate.run('nfs', () => hang.promise)).toBeUndefined();
    expect(await gate.run('nfs', second)).toBeUndefined();
    expect(second).not.toHaveBeenCalled();
    expect(await gate.run('local', async () => 'fine')).toBe('fine');
    hang.resolve('late');
    await turn();
    expect(await gate.run('nfs', second)).toBe('second');
    await expect(gate.run('nfs', () => Promise.reject(new Error('x')))).rejects.toThrow('x');
  });

  test('the work of a key is done one after the other', async () => {
    const gate = new PathGate(240_000);
    const order: string[] = [];
    const ends: (() => void)[] = [];
    const work = (name: string) => async () => {
      order.push(`${name}+`);
      await new Promise<void>(resolve => ends.push(resolve));
      order.push(`${name}-`);
    };
    const all = Promise.all([gate.run('k', work('a')), gate.run('k', work('b')), gate.run('k', work('c'))]);
    for (const end of [0, 1, 2]) {
      await turn();
      expect(ends).toHaveLength(end + 1);
      ends[end]!();
    }
    await all;
    expect(order).toEqual(['a+', 'a-', 'b+', 'b-', 'c+', 'c-']);
  });

  test('a storm of requests costs two looks', async () => {
    jest.useFakeTimers();
    try {
      const ends: (() => void)[] = [];
      const work = jest.fn(() => new Promise<void>(resolve => ends.push(resolve)));
      const refresher = new Refresher(5, work, { error: jest.fn() } as unknown as Logger);
      const storm = () => {
        for (let index = 0; index < 100; index++) refresher.request('d');
      };
      storm();
      await jest.advanceTimersByTimeAsync(1_000);
      expect(work).toHaveBeenCalledTimes(1);
      storm();
      ends[0]!();
      await jest.advanceTimersByTimeAsync(1_000);
      expect(work).toHaveBeenCalledTimes(2);
      ends[1]!();
      await jest.advanceTimersByTimeAsync(1_000);
      expect(work).toHaveBeenCalledTimes(2);
      await refresher.stop();
      refresher.request('d');
      await jest.advanceTimersByTimeAsync(1_000);
      expect(work).toHaveBeenCalledTimes(2);
    } finally {
      jest.useRealTimers();
    }
  });
});
