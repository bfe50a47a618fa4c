import { expect, test } from '@jest/globals';
import { DomainStateCode, type Libvirt } from '@virtkeep/node-libvirt';
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
