import { expect, test } from '@jest/globals';
import type { Libvirt } from '@virtkeep/node-libvirt';
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
