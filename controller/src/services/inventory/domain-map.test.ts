import { expect, test } from '@jest/globals';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { DomainMap } from './domain-map.ts';
import { entryOf } from './test-kit.ts';

const entry = (nodeId: string, domain: Parameters<typeof entryOf>[0]) => entryOf(domain, nodeId);

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

test('those that lent or borrowed a disk, or have something in a drive, are known', () => {
  const domains = new DomainMap();
  const known = () =>
    [domains.lenders(), domains.borrowers(), domains.withDrive()].map(some => some.map(({ name }) => name));
  domains.set(
    'a',
    entry('n', { name: 'a', loans: [{ diskId: 'd' }], cdroms: [{ path: '/a', poolId: 'p' }] }),
  );
  domains.set('b', entry('n', { name: 'b', attachments: [{ diskId: 'd' }], cdroms: [{ path: '' }] }));
  expect(known()).toEqual([['a'], ['b'], ['a']]);
  domains.set('a', entry('n', { name: 'a' }));
  expect(known()).toEqual([[], ['b'], []]);
  domains.delete('b');
  expect(known()).toEqual([[], [], []]);
});

test('each disk is told once, also one that several share', () => {
  const domains = new DomainMap();
  domains.set('a', entry('n', { disks: [{ id: 'd' }, { id: 'shared' }] }));
  domains.set('b', entry('n', { disks: [{ id: 'shared' }] }));
  expect([...domains.diskIds()]).toEqual(['d', 'shared']);
  domains.delete('a');
  expect([...domains.diskIds()]).toEqual(['shared']);
});
