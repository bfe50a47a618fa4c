import { expect, test } from '@jest/globals';
import { Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { DomainMap } from './domain-map.ts';
import type { DomainEntry } from './inventory.ts';

const entry = (nodeId: string, domain: Parameters<typeof Domain.fromPartial>[0]): DomainEntry => ({
  domain: Domain.fromPartial(domain),
  nodeId,
  firstSeen: '',
  modified: '',
  ranOn: null,
  conflict: null,
});

test('what is asked of all is right after each change', () => {
  const domains = new DomainMap();
  const heard: string[] = [];
  domains.onChange((id, before, after) => heard.push(`${id} ${before?.nodeId} ${after?.nodeId}`));
  domains.set('t', entry('n', { name: 'template' }));
  domains.set('a', entry('n', { name: 'a', parentId: 't', disks: [{ id: 'd' }, { id: 'shared' }] }));
  domains.set('b', entry('m', { name: 'a', parentId: 't', disks: [{ id: 'shared' }] }));
  expect([...domains.ofNode('n')]).toEqual(['t', 'a']);
  expect([...domains.clonesOf('t')]).toEqual(['a', 'b']);
  expect([...domains.named('a')]).toEqual(['a', 'b']);
  expect([...domains.withDisk('shared')]).toEqual(['a', 'b']);
  domains.set('a', entry('m', { name: 'c', disks: [{ id: 'e' }] }));
  domains.delete('b');
  domains.delete('b');
  expect([...domains.ofNode('m')]).toEqual(['a']);
  expect([domains.clonesOf('t').size, domains.named('a').size, domains.withDisk('shared').size]).toEqual([
    0, 0, 0,
  ]);
  expect([...domains.withDisk('e')]).toEqual(['a']);
  expect(heard.slice(-2)).toEqual(['a n m', 'b m undefined']);
});

test('how many of a node run is right after each change', () => {
  const domains = new DomainMap();
  const on = { powerState: PowerState.RUNNING };
  domains.set('a', entry('n', on));
  domains.set('b', entry('n', on));
  domains.set('c', entry('n', { powerState: PowerState.OFF }));
  expect([domains.runningOn('n'), domains.runningOn('m')]).toEqual([2, 0]);
  domains.set('a', entry('n', { powerState: PowerState.SUSPENDED }));
  domains.set('b', entry('m', on));
  domains.set('c', entry('n', on));
  domains.delete('c');
  expect([domains.runningOn('n'), domains.runningOn('m')]).toEqual([0, 1]);
});

test('what domains have in common is kept once, and says the same', () => {
  const told = () =>
    Domain.fromPartial({
      name: 'a',
      osVersion: ['Debian', 12].join(' '),
      disks: [{ id: 'd', targetBus: ['virt', 'io'].join(''), backingChain: [] }],
      guestInfo: { refreshed: new Date(0), ipv4: [] },
    });
  const domains = new DomainMap();
  for (const id of ['a', 'b']) domains.set(id, { ...entry('n', {}), domain: told() });
  const [first, second] = [...domains.values()].map(({ domain }) => domain);
  expect(first).toEqual(told());
  expect(first!.luns).toBe(second!.luns);
  expect(first!.disks[0]!.backingChain).toBe(first!.guestInfo!.ipv4);
  expect(first!.guestInfo!.refreshed).toEqual(new Date(0));
  expect(() => first!.luns.push({} as never)).toThrow(TypeError);
});
