/**
 * The agent of a real Debian guest that is stopped, killed, or killed while it keeps the file systems frozen: over REST each
 * command ends with an error of its own, no task stays, and the next command works. Then starts and ends of the guest, by its
 * agent and without. What happens in the guest is done and seen by its serial port.
 */
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { connect } from '@virtkeep/node-libvirt';
import type { OperationContext } from '../../agent/src/workflows/context.ts';
import { openGuest } from '../../agent/src/workflows/guest/guest.ts';
import { restartGuest } from '../../agent/src/workflows/guest/restart.ts';
import { GuestRestLab } from '../integration/guest/rest-lab.ts';
import { waitFor } from '../lab/run.ts';
import { SerialShell } from '../lab/serial-shell.ts';

let lab: GuestRestLab;
let shell: SerialShell;
let port: string;

beforeAll(async () => {
  lab = await GuestRestLab.start('failing', world => {
    port = join(world.dir, 'ttyS1');
    return SerialShell.xml(port);
  });
  shell = await SerialShell.open(lab.guest, port);
});
afterAll(async () => {
  shell?.close();
  await lab?.stop();
});

const agentPid = () => shell.run('pidof qemu-ga');
const stop = () => shell.run('kill -STOP $(pidof qemu-ga)');
const goOn = () => shell.run('kill -CONT $(pidof qemu-ga)');
/** The file systems take what is written. */
const isThawed = () => shell.run('date > /mnt/data/now && date > /root/now && sync');

/** Kills the agent; systemd starts the next one. */
async function killAgent(): Promise<void> {
  const pid = await agentPid();
  await shell.run(`kill -KILL ${pid}`);
  await waitFor('the next agent', async () => ![pid, ''].includes(await agentPid().catch(() => '')), 240_000);
}

/** The agent is there again, and asked for the first time after a fault. */
async function worksAgain(): Promise<void> {
  const { world, guest, run, record } = lab;
  await guest.waitForAgent();
  expect(await run('guest-ping')).toEqual({});
  expect(await run('guest-exec', { path: 'echo', arg: ['alive'] })).toEqual({
    exitcode: 0,
    'out-data': 'alive\n',
    exited: true,
  });
  expect((await record()).locked_by).toBeNull();
  expect(await world.rest.list('/api/tasks/?status=IN_PROGRESS')).toEqual([]);
}

describe('an agent that is stopped', () => {
  let pid: number;

  beforeAll(async () => {
    const script = 'while [ ! -e /tmp/free ]; do sleep 0.2; done; echo freed';
    pid = (await lab.run('guest-exec', { path: 'sh', arg: ['-c', script] }, 1)).pid;
    await stop();
  });

  test.each([
    ['guest-get-osinfo', {}],
    ['guest-fstrim', {}],
    ['guest-fsfreeze-freeze', {}],
    ['guest-exec', { path: 'true' }],
    ['guest-file-open', { path: '/etc/hostname' }],
    ['guest-suspend-disk', {}],
    ['guest-shutdown', {}],
  ])('is silent: %s', async (command, fargs) => {
    expect(await lab.refusal(command, fargs, 1)).toEqual([504, 'guest_agent_silent']);
  });

  test('is silent about a program too, which goes on', async () => {
    expect(await lab.refusal('guest-exec-status', { pid }, 1)).toEqual([504, 'guest_agent_silent']);
  });

  test('ends operations, and what must be consistent is not begun', async () => {
    const { act, world, id } = lab;
    const named = await act('set-hostname', { hostname: 'unheard' });
    expect([named.status, named.body.errors[0].msg_key]).toEqual([504, 'guest_agent_silent']);
    const state = { verbose_name: 'quiet', require_consistency: true };
    const saved = await act('snapshots', state);
    expect([saved.status, saved.body.errors[0].msg_key]).toEqual([409, 'consistency_unavailable']);
    expect(await world.rest.list(`/api/domains/${id}/snapshots/`)).toEqual([]);
  });

  test('answers again when it goes on, and nothing that was asked in vain was done', async () => {
    await goOn();
    await worksAgain();
    expect(await lab.run('guest-fsfreeze-status')).toBe('thawed');
    expect(await shell.run('hostname')).toBe('lab-guest');
    await shell.run('touch /tmp/free');
    const ended = async () => {
      const status = await lab.run('guest-exec-status', { pid });
      return status.exited ? status : undefined;
    };
    expect(await waitFor('the end of the program', ended, 120_000)).toMatchObject({ 'out-data': 'freed\n' });
  });
});

describe('an agent that is killed', () => {
  test('is started by systemd; what it had open and running is gone with it', async () => {
    const handle = await lab.run('guest-file-open', { path: '/tmp/open', mode: 'w' });
    const { pid } = await lab.run('guest-exec', { path: 'sleep', arg: ['1000'] }, 1);
    await killAgent();
    await worksAgain();
    expect(await lab.refusal('guest-file-flush', { handle })).toEqual([502, 'guest_agent_failed']);
    expect(await lab.refusal('guest-exec-status', { pid })).toEqual([404, 'guest_process_unknown']);
  });

  test('and stays away is not connected, and shown so', async () => {
    await shell.run('systemctl stop qemu-guest-agent');
    expect(await lab.refusal('guest-ping')).toEqual([504, 'guest_agent_disconnected']);
    const state = (is: boolean) => async () => (await lab.record()).guest_utils.qemu_state === is;
    await waitFor('its absence in the record', state(false), 120_000);
    await shell.run('systemctl start qemu-guest-agent');
    await worksAgain();
    await waitFor('its return in the record', state(true), 120_000);
  });
});

