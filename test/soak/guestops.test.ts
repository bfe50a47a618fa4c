/**
 * Operations in a real Debian guest: changed while it is off (libguestfs), booted once, changed while it runs, joined to a
 * directory on a real domain controller and taken out again. One boot serves all, so the tests build on each other.
 */
import { createHash } from 'node:crypto';
import { createReadStream, mkdtempSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { openGuest } from '../../agent/src/workflows/guest/guest.ts';
import { GuestOperationsLab } from '../integration/guestops-lab.ts';
import {
  DIRECTORY,
  type DomainController,
  directoryLabMissing,
  startDomainController,
} from '../lab/ad-dc.ts';
import type { Guest } from '../lab/guest.ts';
import { guestfsMissing } from '../lab/guestfs.ts';
import { run, succeeds, waitFor } from '../lab/run.ts';

let lab: GuestOperationsLab;
let dc: DomainController;
let guest: Guest;
let keys: { path: string; line: string }[];

const ADDRESS = `${DIRECTORY.prefix}20`;

const missing = await directoryLabMissing();
const guestfs = await guestfsMissing();
const suite = missing ? describe.skip : describe;
const offline = guestfs ? test.skip : test;
for (const reason of [missing, guestfs]) if (reason) process.stderr.write(`guestops: ${reason}\n`);

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => 'taken',
    error => (error as { msgKey?: string }).msgKey,
  );

/** Logs in with a key, from the directory's network: no other way leads to the guest. */
const login = (key: string, command = 'true') => [
  ...['ssh', '-n', '-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null', '-o', 'BatchMode=yes'],
  ...['-o', 'IdentitiesOnly=yes', '-o', 'ConnectTimeout=60', '-o', 'LogLevel=ERROR', '-i', key, `root@${ADDRESS}`, command],
]; // biome-ignore format: pairs
const mayLogIn = (key: string) => succeeds(dc.argvInside(login(key)), { timeoutMs: 240_000 });

const join_ = (request: Partial<Parameters<GuestOperationsLab['run']>[2]> = {}) =>
  lab.run('joinDirectory', guest, {
    directory: DIRECTORY.name,
    login: DIRECTORY.login,
    password: DIRECTORY.password,
    computerName: '',
    organizationalUnit: '',
    restart: false,
    ...request,
  });

const leave = (request: Partial<Parameters<GuestOperationsLab['run']>[2]> = {}) =>
  lab.run('leaveDirectory', guest, {
    login: DIRECTORY.login,
    password: DIRECTORY.password,
    directory: '',
    restart: false,
    ...request,
  });

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

