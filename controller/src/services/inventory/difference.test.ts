import { expect, test } from '@jest/globals';
import { Domain, GuestInfo } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { domainDifference } from './difference.ts';

const domain = (part: Partial<Domain> = {}) => Domain.fromPartial({ id: 'd', name: 'vm', ...part });
const told = (hostname: string, ms: number) => ({
  guestInfo: GuestInfo.fromPartial({ hostname, refreshed: new Date(ms) }),
});

test.each([
  ['domain', undefined, domain()],
  ['nothing', domain(), domain()],
  ['nothing', domain({ revision: 1n }), domain({ revision: 2n })],
  ['domain', domain(), domain({ name: 'other' })],
  ['domain', domain(told('a', 1)), domain({ name: 'other', ...told('a', 1) })],
  ['guest', domain(), domain(told('a', 1))],
  ['guest', domain(told('a', 1)), domain(told('b', 2))],
  ['freshness', domain(told('a', 1)), domain(told('a', 2))],
  ['nothing', domain(told('a', 1)), domain(told('a', 1))],
])('%s', (difference, before, after) => {
  expect(domainDifference(before, after)).toBe(difference);
});
