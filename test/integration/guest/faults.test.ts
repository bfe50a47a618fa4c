// Guest agents that fail: each command ends within its limit with an error of its own, and the next one works.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { FakeAgent } from '../../lab/fake-agent.ts';
import type { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { GuestLab } from './lab.ts';

const failure = (msgKey: string) => expect.objectContaining({ msgKey });
let lab: GuestLab;
let guest: Guest;
let agent: FakeAgent;

beforeAll(async () => {
  lab = await GuestLab.start();
  ({ guest, agent } = await lab.scripted('scripted'));
});
afterAll(() => lab?.stop());

/** What ends every one of these: the agent is as it was, and is asked again. */
async function worksAgain(): Promise<void> {
  agent.stopped = false;
  await expect(lab.run(guest, 'guest-ping')).resolves.toEqual({});
}

/** An agent whose connection is gone comes back with its guest. */
async function restarted(): Promise<void> {
  await guest.destroy();
  await guest.start();
  await guest.waitForAgent();
  await worksAgain();
}

describe('an agent that', () => {
  test('does not know a command, has it disabled, or refuses it, says so', async () => {
    const refuses = (desc: string) => () => ({ error: { class: 'GenericError', desc } });
    await expect(lab.run(guest, 'guest-nonsense')).rejects.toEqual(failure('guest_command_unknown'));
    agent.on('guest-get-users', refuses('Command guest-get-users has been disabled for this instance'));
    await expect(lab.run(guest, 'guest-get-users')).rejects.toEqual(failure('guest_command_disabled'));
    agent.on('guest-get-users', refuses('the list is locked'));
    await expect(lab.run(guest, 'guest-get-users')).rejects.toMatchObject({
      msgKey: 'guest_agent_failed',
      params: { reason: 'the list is locked', command: 'guest-get-users', domain: 'scripted' },
    });
    agent.on(
      'guest-get-users',
      refuses('Command guest-get-users has been disabled: the agent is in frozen state'),
    );
    agent.frozen = true;
    await expect(lab.run(guest, 'guest-get-users')).rejects.toEqual(failure('guest_frozen'));
    // some agents go on to say so of commands they never had
    agent.frozen = false;
    await expect(lab.run(guest, 'guest-get-users')).rejects.toEqual(failure('guest_command_disabled'));
    await worksAgain();
  });

  test('hangs is silent, and is asked again when it goes on', async () => {
    agent.stopped = true;
    await expect(lab.run(guest, 'guest-get-osinfo', {}, 1)).rejects.toEqual(failure('guest_agent_silent'));
    await expect(lab.run(guest, 'guest-fstrim', {}, 1)).rejects.toEqual(failure('guest_agent_silent'));
    await expect(lab.run(guest, 'guest-shutdown', {}, 1)).rejects.toEqual(failure('guest_agent_silent'));
    await worksAgain();
  });

  test("takes long over a command lets its time run out; its late answer is nobody else's", async () => {
    const late = Promise.withResolvers<void>();
    agent.on('guest-fstrim', () => ({ after: late.promise, answer: { return: { paths: ['late'] } } }));
    await expect(lab.run(guest, 'guest-fstrim', {}, 1)).rejects.toMatchObject({
      msgKey: 'guest_command_timed_out',
      params: { command: 'guest-fstrim', seconds: '1' },
    });
    late.resolve();
    expect(await lab.run(guest, 'guest-get-host-name')).toEqual({ 'host-name': 'SCRIPTED' });
    agent.on('guest-fstrim', () => ({ return: { paths: [] } }));
    expect(await lab.run(guest, 'guest-fstrim')).toEqual({ paths: [] });
    await worksAgain();
  });

  test('is at work for somebody else is busy', async () => {
    const free = Promise.withResolvers<void>();
    let isAsked = false;
    agent.on('guest-fstrim', () => {
      isAsked = true;
      return { after: free.promise, answer: { return: {} } };
    });
    const trimming = lab.run(guest, 'guest-fstrim', {}, 60);
    await waitFor('the first command', () => isAsked, 60_000, 20);
    await expect(lab.run(guest, 'guest-ping')).rejects.toMatchObject({
      msgKey: 'guest_agent_busy',
      params: { command: 'guest-fstrim' },
    });
    free.resolve();
    expect(await trimming).toEqual({});
    await worksAgain();
  });

  test.each([
    ['{]garbage\n', 'guest_agent_disconnected'],
    // libvirt takes the NUL for the end of its line, and goes on waiting
    ['\u0000{]garbage\n', 'guest_agent_silent'],
    ['{"neither": "return", "nor": "error"}\n', 'guest_agent_disconnected'],
  ])('answers %j is heard again when it has started anew', async (raw, msgKey) => {
    agent.on('guest-get-users', () => ({ raw }));
    await expect(lab.run(guest, 'guest-get-users', {}, 2)).rejects.toEqual(failure(msgKey));
    await restarted();
  });

  test('answers 20 MiB loses its connection and nothing else', async () => {
    agent.on('guest-get-users', () => ({ return: 'x'.repeat(20 * 1024 * 1024) }));
    await expect(lab.run(guest, 'guest-get-users', {}, 60)).rejects.toEqual(
      failure('guest_agent_disconnected'),
    );
    agent.on('guest-get-users', () => ({ return: [] }));
    await restarted();
  });

  test('ends in the middle of a command is not connected', async () => {
    agent.on('guest-get-timezone', () => 'die');
    await expect(lab.run(guest, 'guest-get-timezone')).rejects.toEqual(failure('guest_agent_disconnected'));
    await expect(lab.run(guest, 'guest-ping')).rejects.toEqual(failure('guest_agent_disconnected'));
    await restarted();
  });

  test('ends while a program runs takes the program with it, which was started', async () => {
    const asked = new Set<unknown>();
    agent.on('guest-exec', () => ({ return: { pid: 7 } }));
    agent.on('guest-exec-status', ({ pid }) => {
      asked.add(pid);
      return asked.size > 0 ? 'die' : 'hang';
    });
    const run = lab.run(guest, 'guest-exec', { path: '/bin/true' }, 60);
    expect(await run).toEqual({ pid: 7, exited: false });
    await restarted();
    const forgotten = () => ({ error: { class: 'GenericError', desc: "Invalid parameter 'pid'" } });
    agent.on('guest-exec-status', forgotten);
    await expect(lab.run(guest, 'guest-exec-status', { pid: 7 })).rejects.toEqual(
      failure('guest_process_unknown'),
    );
  });
});

describe('a VM that', () => {
  test('is paused, off, or not there has no agent to ask', async () => {
    const { node } = lab.lab.world;
    await node.virsh('suspend', guest.name);
    await expect(lab.run(guest, 'guest-ping')).rejects.toMatchObject({
      msgKey: 'guest_off',
      params: { state: 'paused' },
    });
    await node.virsh('resume', guest.name);
    await worksAgain();
    await guest.destroy();
    await expect(lab.run(guest, 'guest-ping')).rejects.toMatchObject({
      msgKey: 'guest_off',
      params: { state: 'off' },
    });
    await guest.start();
    await guest.waitForAgent();
  });

  test('has no channel, or no agent in it, says which', async () => {
    const channelless = await lab.lab.world.defineTiny({ name: 'channelless', dataDisks: [], agent: false });
    await channelless.start();
    await expect(lab.run(channelless, 'guest-ping')).rejects.toEqual(failure('guest_no_channel'));
    await channelless.destroy();
    // its kernel is still at the beginning
    const booting = await lab.lab.world.defineTiny({
      name: 'booting',
      dataDisks: [],
      cmdline: 'rdinit=/none',
    });
    await booting.start();
    await expect(lab.run(booting, 'guest-ping')).rejects.toEqual(failure('guest_agent_disconnected'));
    await booting.destroy();
  });
});

describe('what is frozen by hand', () => {
  const id = () => guest.uuid();
  const since = async () => lab.lab.inventory.domain(await id()).guestInfo?.frozenSince;

  test('is shown, and thawed after the limit; an agent that was restarted while frozen too', async () => {
    agent.on('guest-fsfreeze-freeze', () => {
      agent.frozen = true;
      return { return: 1 };
    });
    const before = Date.now();
    expect(await lab.run(guest, 'guest-fsfreeze-freeze')).toBe(1);
    const shown = await waitFor('the freeze in the inventory', since, 60_000, 20);
    expect(shown.getTime()).toBeGreaterThanOrEqual(before);
    expect(await lab.run(guest, 'guest-fsfreeze-status')).toBe('frozen');
    // the next run of the agent finds it: nothing of the first one is left but its journal
    lab.guests.stop();
    const next = lab.newGuests({ freezeLimitMs: 1 });
    agent.stopped = true;
    next.start();
    await waitFor(
      'an attempt to thaw',
      () => agent.calls.at(-1)?.execute === 'guest-fsfreeze-status',
      60_000,
      20,
    );
    agent.stopped = false;
    await waitFor('the thaw', () => !agent.frozen, 120_000, 20);
    await waitFor(
      'the end of it in the records',
      async () => next.info(await id())?.frozenSince === undefined,
      60_000,
      20,
    );
    next.stop();
  });
});
