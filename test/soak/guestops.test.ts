/**
 * Operations in a real Debian guest, started over REST and by the command line as users do: changed while it is off
 * (libguestfs), booted, changed while it runs, joined to a directory on a real domain controller, restarted, and taken out
 * again. One guest serves all, so the tests build on each other.
 */
import { createHash } from 'node:crypto';
import { createReadStream, mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, jest, test } from '@jest/globals';
import {
  DIRECTORY,
  type DomainController,
  directoryLabMissing,
  startDomainController,
} from '../lab/ad-dc.ts';
import type { Guest } from '../lab/guest.ts';
import { guestfsMissing } from '../lab/guestfs.ts';
import { run, succeeds, waitFor } from '../lab/run.ts';
import { startWorld, type World } from '../lab/world.ts';
import { defineDebian } from './debian.ts';
import { GuestByRest, type Json } from './guest-by-rest.ts';
import { hold, isHeld, makeSource, release, removeSource, statusOf } from './package-source.ts';
import { filesWith, ProcessWatch, patternOf, secretsSeen, watchGuest } from './secrets.ts';

// several starts of an emulated machine in one test: it ends what hangs on slow machines too
jest.setTimeout(1_800_000);

let world: World;
let dc: DomainController;
let guest: Guest;
let by: GuestByRest;
let keys: { path: string; line: string }[];
let processes: ProcessWatch;

const ADDRESS = `${DIRECTORY.prefix}20`;
const WRONG = 'Wrong.Passw0rd';
const SECRETS = [DIRECTORY.password, WRONG];

const missing = await directoryLabMissing();
const guestfs = await guestfsMissing();
const suite = missing ? describe.skip : describe;
const offline = guestfs ? test.skip : test;
for (const reason of [missing, guestfs]) if (reason) process.stderr.write(`guestops: ${reason}\n`);

/** Logs in with a key, from the directory's network: no other way leads to the guest. */
const login = (key: string, command = 'true') => [
  ...['ssh', '-n', '-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null', '-o', 'BatchMode=yes'],
  ...['-o', 'IdentitiesOnly=yes', '-o', 'ConnectTimeout=60', '-o', 'LogLevel=ERROR', '-i', key, `root@${ADDRESS}`, command],
]; // biome-ignore format: pairs
const mayLogIn = (key: string) => succeeds(dc.argvInside(login(key)), { timeoutMs: 240_000 });

const ACCOUNT = { login: DIRECTORY.login, password: DIRECTORY.password };
const JOIN = { ...ACCOUNT, domainname: DIRECTORY.name, restart: false };
const LEAVE = { ...ACCOUNT, restart: false };

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

/** Restarts the guest's agent without some of its commands; with none it has all. */
async function blockCommands(...names: string[]): Promise<void> {
  // the one setting is that of newer agents, the other of older ones
  const list = names.join(',');
  await guest.sh(`printf '[general]\\nblock-rpcs=${list}\\nblacklist=${list}\\n' > /etc/qemu/qemu-ga.conf
    systemd-run --no-block systemctl restart qemu-guest-agent`);
  type Info = { supported_commands: { name: string; enabled: boolean }[] };
  const isSo = async () => {
    const info = await guest.agent<Info>('guest-info').catch(() => undefined);
    const ssh = info?.supported_commands.filter(({ name }) => name.startsWith('guest-ssh-'));
    return ssh?.every(({ enabled }) => enabled === (names.length === 0));
  };
  await waitFor("the guest's other agent", isSo, 240_000, 500);
}

