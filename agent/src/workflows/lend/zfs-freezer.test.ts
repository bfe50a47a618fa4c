import { expect, test } from '@jest/globals';
import { DomainStateCode, type Libvirt } from '@virtkeep/node-libvirt';
import type { Logger } from '@virtkeep/shared/log';
import { ZfsDriver } from '../../zfs/index.ts';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import { zfsFreezer } from './zfs-freezer.ts';

const ID = '11111111-2222-4333-8444-555555555555';

test('a guest that a user suspends while it is asked to freeze is lent as it is, and is not resumed', async () => {
  const states = [DomainStateCode.RUNNING, DomainStateCode.PAUSED];
  const calls: string[] = [];
  const domain = {
    uuid: ID,
    state: async () => ({ state: states.shift() }),
    agentCommand: async () => {
      throw new Error('no answer');
    },
    suspend: async () => void calls.push('suspend'),
  };
  const zfs = new ZfsDriver({
    mountInfo: async () => '22 1 0:1 / /tank rw - zfs tank rw\n',
    realPath: async path => path,
    zfs: async args => {
      if (args[0] === 'snapshot') calls.push('snapshot');
      return { code: 0, stdout: '', stderr: '' };
    },
  });
  const begun: Effect[] = [];
  const begin = (effect: Effect) => {
    begun.push(effect);
    return { undo: async () => {}, keep: () => {} };
  };
  const context = { signal: new AbortController().signal, warn: () => {}, effects: { begin } };
  const libvirt = () => ({ domainByUuid: async () => domain }) as unknown as Libvirt;
  const disk = { id: ID, targetDev: 'vda', path: '/tank/vda', format: 'raw', block: false };
  const lender = { id: ID, name: 'vm', template: false, active: true };
  await zfsFreezer({ libvirt, zfs }).freeze(
    { ...lender, disks: [{ ...disk, readonly: false, encrypted: false }] },
    context as unknown as OperationContext,
    false,
  );
  expect(calls).toEqual(['snapshot']);
  expect(begun).toEqual([]);
  expect(states).toEqual([]);
});

test('what was lent from zfs is given back there, also while its datasets are not mounted', async () => {
  const instant = `tank/vm@vdisks_attached_to_another_domains-${ID}\t${ID}\t1\tvda\n`;
  const zfs = new ZfsDriver({
    mountInfo: async () => '22 1 254:1 / / rw - ext4 /dev/vda1 rw\n',
    realPath: async path => path,
    zfs: async args => ({ code: 0, stdout: args.includes('snapshot') ? instant : '', stderr: '' }),
  });
  const options = { signal: new AbortController().signal, log: {} as Logger, warn: () => {} };
  const disk = { id: ID, targetDev: 'vda', path: '/tank/vda', format: 'raw', block: false };
  const lender = { id: ID, name: 'vm', template: false, active: false };
  const disks = [{ ...disk, readonly: false, encrypted: false }];
  const { serves } = zfsFreezer({ libvirt: () => ({}) as Libvirt, zfs });
  expect(await serves({ ...lender, disks }, options)).toBe(true);
  expect(await serves({ ...lender, id: ID.replaceAll('1', '2'), disks }, options)).toBe(false);
});
