import { expect, test } from '@jest/globals';
import { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
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