suite('operations in a Debian guest', () => {
  beforeAll(async () => {
    lab = await GuestOperationsLab.start();
    dc = await startDomainController(join(lab.lab.world.dir, 'dc'));
    guest = await lab.defineDebian('debian', dc.bridge);
    const dir = mkdtempSync(join(lab.lab.world.dir, 'keys-'));
    keys = [];
    for (const name of ['offline', 'online', 'other']) {
      const path = join(dir, name);
      await run(['ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-C', `${name}@lab`, '-f', path]);
      keys.push({ path, line: readFileSync(`${path}.pub`, 'utf8').trim() });
    }
  });

  afterAll(async () => {
    await dc?.stop();
    await lab?.stop();
  });

  describe('while it is off', () => {
    test('what cannot be done then is refused', async () => {
      expect(await refusal(join_())).toBe('guest_off');
      expect(await refusal(lab.keys(guest, 'root'))).toBe('guest_off');
    });

    offline('a change that fails leaves the disk as it was', async () => {
      const path = (await guest.disks()).vda!;
      const before = await sha256(path);
      const change = lab.run('addSshKeys', guest, { user: 'nobody-here', keys: [keys[0]!.line] });
      expect(await refusal(change)).toBe('guestfs_failed');
      expect(await sha256(path)).toBe(before);
    });

    offline('it is given a host name', async () => {
      const { result } = await lab.run('setHostname', guest, { hostname: 'named-off', restart: false });
      expect(result).toEqual({ hostname: 'named-off', method: 'offline', restarted: false });
    });

    offline('it is given an SSH key', async () => {
      const { result } = await lab.run('addSshKeys', guest, { user: 'root', keys: [keys[0]!.line] });
      expect(result).toEqual({ keys: [keys[0]!.line], method: 'offline' });
    });
  });

  describe('while it runs', () => {
    beforeAll(async () => {
      await guest.start();
      await guest.waitForAgent();
      await guest.sh(`dev=$(ls /sys/class/net | grep -vx lo); ip addr add ${ADDRESS}/24 dev $dev; ip link set $dev up
        printf 'search ${DIRECTORY.name}\\nnameserver ${DIRECTORY.address}\\n' > /etc/resolv.conf`);
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
      const { result } = await lab.run('setHostname', guest, { hostname: 'web1', restart: true });
      expect(result).toEqual({ hostname: 'web1', method: 'agent', restarted: false });
      expect((await guest.sh('uname -n; cat /etc/hostname')).trim()).toBe('web1\nweb1');
      expect(await refusal(lab.begin('setHostname', guest, { hostname: 'web 1', restart: false }))).toBe(
        'invalid_field',
      );
    });

    test('without a host name it takes the name of its domain', async () => {
      const { result } = await lab.run('setHostname', guest, { hostname: '', restart: false });
      expect(result.hostname).toBe('debian');
    });

    test('SSH keys are added, listed and removed', async () => {
      const line = keys[1]!.line;
      const { result } = await lab.run('addSshKeys', guest, { user: 'root', keys: [line, line] });
      expect(result.method).toBe('agent');
      expect((result.keys as string[]).filter(key => key === line)).toHaveLength(1);
      expect(await mayLogIn(keys[1]!.path)).toBe(true);
      // the same key by another comment
      const [type, blob] = line.split(' ');
      await lab.run('addSshKeys', guest, { user: 'root', keys: [`${type} ${blob} again`] });
      expect((await lab.keys(guest, 'root')).filter(key => key.includes(blob!))).toEqual([line]);
      await lab.run('removeSshKeys', guest, { user: 'root', keys: [`${type} ${blob}`] });
      expect((await lab.keys(guest, 'root')).filter(key => key.includes(blob!))).toEqual([]);
      expect(await mayLogIn(keys[1]!.path)).toBe(false);
    });

    test('also where the agent has no commands for keys', async () => {
      const old = new GuestsWithoutKeys(lab);
      const line = keys[2]!.line;
      await guest.sh('useradd -m alice');
      expect((await old.run('addSshKeys', [line])).keys).toEqual([line]);
      const both = (await old.run('addSshKeys', [keys[1]!.line])).keys as string[];
      expect(both.toSorted()).toEqual([line, keys[1]!.line].toSorted());
      expect(await guest.sh('stat -c "%a %U" ~alice/.ssh ~alice/.ssh/authorized_keys')).toBe(
        '700 alice\n600 alice\n',
      );
      expect((await old.run('removeSshKeys', [line])).keys).toEqual([keys[1]!.line]);
    });

    test('garbage and strangers are refused', async () => {
      const add = (user: string, key: string) => refusal(lab.run('addSshKeys', guest, { user, keys: [key] }));
      expect(await add('root', 'garbage')).toBe('ssh_key_invalid');
      expect(await add('root', `${keys[1]!.line}\n${keys[2]!.line}`)).toBe('ssh_key_invalid');
      expect(await add('../root', keys[1]!.line)).toBe('invalid_field');
      expect(await add('nobody-here', keys[1]!.line)).toBe('guest_operation_failed');
    });

    describe('a directory', () => {
      test('that is not there is told so', async () => {
        expect(await refusal(join_({ directory: 'nowhere.test' }))).toBe('directory_not_found');
      });

      test('is not joined with a wrong password', async () => {
        expect(await refusal(join_({ password: 'Wrong.Passw0rd' }))).toBe('directory_login_failed');
        expect(await refusal(join_({ login: 'nobody' }))).toBe('directory_login_failed');
        expect(await dc.computers()).toHaveLength(1);
      });

      test('is joined in a unit, with a new name', async () => {
        const { result, operation } = await join_({
          computerName: 'VKWEB1',
          organizationalUnit: DIRECTORY.unit,
        });
        expect(result).toMatchObject({ domain: DIRECTORY.name, computer_name: 'VKWEB1', restarted: false });
        expect(inspect(operation, { depth: null })).not.toContain(DIRECTORY.password);
        expect(await dc.computers()).toContain(`CN=VKWEB1,${DIRECTORY.unit}`);
        expect((await guest.sh('realm list --name-only; uname -n')).trim()).toBe(`${DIRECTORY.name}\nVKWEB1`);
        expect(await guest.sh(`id -u ${DIRECTORY.login}@${DIRECTORY.name}`)).toMatch(/^\d+\n$/);
      });

      test('is not joined twice, nor left with a wrong password', async () => {
        expect(await refusal(join_())).toBe('guest_operation_failed');
        expect(await refusal(leave({ password: 'Wrong.Passw0rd' }))).toBe('directory_login_failed');
        expect(await dc.computers()).toHaveLength(2);
        expect((await guest.sh('realm list --name-only')).trim()).toBe(DIRECTORY.name);
      });

      test('is left, and its account goes', async () => {
        expect(await refusal(leave({ directory: 'other.test' }))).toBe('guest_operation_failed');
        const { result } = await leave();
        expect(result).toEqual({ domain: DIRECTORY.name, restarted: false });
        expect(await dc.computers()).toHaveLength(1);
        expect((await guest.sh('realm list --name-only')).trim()).toBe('');
        expect(await refusal(leave())).toBe('guest_operation_failed');
      });

      test('is not joined with a part of the packages', async () => {
        await guest.sh('dpkg --force-depends -r sssd-tools');
        const error = (await join_().catch(thrown => thrown)) as { msgKey: string; message: string };
        expect(error.msgKey).toBe('guest_packages_missing');
        expect(error.message).toContain('sssd-tools');
      });
    });

    test('the journal keeps no secret', () => {
      const path = join(lab.lab.world.dir, 'journal.db');
      for (const file of [path, `${path}-wal`]) {
        const bytes = readFileSync(file);
        for (const secret of [DIRECTORY.password, 'Wrong.Passw0rd'])
          expect(bytes.includes(secret)).toBe(false);
      }
    });
  });

  describe('when it is off again', () => {
    offline('keys are removed and the guest is prepared', async () => {
      await guest.sh('sync');
      await guest.destroy();
      const removed = await lab.run('removeSshKeys', guest, { user: 'root', keys: [keys[0]!.line] });
      expect(removed.result).toEqual({ keys: [], method: 'offline' });
    });

    offline('it is prepared for being copied', async () => {
      const prepared = lab.run('prepare', guest, {
        bootDiskId: '',
        operations: ['machine-id', 'ssh-hostkeys'],
      });
      expect((await prepared).result).toEqual({ operations: ['machine-id', 'ssh-hostkeys'] });
      const bad = lab.run('prepare', guest, { bootDiskId: '', operations: ['format-disk'] });
      expect(await refusal(bad)).toBe('invalid_field');
    });
  });
});

/** The guest, with an agent that does not know the commands for keys. */
class GuestsWithoutKeys {
  readonly #lab: GuestOperationsLab;

  constructor(of: GuestOperationsLab) {
    this.#lab = of;
  }

  async run(method: 'addSshKeys' | 'removeSshKeys', lines: string[]): Promise<Record<string, unknown>> {
    const { operations } = this.#lab;
    operations.openGuest = (domain, name, signal) => {
      const real = openGuest(domain, name, signal);
      return {
        ...real,
        command: (command, args) => {
          if (!command.startsWith('guest-ssh')) return real.command(command, args);
          throw new VirtkeepError('guest_command_unknown', { domain: name, command });
        },
      };
    };
    try {
      return (await this.#lab.run(method, guest, { user: 'alice', keys: lines })).result;
    } finally {
      delete operations.openGuest;
    }
  }
}
