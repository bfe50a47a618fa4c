import { expect, test } from '@jest/globals';
import { Domain, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { KeptDomain } from './kept-domain.ts';

const told = (name: string) =>
  Domain.fromPartial({
    id: 'a',
    name,
    description: 'Привет, 世界 \u0000 ÿ',
    powerState: PowerState.RUNNING,
    parentId: 't',
    template: true,
    memoryCount: 2048n,
    cpuCount: 3,
    revision: 2n ** 63n,
    disks: [{ id: 'd', virtualSize: 2n ** 40n, backingChain: ['/a', '/b'] }],
    savedStates: [{ name: 's', created: new Date(1_700_000_000_123), nothingDeletedSince: false }],
    guestInfo: { refreshed: new Date(0), ipv4: ['10.0.0.1'] },
  });

test('all that a node told comes back, and what is asked for most is there', () => {
  const kept = new KeptDomain(told('one'));
  expect(kept.domain).toEqual(told('one'));
  expect(KeptDomain.ofJson(kept.json).domain).toEqual(told('one'));
  expect(kept).toMatchObject({ id: 'a', name: 'one', powerState: PowerState.RUNNING, parentId: 't' });
  expect(kept).toMatchObject({ template: true, memoryCount: 2048, cpuCount: 3 });
});

test('of more than are kept whole each tells its own, in whatever order they are asked', () => {
  const names = Array.from({ length: 300 }, (_, number) => `vm-${number}`);
  const all = names.map(name => new KeptDomain(told(name)));
  for (const some of [all, [...all].reverse(), [...all, ...all]])
    expect(some.map(kept => kept.domain)).toEqual(some.map(({ name }) => told(name)));
});

test('two that tell the same are equal', () => {
  const kept = new KeptDomain(told('one'));
  expect(kept.equals(new KeptDomain(told('one')))).toBe(true);
  expect(kept.equals(new KeptDomain(told('two')))).toBe(false);
  expect(kept.equals(new KeptDomain({ ...told('one'), revision: 1n }))).toBe(false);
});
