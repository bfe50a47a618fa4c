import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { AgentState, PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { Logger } from '@virtkeep/shared/log';
import { FileHandles } from './file-handles.ts';
import { FreezeWatch } from './freeze-watch.ts';
import { InfoCache, type InfoCacheDependencies } from './info-cache.ts';
import { type DurableSettings, GuestRecords } from './records.ts';

const SILENT = { info() {}, warn() {}, debug() {}, error() {} } as unknown as Logger;
const ID = '11111111-2222-4333-8444-555555555555';
const signal = new AbortController().signal;

function settingsOf(stored = new Map<string, string>()): DurableSettings {
  return {
    get: (key: string) => JSON.parse(stored.get(key) ?? 'null') ?? undefined,
    set: (key: string, value: unknown) => {
      stored.set(key, JSON.stringify(value));
    },
  };
}

/** Those of a journal whose disk is full. */
function fullSettings(full = true) {
  const { get, set } = settingsOf();
  const settings = {
    full,
    get,
    set: (key: string, value: unknown) => {
      if (settings.full) throw new VirtkeepError('journal_failed', { path: '/journal', reason: 'full' });
      set(key, value);
    },
  };
  return settings;
}

/** A domain with the agent's part of freezing and files. */
function guest(state: { frozen: boolean; answers: boolean; on: boolean }) {
  const commands: string[] = [];
  const domain = {
    uuid: ID,
    name: 'vm',
    isActive: async () => state.on,
    thaw: async () => {
      state.frozen = false;
    },
    agentCommand: async (request: string) => {
      const { execute } = JSON.parse(request) as { execute: string };
      commands.push(execute);
      if (!state.answers) throw new VirtkeepError('guest_agent_silent', { domain: 'vm', command: execute });
      return JSON.stringify({ return: state.frozen ? 'frozen' : 'thawed' });
    },
  };
  return { domain: domain as unknown as Domain, commands };
}

describe('a freeze by hand', () => {
  beforeEach(() => void jest.useFakeTimers());
  afterEach(() => void jest.useRealTimers());

  function watchOf(options: { settings?: ReturnType<typeof settingsOf>; isHeld?: () => boolean } = {}) {
    const state = { frozen: true, answers: true, on: true };
    const changed = jest.fn();
    const watch = new FreezeWatch({
      domain: () => guest(state).domain,
      records: new GuestRecords(options.settings ?? settingsOf()),
      log: SILENT,
      limitMs: 10_000,
      isHeld: options.isHeld ?? (() => false),
      changed,
    });
    return { watch, state, changed };
  }

  test('is shown, and thawed after the limit', async () => {
    const { watch, state, changed } = watchOf();
    watch.frozen(ID);
    const since = watch.since(ID);
    expect(since).toEqual(new Date());
    await jest.advanceTimersByTimeAsync(5_000);
    watch.frozen(ID);
    expect(watch.since(ID)).toEqual(since);
    await jest.advanceTimersByTimeAsync(4_900);
    expect(state.frozen).toBe(true);
    await jest.advanceTimersByTimeAsync(200);
    expect(state.frozen).toBe(false);
    expect(watch.since(ID)).toBeUndefined();
    expect(changed).toHaveBeenCalledTimes(2);
  });

  test('is known to the next agent, with the time that is left', async () => {
    const settings = settingsOf();
    const { watch } = watchOf({ settings });
    watch.frozen(ID);
    watch.stop();
    await jest.advanceTimersByTimeAsync(6_000);
    const next = watchOf({ settings });
    next.watch.start();
    await jest.advanceTimersByTimeAsync(3_900);
    expect(next.state.frozen).toBe(true);
    await jest.advanceTimersByTimeAsync(200);
    expect(next.state.frozen).toBe(false);
    const later = watchOf({ settings });
    expect(later.watch.since(ID)).toBeUndefined();
  });

  test('that cannot be noted does not happen, also when it is asked for again', () => {
    const { watch } = watchOf({ settings: fullSettings() });
    for (let time = 0; time < 2; time += 1) {
      expect(() => watch.frozen(ID)).toThrow(/full/);
      expect(watch.since(ID)).toBeUndefined();
    }
  });

  test('whose end cannot be noted stays known, and is noted when there is room', async () => {
    const settings = fullSettings(false);
    const { watch, state } = watchOf({ settings });
    watch.frozen(ID);
    settings.full = true;
    watch.thawed(ID);
    state.frozen = false;
    expect(watch.since(ID)).toBeDefined();
    settings.full = false;
    await jest.advanceTimersByTimeAsync(10_100);
    expect(watch.since(ID)).toBeUndefined();
    expect(settings.get('guest.frozen')).toEqual({});
  });

  test('is tried again until the agent answers', async () => {
    const { watch, state } = watchOf();
    state.answers = false;
    watch.frozen(ID);
    await jest.advanceTimersByTimeAsync(200_000);
    expect(watch.since(ID)).toBeDefined();
    state.answers = true;
    await jest.advanceTimersByTimeAsync(10_000);
    expect(state.frozen).toBe(false);
    expect(watch.since(ID)).toBeUndefined();
  });

  test('that ended by itself, or with the VM, is forgotten', async () => {
    const { watch } = watchOf();
    const beforeMs = performance.now();
    watch.frozen(ID);
    // what was asked before is no news
    watch.seen(ID, false, beforeMs);
    expect(watch.since(ID)).toBeDefined();
    jest.advanceTimersByTime(10);
    watch.seen(ID, false, performance.now());
    expect(watch.since(ID)).toBeUndefined();
    jest.advanceTimersByTime(10);
    watch.seen(ID, true, performance.now());
    expect(watch.since(ID)).toBeDefined();
    watch.off(ID);
    expect(watch.since(ID)).toBeDefined();
    jest.setSystemTime(Date.now() + 60_000);
    watch.off(ID);
    expect(watch.since(ID)).toBeUndefined();
  });

  test('is none when an operation has the guest frozen, and an operation is not disturbed', async () => {
    let isHeld = true;
    const { watch, state } = watchOf({ isHeld: () => isHeld });
    jest.advanceTimersByTime(10);
    watch.seen(ID, true, performance.now());
    expect(watch.since(ID)).toBeUndefined();
    watch.frozen(ID);
    await jest.advanceTimersByTimeAsync(30_000);
    expect(state.frozen).toBe(true);
    isHeld = false;
    await jest.advanceTimersByTimeAsync(6_000);
    expect(state.frozen).toBe(false);
  });
});

describe('a file that was opened in a guest', () => {
  test('is closed when it was not used for long, and then known no more', async () => {
    const stored = new Map<string, string>();
    const state = { frozen: false, answers: true, on: true };
    const { domain, commands } = guest(state);
    const files = new FileHandles({
      domain: () => domain,
      records: new GuestRecords(settingsOf(stored)),
      log: SILENT,
      idleMs: 1_000,
    });
    const openedMs = Date.now();
    new GuestRecords(settingsOf(stored)).setFile(ID, 1000, openedMs);
    const heir = new FileHandles({
      domain: () => domain,
      records: new GuestRecords(settingsOf(stored)),
      log: SILENT,
      idleMs: 1_000,
    });
    await files.sweep(openedMs + 5_000);
    expect(commands).toEqual([]);
    await heir.sweep(openedMs + 500);
    expect(commands).toEqual([]);
    state.answers = false;
    await heir.sweep(openedMs + 5_000);
    state.answers = true;
    await heir.sweep(openedMs + 5_000);
    await heir.sweep(openedMs + 5_000);
    expect(commands).toEqual(['guest-file-close', 'guest-file-close']);
    expect(JSON.parse(stored.get('guest.files')!)).toEqual({});
  });
});

describe('a file of a guest', () => {
  const refused = (command: string) =>
    new VirtkeepError('guest_agent_failed', {
      domain: 'vm',
      command,
      reason: "handle '7' has not been found",
    });

  function filesOf(answer: (command: string) => Promise<unknown>, settings = settingsOf()) {
    const commands: string[] = [];
    const domain = {
      uuid: ID,
      name: 'vm',
      agentCommand: async (request: string) => {
        const { execute } = JSON.parse(request) as { execute: string };
        commands.push(execute);
        return JSON.stringify({ return: await answer(execute) });
      },
    } as unknown as Domain;
    const records = new GuestRecords(settings);
    const files = new FileHandles({ domain: () => domain, records, log: SILENT, idleMs: 600_000 });
    return { files, domain, records, commands };
  }

  test('that is opened for somebody who has left is closed again', async () => {
    const gate = Promise.withResolvers<number>();
    const { files, domain, records, commands } = filesOf(command =>
      command === 'guest-file-open' ? gate.promise : Promise.resolve({}),
    );
    const leaving = new AbortController();
    const opening = files.run(domain, 'guest-file-open', { path: '/x' }, { signal: leaving.signal });
    leaving.abort();
    await expect(opening).rejects.toBeDefined();
    gate.resolve(7);
    for (let look = 0; look < 100 && !commands.includes('guest-file-close'); look += 1)
      await new Promise(setImmediate);
    await new Promise(setImmediate);
    expect([commands, records.files()]).toEqual([['guest-file-open', 'guest-file-close'], {}]);
  });

  test('that cannot be noted is closed again; one that was is used, closed and swept all the same', async () => {
    const settings = fullSettings(false);
    const { files, domain, records, commands } = filesOf(
      async command => (command === 'guest-file-open' ? 7 : {}),
      settings,
    );
    await files.run(domain, 'guest-file-open', { path: '/x' }, {});
    settings.full = true;
    await expect(files.run(domain, 'guest-file-open', { path: '/y' }, {})).rejects.toMatchObject({
      msgKey: 'journal_failed',
    });
    expect(commands).toEqual(['guest-file-open', 'guest-file-open', 'guest-file-close']);
    await files.sweep(Date.now() + 700_000);
    await files.run(domain, 'guest-file-close', { handle: 7 }, {});
    expect(Object.keys(records.files()[ID]!)).toEqual(['7']);
    settings.full = false;
    await files.sweep(Date.now() + 700_000);
    expect([records.files(), settings.get('guest.files')]).toEqual([{}, {}]);
  });

  test('that its agent does not know any more is no more, so that others can be opened', async () => {
    const { files, domain, records } = filesOf(async command => {
      if (command === 'guest-file-open') return 7;
      throw refused(command);
    });
    await files.run(domain, 'guest-file-open', { path: '/x' }, {});
    expect(records.files()).toEqual({ [ID]: { 7: expect.any(Number) } });
    await expect(files.run(domain, 'guest-file-close', { handle: 7 }, {})).rejects.toMatchObject({
      msgKey: 'guest_agent_failed',
    });
    expect(records.files()).toEqual({});
  });
});

describe('what 100 guests tell of themselves', () => {
  const ids = Array.from({ length: 100 }, (_, index) => `vm-${index}`);

  function cacheOf(ask: InfoCacheDependencies['ask'], more: Partial<InfoCacheDependencies> = {}) {
    const libvirt = { domain: (uuid: string) => ({ uuid }), on: () => () => {} };
    const link = { connected: true, get: () => libvirt as unknown as Libvirt, onChange: () => () => {} };
    const domains = () =>
      ids.map(id => ({ id, powerState: PowerState.RUNNING, agentState: AgentState.CONNECTED }));
    const records = new GuestRecords(settingsOf());
    const freezes = new FreezeWatch({
      domain: () => ({}) as Domain,
      records,
      log: SILENT,
      limitMs: 1e9,
      isHeld: () => false,
      changed: () => {},
    });
    const changed = jest.fn();
    const options = {
      link,
      domains,
      freezes,
      changed,
      log: SILENT,
      refreshMs: 60_000,
      ...(ask ? { ask } : {}),
      ...more,
    };
    return { cache: new InfoCache(options), freezes, changed };
  }

  test('is asked a few at a time, each once; what is known is there at once all the while', async () => {
    let [now, most] = [0, 0];
    const asked: string[] = [];
    const gate = Promise.withResolvers<void>();
    const { cache } = cacheOf(async ({ uuid }) => {
      asked.push(uuid);
      most = Math.max(most, ++now);
      // the first ones hang
      if (asked.length <= 2) await gate.promise;
      else await new Promise(setImmediate);
      now -= 1;
      return { isFrozen: false, info: { hostname: uuid } };
    });
    cache.look(0);
    cache.look(1);
    for (const id of ids) cache.request(id);
    // a list takes what is there without a turn of the event loop
    expect(ids.map(id => cache.get(id))).toEqual(ids.map(() => undefined));
    expect(asked).toHaveLength(2);
    gate.resolve();
    while (new Set(asked).size < 100 || now > 0) await new Promise(setImmediate);
    expect(most).toBe(2);
    expect(ids.map(id => cache.get(id)?.hostname)).toEqual(ids);
    cache.stop();
  });

  test('is asked again when it is old; a guest that is gone is forgotten', async () => {
    let present = ids.slice(0, 2);
    const asked: string[] = [];
    const domains = () =>
      present.map(id => ({ id, powerState: PowerState.RUNNING, agentState: AgentState.CONNECTED }));
    const { cache } = cacheOf(
      async ({ uuid }) => {
        asked.push(uuid);
        return { isFrozen: false, info: { hostname: uuid } };
      },
      { domains },
    );
    const settle = () => new Promise(setImmediate);
    cache.look(performance.now());
    await settle();
    cache.look(performance.now());
    await settle();
    expect(asked).toEqual(['vm-0', 'vm-1']);
    cache.look(performance.now() + 61_000);
    await settle();
    expect(asked).toHaveLength(4);
    present = ['vm-1'];
    cache.look(performance.now());
    expect(cache.get('vm-0')).toBeUndefined();
    expect(cache.get('vm-1')?.hostname).toBe('vm-1');
    cache.stop();
  });

  test('is asked again soon when a guest was too busy to answer, and rarely when it never does', async () => {
    let asked = 0;
    const { cache } = cacheOf(
      async () => {
        asked += 1;
        throw new VirtkeepError('guest_agent_silent', { domain: 'vm-0', command: 'guest-info' });
      },
      {
        domains: () => [{ id: 'vm-0', powerState: PowerState.RUNNING, agentState: AgentState.CONNECTED }],
      },
    );
    const delays: number[] = [];
    for (let times = 1; times <= 9; times += 1) {
      let after = 0;
      while (asked < times) {
        cache.look(performance.now() + after * 1000);
        await new Promise(setImmediate);
        if (asked < times) after += 10;
      }
      delays.push(after);
    }
    // seconds; 60 between questions that are answered
    expect(delays).toEqual([0, 10, 20, 40, 80, 160, 320, 640, 960]);
    cache.stop();
  });

  test('is the same object until the guest tells something new, is frozen or thawed', async () => {
    let present = ids;
    const { cache, freezes } = cacheOf(async ({ uuid }) => ({ isFrozen: false, info: { hostname: uuid } }), {
      domains: () =>
        present.map(id => ({ id, powerState: PowerState.OFF, agentState: AgentState.CONNECTED })),
    });
    const domain = { uuid: 'vm-0' } as Domain;
    const objects = new Set<unknown>();
    const take = () => void objects.add(cache.get('vm-0')).add(cache.get('vm-0'));
    freezes.frozen('vm-0');
    take();
    expect(cache.get('vm-0')).toMatchObject({ hostname: '', frozenSince: expect.any(Date) });
    await cache.refresh(domain, signal);
    take();
    expect(cache.get('vm-0')).toMatchObject({ hostname: 'vm-0', frozenSince: undefined });
    await cache.refresh(domain, signal);
    take();
    freezes.frozen('vm-0');
    take();
    freezes.thawed('vm-0');
    take();
    expect(objects.size).toBe(5);
    present = ids.slice(1);
    cache.look(0);
    expect(cache.get('vm-0')).toBeUndefined();
    freezes.stop();
    cache.stop();
  });

  test('stays when a guest falls silent, and when it is frozen', async () => {
    let answer: () => { isFrozen: boolean; info: object } = () => ({
      isFrozen: false,
      info: { hostname: 'h' },
    });
    const { cache, freezes } = cacheOf(async () => answer());
    const domain = { uuid: 'vm-0' } as Domain;
    await cache.refresh(domain, signal);
    answer = () => {
      throw new VirtkeepError('guest_agent_silent', { domain: 'vm-0', command: 'guest-info' });
    };
    await expect(cache.refresh(domain, signal)).rejects.toMatchObject({ msgKey: 'guest_agent_silent' });
    expect(cache.get('vm-0')?.hostname).toBe('h');
    answer = () => ({ isFrozen: true, info: { agentVersion: '8' } });
    await cache.refresh(domain, signal);
    expect(cache.get('vm-0')).toMatchObject({
      hostname: 'h',
      agentVersion: '8',
      frozenSince: expect.any(Date),
    });
    freezes.stop();
    cache.stop();
  });
});
