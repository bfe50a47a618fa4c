import { expect, test } from '@jest/globals';
import { type Libvirt, ListDomains } from '@virtkeep/node-libvirt';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type BackupFiles, PathGate, type Settings } from '../pools/index.ts';
import type { ZfsDriver } from '../zfs/index.ts';
import { NodeModel } from './node-model.ts';

const UUID = '5e0f5a7c-3a77-4d0a-9d4f-0d5b6c1f3a11';

test('a read that began before another one never puts back what the later one saw', async () => {
  const slowAnswer = Promise.withResolvers<void>();
  let reads = 0;
  const domain = {
    uuid: UUID,
    isPersistent: async () => true,
    snapshots: async () => [],
    state: async () => ({ state: 5, reason: 0 }),
    xml: async () => {
      const name = `seen by read ${++reads}`;
      if (reads === 1) await slowAnswer.promise;
      return `<domain type='kvm'><name>${name}</name><uuid>${UUID}</uuid><memory>1</memory><os><type>hvm</type></os><devices/></domain>`;
    },
  };
  const libvirt = { domain: () => domain } as unknown as Libvirt;
  const options = {
    libvirt: () => libvirt,
    nodeId: 'n',
    settings: {} as Settings,
    zfs: {} as ZfsDriver,
    gate: new PathGate(),
    backupFiles: {} as BackupFiles,
    log: { warn: () => {} } as never,
  };
  const model = new NodeModel(options, new AbortController().signal);
  const ofEverything = model.readDomain(UUID);
  const ofAnEvent = model.readDomain(UUID);
  await new Promise(setImmediate);
  slowAnswer.resolve();
  await Promise.all([ofEverything, ofAnEvent]);
  expect(model.domain(UUID)?.name).toBe('seen by read 2');
});

test('what is told of all at once is asked of nobody again, and is not believed against what was read since', async () => {
  let state = 5;
  const asked: string[] = [];
  const domain = {
    uuid: UUID,
    name: 'vm',
    isPersistent: async () => true,
    snapshots: async () => [],
    state: async () => {
      asked.push('state');
      return { state, reason: 0 };
    },
    xml: async () =>
      `<domain type='kvm'><name>vm</name><uuid>${UUID}</uuid><memory>1</memory><os><type>hvm</type></os><devices/></domain>`,
  };
  let listed = async () => {};
  const of: Record<number, () => boolean> = {
    [ListDomains.RUNNING]: () => state === 1,
    [ListDomains.SHUTOFF]: () => state === 5,
    [ListDomains.PERSISTENT]: () => true,
  };
  const libvirt = {
    domain: () => domain,
    domains: async (filter = 0) => {
      const isIn = filter === 0 || of[filter]?.();
      if (filter === ListDomains.HAS_SNAPSHOT) await listed();
      return isIn ? [domain] : [];
    },
    pools: async () => [],
  } as unknown as Libvirt;
  const values = new Map<string, unknown>();
  const options = {
    libvirt: () => libvirt,
    nodeId: 'n',
    settings: {
      get: (key: string) => values.get(key),
      set: (key: string, value: unknown) => values.set(key, value),
    },
    zfs: {} as ZfsDriver,
    gate: new PathGate(),
    backupFiles: {} as BackupFiles,
    log: { warn: () => {} } as never,
  };
  const model = new NodeModel(options as never, new AbortController().signal);
  await model.readAll();
  expect(model.domain(UUID)).toMatchObject({ power: PowerState.OFF, persistent: true });
  asked.length = 0;
  await model.readAll();
  expect(asked).toEqual([]);
  // it starts after it was listed as off, and its event is read before the look comes to it
  listed = async () => {
    state = 1;
    await model.readDomain(UUID);
  };
  await model.readAll();
  expect(model.domain(UUID)?.power).toBe(PowerState.RUNNING);
});