describe('an agent that is killed while the guest is frozen', () => {
  test('by hand: it is frozen still, says so, and is thawed', async () => {
    const { run, refusal, record } = lab;
    expect(await run('guest-fsfreeze-freeze')).toBe(2);
    await killAgent();
    await lab.guest.waitForAgent();
    expect(await run('guest-fsfreeze-status')).toBe('frozen');
    expect(await refusal('guest-exec', { path: 'true' })).toEqual([409, 'guest_frozen']);
    const since = async () => (await record()).guest_info.frozen_since;
    await waitFor('the freeze in the record', async () => (await since()) !== null, 120_000);
    expect(await run('guest-fsfreeze-thaw')).toBe(2);
    await isThawed();
    await worksAgain();
    await waitFor('the end of it in the record', async () => (await since()) === null, 120_000);
  });

  /** Kills the agent at the moment at which it begins to freeze. */
  const killWhenItFreezes = async () => {
    const look = 'while [ ! -e /run/qga.state.isfrozen ]; do :; done; kill -KILL $(pidof qemu-ga)';
    await shell.run(`( ${look} ) > /dev/null 2>&1 & true`);
  };
  /** Lets the agent stop itself before it freezes, by its own hook; it freezes when it goes on. */
  const stopWhenItFreezes = async () => {
    const hook = '#!/bin/sh\\n[ "$1" = thaw ] || kill -STOP $PPID\\n';
    await shell.run(
      `printf '${hook}' > /root/hook && chmod +x /root/hook && mkdir -p /etc/qemu && ` +
        "printf '[general]\\nfsfreeze-hook=/root/hook\\n' > /etc/qemu/qemu-ga.conf && systemctl restart qemu-guest-agent",
    );
    await lab.guest.waitForAgent();
  };
  const makeState = (name: string) =>
    lab.world.rest.begin(`/api/domains/${lab.id}/snapshots/`, {
      verbose_name: name,
      require_consistency: true,
    });

  test('for a saved state: that ends, and the guest is thawed', async () => {
    await killWhenItFreezes();
    const { taskId } = await makeState('killed');
    const task = await lab.world.rest.waitTask(taskId, 280_000);
    expect([task.status, task.error?.msg_key]).toEqual(['FAILED', 'consistency_unavailable']);
    await isThawed();
    await worksAgain();
    expect(await lab.world.rest.list(`/api/domains/${lab.id}/snapshots/`)).toEqual([]);
  });

  test('for a saved state, and only stopped: it is thawed as soon as it goes on', async () => {
    const seen = lab.world.agent.daemon.log().length;
    await stopWhenItFreezes();
    const { taskId } = await makeState('stopped');
    const tries = () => lab.world.agent.daemon.log().slice(seen).includes('cannot be asked to thaw');
    await waitFor('the attempt to thaw', tries, 240_000);
    await goOn();
    const task = await lab.world.rest.waitTask(taskId, 280_000);
    expect([task.status, task.error?.msg_key]).toEqual(['FAILED', 'consistency_unavailable']);
    await isThawed();
    await worksAgain();
    await shell.run('rm /etc/qemu/qemu-ga.conf && systemctl restart qemu-guest-agent');
    await worksAgain();
  });
});

describe('starts and ends of the guest', () => {
  const bootId = () => lab.guest.sh('cat /proc/sys/kernel/random/boot_id');
  const power = (action: string) => lab.operator.action(`/api/domains/${lab.id}/${action}/`, {}, 280_000);
  /** What the guest wrote down of its agent before its last start. */
  const agentLog = () => lab.guest.sh('journalctl --boot=-1 --unit=qemu-guest-agent --output=cat');

  beforeAll(() => lab.guest.sh('mkdir -p /var/log/journal && journalctl --flush'));

  test('a reboot, by its agent', async () => {
    const before = await bootId();
    await power('reboot');
    await lab.guest.waitForAgent();
    expect(await bootId()).not.toBe(before);
    expect(await agentLog()).toContain('guest-shutdown called, mode: reboot');
    await worksAgain();
  });

  test('a restart as operations in guests make it: waited for until the guest is up again', async () => {
    const { world, guest, id } = lab;
    const before = await bootId();
    const libvirt = await connect(world.node.uri);
    const { signal } = new AbortController();
    const warnings: string[] = [];
    const warn = (text: string) => void warnings.push(text);
    const context = { signal, warn, progress: { message: () => {} } } as unknown as OperationContext;
    const opened = openGuest(libvirt.domain(id), guest.name, signal);
    const restarted = await restartGuest(context, opened, 'linux', 240_000).finally(() => libvirt.close());
    expect([restarted, warnings]).toEqual([true, []]);
    expect(await bootId()).not.toBe(before);
  });

  test('a shutdown by its agent', async () => {
    await power('shutdown');
    expect(await lab.guest.state()).toBe('shut off');
    await power('start');
    await lab.guest.waitForAgent();
    expect(await agentLog()).toMatch(/guest-shutdown called, mode: (?!reboot)/);
  });

  test('a shutdown by the button, when its agent is stopped', async () => {
    shell.close();
    shell = await SerialShell.open(lab.guest, port);
    await stop();
    // nothing but the button reaches it
    await power('shutdown');
    expect(await lab.guest.state()).toBe('shut off');
  });
});