suite('operations in a Debian guest', () => {
  beforeAll(async () => {
    world = await startWorld({ controller: true });
    dc = await startDomainController(join(world.dir, 'dc'));
    guest = await defineDebian(world.node, 'debian', dc.bridge);
    by = new GuestByRest(world, await world.known(guest));
    const dir = mkdtempSync(join(world.dir, 'keys-'));
    keys = [];
    for (const name of ['offline', 'online', 'other']) {
      const path = join(dir, name);
      await run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', `${name}@lab`, '-f', path]);
      keys.push({ path, line: readFileSync(`${path}.pub`, 'utf8').trim() });
    }
    processes = new ProcessWatch(SECRETS);
  });

  afterAll(async () => {
    processes?.stop();
    await dc?.stop();
    await world?.stop();
  });

  describe('while it is off', () => {
    test('what cannot be done then is refused', async () => {
      expect(await by.keyOf('add-to-ad', JOIN)).toBe('guest_off');
      expect(await by.keyOf('rm-from-ad', LEAVE)).toBe('guest_off');
      expect((await by.cli(['vm', 'ssh-key', 'list', 'debian'])).code).toBe(5);
    });

    offline('a change that fails leaves the disk as it was', async () => {
      const path = (await guest.disks()).vda!;
      const before = await sha256(path);
      const refusal = await by.refusal('ssh-keys', { ssh_user: 'nobody-here', ssh_key: keys[0]!.line });
      expect(refusal).toMatchObject({
        key: 'guestfs_failed',
        detail: expect.stringContaining('nobody-here'),
      });
      expect(await sha256(path)).toBe(before);
    });

    offline('it is given a host name, by the command', async () => {
      const { code, out } = await by.cli(['vm', 'set-hostname', 'debian', 'named-off']);
      expect([code, out]).toEqual([0, 'debian: host name named-off\n']);
    });

    offline('it is given an SSH key', async () => {
      const { result } = await by.run('ssh-keys', { ssh_user: 'root', ssh_key: keys[0]!.line });
      expect(result).toEqual({ keys: [keys[0]!.line], method: 'offline' });
    });
  });

  describe('while it runs', () => {
    beforeAll(async () => {
      await guest.start();
      await guest.waitForAgent(1_200_000);
      await guest.sh(`printf '[Match]\\nType=ether\\n[Network]\\nAddress=${ADDRESS}/24\\n' > /etc/systemd/network/lab.network
        printf 'search ${DIRECTORY.name}\\nnameserver ${DIRECTORY.address}\\n' > /etc/resolv.conf
        systemctl enable --now systemd-networkd`);
      await watchGuest(guest, SECRETS);
    });

    offline('it has the name that it was given before', async () => {
      expect((await guest.agent<{ 'host-name': string }>('guest-get-host-name'))['host-name']).toBe(
        'named-off',
      );
    });

    offline('the key that it was given before opens it, another one does not', async () => {
      await waitFor('the login', () => mayLogIn(keys[0]!.path), 240_000, 1000);
      expect(await mayLogIn(keys[1]!.path)).toBe(false);
    });

    test('its host name is set, and read back', async () => {
      const { result } = await by.run('set-hostname', { hostname: 'web1' });
      expect(result).toEqual({ hostname: 'web1', method: 'agent', restarted: false });
      expect((await guest.sh('uname -n; cat /etc/hostname')).trim()).toBe('web1\nweb1');
      const refusal = await by.refusal('set-hostname', { hostname: 'web 1' });
      expect(refusal).toMatchObject({ status: 400, key: 'invalid_field', field: 'hostname' });
    });

    test('without a host name it takes the name of its domain', async () => {
      const { code, out } = await by.cli(['vm', 'set-hostname', 'debian']);
      expect([code, out]).toEqual([0, 'debian: host name debian\n']);
      expect((await guest.sh('uname -n')).trim()).toBe('debian');
    });

    test('SSH keys are added, listed and removed', async () => {
      const { line, path } = keys[1]!;
      const { result } = await by.run('ssh-keys', { ssh_user: 'root', ssh_key: [line, line] });
      expect(result.method).toBe('agent');
      expect((result.keys as string[]).filter(key => key === line)).toHaveLength(1);
      expect(await mayLogIn(path)).toBe(true);
      // the same key by another comment
      const [type, blob] = line.split(' ');
      await by.run('ssh-keys', { ssh_user: 'root', ssh_key: `${type} ${blob} again` });
      expect((await by.keys('root')).filter(key => key.includes(blob!))).toEqual([line]);
      await by.run('ssh-keys/remove', { ssh_user: 'root', ssh_key: `${type} ${blob}` });
      expect((await by.keys('root')).filter(key => key.includes(blob!))).toEqual([]);
      expect(await mayLogIn(path)).toBe(false);
    });

    test('and so they are by the command', async () => {
      const { line, path } = keys[1]!;
      const added = await by.cli(['vm', 'ssh-key', 'add', 'debian', 'root', `${path}.pub`]);
      expect([added.code, added.out]).toEqual([0, 'debian: root may log in now with this key\n']);
      expect((await by.cli(['vm', 'ssh-key', 'list', 'debian', 'root'])).out.split('\n')).toContain(line);
      expect(await mayLogIn(path)).toBe(true);
      expect((await by.cli(['vm', 'ssh-key', 'remove', 'debian', 'root', '-'], line)).code).toBe(0);
      expect(await mayLogIn(path)).toBe(false);
    });

    test('also where the agent has no commands for keys', async () => {
      const asAlice = (line: string) => ({ ssh_user: 'alice', ssh_key: line });
      const line = keys[2]!.line;
      await guest.sh('useradd -m alice');
      await blockCommands(...['get', 'add', 'remove'].map(verb => `guest-ssh-${verb}-authorized-keys`));
      try {
        expect((await by.run('ssh-keys', asAlice(line))).result.keys).toEqual([line]);
        const both = (await by.run('ssh-keys', asAlice(keys[1]!.line))).result.keys as string[];
        expect(both.toSorted()).toEqual([line, keys[1]!.line].toSorted());
        expect(await guest.sh('stat -c "%a %U" ~alice/.ssh ~alice/.ssh/authorized_keys')).toBe(
          '700 alice\n600 alice\n',
        );
        expect((await by.run('ssh-keys/remove', asAlice(line))).result.keys).toEqual([keys[1]!.line]);
      } finally {
        await blockCommands();
      }
    });

    test('garbage and strangers are refused', async () => {
      const add = (ssh_user: string, ssh_key: string) => by.keyOf('ssh-keys', { ssh_user, ssh_key });
      expect(await add('root', 'garbage')).toBe('ssh_key_invalid');
      expect(await add('root', `${keys[1]!.line}\n${keys[2]!.line}`)).toBe('ssh_key_invalid');
      expect(await add('../root', keys[1]!.line)).toBe('invalid_field');
      expect(await add('nobody-here', keys[1]!.line)).toBe('guest_operation_failed');
    });

    test('what is for others or for guests that are off is refused', async () => {
      const sysprep = await by.refusal('sysprep', { unattend: WRONG });
      expect(sysprep).toMatchObject({
        key: 'guest_os_unsupported',
        detail: expect.stringContaining('Debian'),
      });
      expect(await by.keyOf('prepare')).toBe('power_state_conflict');
    });

    describe('a directory', () => {
      test('that is not there is told so', async () => {
        expect(await by.keyOf('add-to-ad', { ...JOIN, domainname: 'nowhere.test' })).toBe(
          'directory_not_found',
        );
      });

      test('is not joined with a wrong password', async () => {
        const refusal = await by.refusal('add-to-ad', { ...JOIN, password: WRONG });
        expect(refusal.key).toBe('directory_login_failed');
        expect(refusal.detail).not.toContain(WRONG);
        expect(await by.keyOf('add-to-ad', { ...JOIN, login: 'nobody' })).toBe('directory_login_failed');
        expect(await dc.computers()).toHaveLength(1);
      });

      test('is joined in a unit, with a new name, and the guest restarted', async () => {
        const bootId = await guest.sh('cat /proc/sys/kernel/random/boot_id');
        const { result, task } = await by.run('add-to-ad', {
          ...JOIN,
          newname: 'VKWEB1',
          oupath: DIRECTORY.unit,
          restart: true,
        });
        expect(result).toEqual({
          domain: DIRECTORY.name,
          computer_name: 'VKWEB1',
          restarted: true,
          warnings: [],
          installed: [],
        });
        expect(JSON.stringify(task)).not.toContain(DIRECTORY.password);
        expect(await dc.computers()).toContain(`CN=VKWEB1,${DIRECTORY.unit}`);
        expect(await guest.sh('cat /proc/sys/kernel/random/boot_id')).not.toBe(bootId);
        expect((await guest.sh('realm list --name-only; uname -n')).trim()).toBe(`${DIRECTORY.name}\nVKWEB1`);
        await knowsAccount();
        await watchGuest(guest, SECRETS);
      });

      test('is not joined twice, nor left with a wrong password', async () => {
        expect(await by.keyOf('add-to-ad', JOIN)).toBe('guest_operation_failed');
        expect(await by.keyOf('rm-from-ad', { ...LEAVE, password: WRONG })).toBe('directory_login_failed');
        expect(await dc.computers()).toHaveLength(2);
        expect((await guest.sh('realm list --name-only')).trim()).toBe(DIRECTORY.name);
      });

      test('is left by the command, and its account goes', async () => {
        expect(await by.keyOf('rm-from-ad', { ...LEAVE, domainname: 'other.test' })).toBe(
          'guest_operation_failed',
        );
        const args = ['vm', 'leave-domain', 'debian', '--login', DIRECTORY.login, '--no-restart'];
        const wrong = await by.cli(args, `${WRONG}\n`);
        expect([wrong.code === 0, wrong.err]).toEqual([false, expect.stringContaining(DIRECTORY.login)]);
        const { code, out } = await by.cli(args, `${DIRECTORY.password}\n`);
        expect([code, out]).toEqual([0, `debian: left ${DIRECTORY.name}\n`]);
        expect(await dc.computers()).toHaveLength(1);
        expect((await guest.sh('realm list --name-only')).trim()).toBe('');
        expect(await by.keyOf('rm-from-ad', LEAVE)).toBe('guest_operation_failed');
      });

      test('is joined by the command, which installs a package that is missing', async () => {
        await guest.sh('dpkg --force-depends -r sssd-tools');
        await makeSource(guest, 'sssd-tools');
        const args = ['vm', 'join-domain', 'debian', DIRECTORY.name, '--login', DIRECTORY.login];
        const more = ['--name', 'vkweb2', '--ou', DIRECTORY.unit, '--no-restart'];
        const wrong = await by.cli([...args, ...more], WRONG);
        expect([wrong.code === 0, wrong.err]).toEqual([false, expect.stringContaining(DIRECTORY.login)]);
        // it stays although the join failed, which the task says
        expect(await statusOf(guest, 'sssd-tools')).toBe('installed');
        const failed = (await world.rest.list<Json>('/api/tasks/')).find(
          task => task.name === 'guest_add_to_ad',
        );
        expect(JSON.stringify(failed)).toContain(
          'What was installed in the guest of debian stays: sssd-tools.',
        );
        await guest.sh('dpkg --force-depends -r sssd-tools');
        const { code, out } = await by.cli([...args, ...more], DIRECTORY.password);
        expect([code, out]).toEqual([
          0,
          `debian: joined ${DIRECTORY.name} as vkweb2, installed sssd-tools\n`,
        ]);
        expect((await dc.computers()).map(name => name.toLowerCase())).toContain(
          `CN=vkweb2,${DIRECTORY.unit}`.toLowerCase(),
        );
        await knowsAccount();
      });

      test('is left', async () => {
        const { result } = await by.run('rm-from-ad', LEAVE);
        expect(result).toEqual({ domain: DIRECTORY.name, restarted: false });
        expect(await dc.computers()).toHaveLength(1);
      });

      test('is not joined with a part of the packages, when they are not to be installed', async () => {
        await guest.sh('dpkg --force-depends -r sssd-tools');
        const { key, detail } = await by.refusal('add-to-ad', { ...JOIN, install_packages: false });
        expect([key, detail]).toEqual(['guest_packages_missing', expect.stringContaining('sssd-tools')]);
        expect(await statusOf(guest, 'sssd-tools')).not.toBe('installed');
      });

      test('is not joined when the agent of the node is killed while they are, and it is told which', async () => {
        await hold(guest);
        const { body } = await world.rest.send<Json>(
          'POST',
          `/api/domains/${by.id}/add-to-ad/?async=1`,
          JOIN,
        );
        await waitFor('the installation', () => isHeld(guest), 900_000, 1000);
        await world.agent.daemon.kill();
        await world.agent.daemon.start();
        await world.connected();
        const task = await world.rest.waitTask(body._task.id, 600_000);
        expect([task.status, task.error?.msg_key]).toEqual(['FAILED', 'interrupted']);
        expect(JSON.stringify(task)).toContain('was installing sssd-tools. It goes on with that');
        await release(guest);
        const isInstalled = async () => (await statusOf(guest, 'sssd-tools')) === 'installed';
        await waitFor('the package', isInstalled, 600_000, 1000);
        expect((await guest.sh('realm list --name-only')).trim()).toBe('');
      });

      test('is not joined where the package manager has no source that has them', async () => {
        await guest.sh('dpkg --force-depends -r sssd-tools');
        await removeSource(guest);
        expect(await by.keyOf('add-to-ad', JOIN)).toBe('guest_packages_missing');
        const wanted = await by.refusal('add-to-ad', { ...JOIN, install_packages: true });
        expect(wanted).toMatchObject({
          key: 'guest_install_failed',
          detail: expect.stringContaining('sssd-tools'),
        });
      });
    });

    test('no secret was in an argument of a process of either side, nor in a log of the guest', async () => {
      expect([processes.stop(), processes.looks > 100]).toEqual([[], true]);
      const { found, looks } = await secretsSeen(guest);
      expect([found, looks > 10]).toEqual(['', true]);
      const logs = `grep -raElE '${patternOf(SECRETS)}' /var/log /run/log /etc /tmp /var/tmp || :`;
      expect(await guest.sh(logs)).toBe('');
    });

    test('no secret is in a file or a record of the controller or the agent', async () => {
      const { found, seen } = filesWith(SECRETS, [world.controller.dir, world.agent.dir]);
      expect([found, seen > 5]).toEqual([[], true]);
      const tasks = JSON.stringify(await world.rest.list('/api/tasks/'));
      expect(tasks).toContain('guest_add_to_ad');
      for (const secret of SECRETS) expect(tasks).not.toContain(secret);
    });
  });

  describe('when it is off again', () => {
    offline('keys are removed', async () => {
      await guest.sh('sync');
      await guest.destroy();
      const { result } = await by.run('ssh-keys/remove', { ssh_user: 'root', ssh_key: keys[0]!.line });
      expect(result).toEqual({ keys: [], method: 'offline' });
    });

    offline('it is prepared for being copied', async () => {
      const bad = await by.refusal('prepare', { operations: ['format-disk'] });
      expect(bad).toMatchObject({ key: 'invalid_field', detail: expect.stringContaining('format-disk') });
      const args = ['vm', 'prepare', 'debian', '--operations', 'machine-id,ssh-hostkeys'];
      const { code, out } = await by.cli(args);
      expect([code, out]).toEqual([0, 'debian: prepared: machine-id, ssh-hostkeys\n']);
    });

    offline('and starts without what was its own', async () => {
      await guest.start();
      await guest.waitForAgent(1_200_000);
      expect(await guest.sh('ls /etc/ssh/ssh_host_* 2>/dev/null || :')).toBe('');
    });
  });
});

/** The directory's accounts are there; after a start sssd may take a moment. */
async function knowsAccount(): Promise<void> {
  const id = () =>
    guest.sh(`id -u ${DIRECTORY.login}@${DIRECTORY.name}`).then(
      out => /^\d+\n$/.test(out),
      () => false,
    );
  await waitFor('the account of the directory', id, 240_000, 1000);
}
