import { expect, test } from '@jest/globals';
import { Domain, ListDomainsResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { Shown } from '../inventory/shown.ts';
import { encodeList } from './encoded-list.ts';

const told = { changed: () => {}, removed: () => {} };
const sourcesOf = (messages: Domain[]) =>
  messages.map(message => ({ id: message.id, inputs: [message], render: () => message }));
/** Lengths with one, two and three bytes of head. */
const domains = ['b', 'a'.repeat(300), 'c'.repeat(20_000)].map((name, index) =>
  Domain.fromPartial({ id: String(index), name, memoryCount: 64n, guestInfo: { hostname: name } }),
);

test('a list of what is shown is as the contract has it', () => {
  const shown = new Shown(Domain, { next: () => 1n }, told);
  shown.replace(sourcesOf(domains));
  const list = shown.all();
  expect(encodeList({ domains: list })).toEqual(
    Buffer.from(ListDomainsResponse.encode({ domains: list }).finish()),
  );
});

test('domains from elsewhere, and parts of them, too', () => {
  const partial = [{ id: 'x', name: 'part' }, Domain.fromPartial({ id: 'y' })];
  expect(ListDomainsResponse.decode(encodeList({ domains: partial }))).toEqual(
    ListDomainsResponse.fromPartial({ domains: partial }),
  );
  expect(encodeList({})).toHaveLength(0);
});

test('a changed domain shows as it is now', () => {
  const shown = new Shown(Domain, { next: () => 1n }, told);
  shown.replace(sourcesOf(domains));
  shown.replace(sourcesOf(domains.map(domain => ({ ...domain, description: 'new' }))));
  const list = ListDomainsResponse.decode(encodeList({ domains: shown.all() }));
  expect(list.domains.map(({ description }) => description)).toEqual(['new', 'new', 'new']);
});
