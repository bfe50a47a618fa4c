import { describe, expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/node-libvirt';
import { createLogger } from '@virtkeep/shared/log';
import { parseDomain } from '../domain-xml/index.ts';
import type { Settings } from '../pools/index.ts';
import type { SavedState } from '../snapshots/index.ts';
import type { DomainFacts } from './domain-facts.ts';
import { happenedWithoutUs, type SeenStates, StateWatch } from './state-watch.ts';

const seen = (change: Partial<SeenStates> = {}): SeenStates => ({
  states: ['a', 'b'],
  current: 'b',
  deleted: null,
  ...change,
});

describe('what others did to the states of a domain', () => {
  test.each<[string, Partial<SeenStates>, string[], boolean]>([
    ['nothing', {}, [], false],
    ['a state was made', { states: ['a', 'b', 'c'], current: 'c' }, [], false],
    ['one is gone', { states: ['a'], current: 'a' }, [], true],
    ['one is gone that we announced', { states: ['a'], current: 'a' }, ['b'], false],
    ['one is gone that we announced, and another', { states: [], current: null }, ['b'], true],
    ['one is gone and recorded', { states: ['a'], current: 'a', deleted: '2026-01-01' }, [], false],
    ['the domain was reverted', { current: 'a' }, [], true],
    ['we reverted it', { current: 'a', deleted: '2026-01-01' }, [], false],
  ])('%s', (_name, now, removed, expected) => {
    expect(happenedWithoutUs(seen(), seen(now), removed)).toBe(expected);
  });

  test.each([
    ['another record of ours', '2026-02-02', false],
    ['an older record, come back with the older definition', '2025-12-31', true],
    ['no record any more', null, true],
  ])('%s', (_name, deleted, expected) => {
    const before = seen({ deleted: '2026-01-01' });
    expect(happenedWithoutUs(before, seen({ current: 'a', deleted }), [])).toBe(expected);
  });
});

/** What the watch asks of a domain: one that is off, with states that others change as they like. */
class OffDomain {
  readonly uuid = '5e0f5a7c-3a77-4d0a-9d4f-0d5b6c1f3a11';
  states: { name: string; current: boolean; unread?: true }[] = [];
  #metadata = '';

  isActive = async () => false;
  isPersistent = async () => true;
  /** What others do while the watch asks. */
  asked = () => {};

  xml = async () => {
    this.asked();
    return this.#xml();
  };

  #xml = () =>
    `<domain type='kvm'><name>vm</name><uuid>${this.uuid}</uuid><memory>1</memory><os><type>hvm</type></os>` +
    `<metadata>${this.#metadata}</metadata><devices/></domain>`;

  async setMetadata({ value, uri }: { value: string; uri: string }): Promise<void> {
    this.asked();
    this.#metadata = value.replace('<domain', `<domain xmlns='${uri}'`);
  }

  forget(): void {
    this.#metadata = '';
  }

  async facts(): Promise<DomainFacts> {
    const xml = this.#xml();
    const savedStates = this.states.map(
      state => ({ ...state, createdUnix: state.unread ? 0 : 1 }) as SavedState,
    );
    return { uuid: this.uuid, name: 'vm', config: parseDomain(xml), savedStates } as unknown as DomainFacts;
  }
}

test('a state that cannot be read for a while is not deleted, and what others do meanwhile is noticed then', async () => {
  const kept = new Map<string, unknown>();
  const settings = { get: (key: string) => kept.get(key), set: kept.set.bind(kept) } as unknown as Settings;
  const watch = new StateWatch(settings, createLogger('test', 'error'));
  const domain = new OffDomain();
  const look = async () => watch.look(domain as unknown as Domain, await domain.facts(), () => () => {});
  const [a, b] = ['a', 'b'].map(name => ({ name, current: name === 'b' }));
  const odd = { ...a!, unread: true as const };

  domain.states = [a!, b!];
  expect(await look()).toBe(false);
  for (const state of [odd, a!, odd]) {
    domain.states = [state, b!];
    expect(await look()).toBe(false);
  }
  domain.states = [odd];
  expect(await look()).toBe(false);
  expect((await domain.facts()).config!.metadata.statesDeleted).toBeUndefined();
  domain.states = [a!];
  expect(await look()).toBe(true);
});

test('what others do after a change of theirs that was recorded is noticed, though nobody looked between', async () => {
  const kept = new Map<string, unknown>();
  const settings = { get: (key: string) => kept.get(key), set: kept.set.bind(kept) } as unknown as Settings;
  const watch = new StateWatch(settings, createLogger('test', 'error'));
  const domain = new OffDomain();
  const look = async () => watch.look(domain as unknown as Domain, await domain.facts(), () => () => {});
  const recorded = async () => (await domain.facts()).config!.metadata.statesDeleted;
  const [a, b, c] = ['a', 'b', 'c'].map(name => ({ name, current: false }));

  domain.states = [a!, b!, { ...c!, current: true }];
  expect(await look()).toBe(false);
  domain.states = [a!, { ...c!, current: true }];
  expect(await look()).toBe(true);
  const first = await recorded();
  expect(first).toBeInstanceOf(Date);

  domain.states = [{ ...a!, current: true }, c!];
  expect(await look()).toBe(true);
  expect((await recorded())!.getTime()).toBeGreaterThanOrEqual(first!.getTime());
  expect(await look()).toBe(false);

  // libvirt's revert brings back the definition of then, without the record
  domain.states = [a!, { ...c!, current: true }];
  domain.forget();
  expect(await look()).toBe(true);
  expect(await recorded()).toBeInstanceOf(Date);
  expect(await look()).toBe(false);
});

test('no operation begins between reading the notes and writing them, and one that holds the domain is waited for', async () => {
  const kept = new Map<string, unknown>();
  const settings = { get: (key: string) => kept.get(key), set: kept.set.bind(kept) } as unknown as Settings;
  const watch = new StateWatch(settings, createLogger('test', 'error'));
  const domain = new OffDomain();
  let isHeld = false;
  const held: boolean[] = [];
  domain.asked = () => held.push(isHeld);
  const hold = () => {
    if (isHeld) return undefined;
    isHeld = true;
    return () => {
      isHeld = false;
    };
  };
  const look = async () => watch.look(domain as unknown as Domain, await domain.facts(), hold);

  domain.states = [{ name: 'a', current: true }];
  expect(await look()).toBe(false);
  domain.states = [];
  isHeld = true;
  expect(await look()).toBe(false);
  expect(held).toEqual([]);
  isHeld = false;
  expect(await look()).toBe(true);
  expect(held).toEqual([true, true]);
  expect(isHeld).toBe(false);
});

test('a domain in which nothing is to be noted is not kept from operations', async () => {
  const kept = new Map<string, unknown>();
  const settings = { get: (key: string) => kept.get(key), set: kept.set.bind(kept) } as unknown as Settings;
  const watch = new StateWatch(settings, createLogger('test', 'error'));
  const domain = new OffDomain();
  let times = 0;
  const hold = () => {
    times++;
    return () => {};
  };
  const look = async () => watch.look(domain as unknown as Domain, await domain.facts(), hold);
  await look();
  expect(times).toBe(0);
  domain.states = [{ name: 'a', current: true }];
  await look();
  expect(times).toBe(1);
  await look();
  expect(times).toBe(1);
});
