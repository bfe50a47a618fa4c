/** Operations in a Windows that is a scripted agent behind real libvirt; and what guests refuse that have no Windows or no commands. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { FakeAgent } from '../../lab/fake-agent.ts';
import type { Guest } from '../../lab/guest.ts';
import { ScriptedWindows } from '../../lab/scripted-windows.ts';
import { GuestOperationsLab } from './guestops-lab.ts';

const SECRET = 'T0p-S3cret Пароль!';
const login = { login: 'Administrator', password: SECRET };
let lab: GuestOperationsLab;
let agent: FakeAgent;
let windows: ScriptedWindows;
let guest: Guest;

const refusal = (work: Promise<unknown>) =>
  work.then(
    () => 'taken',
    error => (error as { msgKey?: string }).msgKey,
  );

const joining = (request: object = {}) =>
  lab.run('joinDirectory', guest, {
    directory: 'lab.test',
    ...login,
    computerName: '',
    organizationalUnit: '',
    restart: false,
    ...request,
  });

beforeAll(async () => {
  lab = await GuestOperationsLab.start();
  const { world } = lab.lab;
  agent = await new FakeAgent(join(world.dir, 'windows.sock')).listen();
  windows = new ScriptedWindows().drive(agent);
  windows.known.password = SECRET;
  guest = await world.defineTiny({ name: 'windows', dataDisks: [], agent: agent.socketPath, memoryMiB: 32 });
  await guest.start();
  await guest.waitForAgent();
});

afterAll(async () => {
  await lab?.stop();
  await agent?.close();
});

describe('a name', () => {
  test('without a restart is one for the next start', async () => {
    const { result, operation } = await lab.run('setHostname', guest, { hostname: 'WEB1', restart: false });
    expect(result).toEqual({ hostname: 'WEB1', method: 'agent', restarted: false });
    expect(operation.warnings.join()).toMatch(/restarted/);
    expect(windows).toMatchObject({ activeName: 'WIN-OLD', nextName: 'WEB1' });
  });

  test('with a restart is read back from the restarted guest', async () => {
    const { result } = await lab.run('setHostname', guest, { hostname: 'WEB2', restart: true });
    expect(result).toEqual({ hostname: 'WEB2', method: 'agent', restarted: true });
    expect(windows).toMatchObject({ activeName: 'WEB2', starts: 2, shutdowns: ['reboot'] });
  });

  test('that Windows does not take is refused', async () => {
    expect(
      await refusal(lab.run('setHostname', guest, { hostname: 'a-name-too-long-for-it', restart: false })),
    ).toBe('invalid_field');
  });
});

describe('a directory', () => {
  test('that is not there, and a wrong password, have their own errors', async () => {
    expect(await refusal(joining({ directory: 'nowhere.test' }))).toBe('directory_not_found');
    const error = (await joining({ password: 'Wr0ng-Passw0rd' }).catch(thrown => thrown)) as Error & {
      msgKey: string;
    };
    expect(error.msgKey).toBe('directory_login_failed');
    expect(error.message).not.toContain('Wr0ng');
  });

  test('is joined in a unit with a new name, restarted, and left', async () => {
    const unit = 'OU=Серверы,DC=lab,DC=test';
    const { result } = await joining({ computerName: 'WEB3', organizationalUnit: unit, restart: true });
    expect(result).toEqual({
      domain: 'lab.test',
      computer_name: 'WEB3',
      restarted: true,
      warnings: [],
      installed: [],
    });
    expect(windows.given.find(given => given.unit)).toMatchObject({ unit, name: 'WEB3', password: SECRET });
    expect(windows.activeName).toBe('WEB3');
    expect(await refusal(joining())).toBe('guest_operation_failed');
    const leaving = (password: string) =>
      lab.run('leaveDirectory', guest, { ...login, password, directory: '', restart: false });
    expect(await refusal(leaving('wrong'))).toBe('directory_login_failed');
    expect((await leaving(SECRET)).result).toEqual({ domain: 'lab.test', restarted: false });
    expect(await refusal(leaving(SECRET))).toBe('guest_operation_failed');
  });
});

describe('Sysprep', () => {
  const request = { mode: 'oobe', action: 'reboot', generalize: true, vmMode: true, unattend: '' };

  test('is run with an answer file, and the guest restarted', async () => {
    const unattend = `<unattend><Password>${SECRET}</Password></unattend>`;
    const { result } = await lab.run('sysprep', guest, { ...request, unattend });
    expect(result).toEqual({ action: 'reboot' });
    const { switches, unattend: file } = windows.given.find(given => given.switches)!;
    expect(switches).toBe('/generalize /oobe /quit /quiet /mode:vm');
    expect(Buffer.from(file!, 'base64').toString()).toBe(unattend);
    expect(windows.shutdowns.at(-1)).toBe('reboot');
  });

  test('takes only what there is', async () => {
    expect(await refusal(lab.begin('sysprep', guest, { ...request, mode: 'safe' }))).toBe('invalid_field');
    expect(await refusal(lab.begin('sysprep', guest, { ...request, action: 'burn' }))).toBe('invalid_field');
    expect(await refusal(lab.begin('sysprep', guest, { ...request, mode: 'audit' }))).toBe('invalid_field');
  });
});

test('keys are for other systems', async () => {
  const key = 'ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPJ8nA1SbJhZqfGXFbOfO0V7D5cQk3pLZyV6Q7w1m2aB';
  expect(await refusal(lab.run('addSshKeys', guest, { user: 'root', keys: [key] }))).toBe(
    'guest_os_unsupported',
  );
});

test('an agent with guest-exec disabled is told so', async () => {
  agent.on('guest-exec', () => ({
    error: { class: 'CommandNotFound', desc: 'Command guest-exec has been disabled for this instance' },
  }));
  expect(await refusal(joining())).toBe('guest_command_disabled');
  expect(await refusal(lab.run('setHostname', guest, { hostname: 'WEB9', restart: false }))).toBe(
    'guest_command_disabled',
  );
  windows.drive(agent);
});

test('no secret is in a command line, an operation or the journal', async () => {
  expect(windows.commandLines.length).toBeGreaterThan(10);
  for (const line of windows.commandLines) expect(line).not.toContain('S3cret');
  const path = join(lab.lab.world.dir, 'journal.db');
  for (const file of [path, `${path}-wal`].filter(name => existsSync(name))) {
    expect(readFileSync(file).includes('S3cret')).toBe(false);
    expect(readFileSync(file).includes('Wr0ng')).toBe(false);
  }
});

test('Sysprep is for Windows', async () => {
  agent.on('guest-get-osinfo', () => ({ return: { id: 'debian', 'pretty-name': 'Debian' } }));
  await lab.lab.world.node.virsh('destroy', guest.name);
  const other = await lab.lab.world.defineTiny({
    name: 'linux',
    dataDisks: [],
    agent: agent.socketPath,
    memoryMiB: 32,
  });
  await other.start();
  await other.waitForAgent();
  const request = { mode: 'oobe', action: 'quit', generalize: true, vmMode: false, unattend: '' };
  expect(await refusal(lab.run('sysprep', other, request))).toBe('guest_os_unsupported');
});
