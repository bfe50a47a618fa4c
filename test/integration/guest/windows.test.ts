// The Windows paths against an agent that answers as qemu-ga 7.2 for Windows does: its commands, its shapes, its refusals.
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { runProgram } from '../../../agent/src/guest/index.ts';
import type { Answer, FakeAgent } from '../../lab/fake-agent.ts';
import type { Guest } from '../../lab/guest.ts';
import { CALL, GuestLab } from './lab.ts';
import { windowsAgent } from './windows-agent.ts';

const failure = (msgKey: string) => expect.objectContaining({ msgKey });
const base64 = (text: string) => Buffer.from(text).toString('base64');
let lab: GuestLab;
let guest: Guest;
let agent: FakeAgent;

beforeAll(async () => {
  lab = await GuestLab.start();
  ({ guest, agent } = await lab.scripted('windows', windowsAgent()));
});
afterAll(() => lab?.stop());

/** What the guest was asked to run last, the PowerShell script decoded. */
function lastProgram(): { path: string; script: string; request: Record<string, unknown> } {
  const request = agent.calls.findLast(call => call.execute === 'guest-exec')!.arguments;
  const script = Buffer.from((request.arg as string[]).at(-1) ?? '', 'base64').toString('utf16le');
  return { path: request.path as string, script, request };
}

function nextProgram(answer: Record<string, unknown>): void {
  agent.on('guest-exec', () => ({ return: { pid: 4242 } }));
  agent.on('guest-exec-status', () => ({ return: { exited: true, ...answer } }));
}

test('what it tells of itself', async () => {
  const domainId = await guest.uuid();
  const told = await lab.queries.getInfo({ domainId, refresh: true }, CALL);
  expect(told).toMatchObject({
    agentVersion: '7.2.0',
    hostname: 'WIN-SCRIPTED',
    ipv4: ['192.0.2.15'],
    ipv6: [],
    os: { id: 'mswindows', prettyName: 'Windows Server 2022 Standard', variantId: 'server' },
    users: [{ name: 'Administrator' }],
  });
  expect(told.fileSystems).toMatchObject([{ mountpoint: 'C:\\', type: 'NTFS', totalBytes: 42_000_000_000n }]);
});

test('the commands it has disabled or does not have', async () => {
  const commands = await lab.commands(guest);
  expect(commands).toContain('guest-get-devices');
  expect(commands).not.toContain('guest-set-vcpus');
  expect(await lab.run(guest, 'guest-get-devices')).toHaveLength(1);
  const vcpus = { vcpus: [{ 'logical-id': 0, online: true }] };
  await expect(lab.run(guest, 'guest-set-vcpus', vcpus)).rejects.toEqual(failure('guest_command_disabled'));
  const keys = lab.run(guest, 'guest-ssh-get-authorized-keys', { username: 'Administrator' });
  await expect(keys).rejects.toEqual(failure('guest_command_unknown'));
  const domainId = await guest.uuid();
  await expect(lab.queries.listSshKeys({ domainId, user: 'Administrator' }, CALL)).rejects.toEqual(
    failure('guest_os_unsupported'),
  );
});

test('programs run under PowerShell, their output bounded, their arguments and environment whole', async () => {
  nextProgram({ exitcode: 0, 'out-data': base64('done\r\n') });
  const args = { path: 'C:\\Tools\\run.exe', arg: ['/a', 'b c', 'say "x"'], env: ['N=1'] };
  expect(await lab.run(guest, 'guest-exec', args)).toEqual({
    exitcode: 0,
    'out-data': 'done\r\n',
    exited: true,
  });
  const { path, script, request } = lastProgram();
  expect(path).toBe('powershell.exe');
  expect(script).toContain("$i.FileName='C:\\Tools\\run.exe'");
  expect(script).toContain(`$i.Arguments='/a "b c" "say \\"x\\""'`);
  expect(script).toContain("$i.EnvironmentVariables['N']='1'");
  expect(request).toMatchObject({ 'capture-output': true });
  expect(request).not.toHaveProperty('env');
});

test('a secret goes on standard input, and stands nowhere else', async () => {
  nextProgram({ exitcode: 0 });
  const program = { path: 'powershell.exe', args: ['-Command', 'x'], input: 'hunter2', timeoutMs: 60_000 };
  await runProgram(await lab.domain(guest), program, CALL.signal);
  const { script, request } = lastProgram();
  expect(script).not.toContain('hunter2');
  expect(request['input-data']).toBe(base64('hunter2'));
});

test('a guest without PowerShell runs the program as it is, and its output is not taken', async () => {
  const refusal: Answer = {
    error: {
      class: 'GenericError',
      desc: "Guest agent command failed, error was 'Failed to execute child process “powershell.exe” (No such file or directory)'",
    },
  };
  agent.on('guest-exec', ({ path }) => (path === 'powershell.exe' ? refusal : { return: { pid: 7 } }));
  agent.on('guest-exec-status', () => ({ return: { exited: true, exitcode: 0 } }));
  expect(await lab.run(guest, 'guest-exec', { path: 'cmd.exe', arg: ['/c', 'dir'] })).toEqual({
    exitcode: 0,
    'out-data': '',
    exited: true,
    'out-truncated': true,
    'err-truncated': true,
  });
  expect(lastProgram().request).toEqual({ path: 'cmd.exe', arg: ['/c', 'dir'] });
});

test('an exit code of an exception, and output that is no UTF-8', async () => {
  nextProgram({ signal: 0xc0000005, 'out-data': Buffer.from([0x8f, 0xe0, 0xa8]).toString('base64') });
  expect(await lab.run(guest, 'guest-exec', { path: 'cmd.exe' })).toEqual({
    exitcode: 0xc0000005,
    signal: 0xc0000005,
    'out-data': 'j+Co',
    'out-encoding': 'base64',
    exited: true,
  });
});

test('too long a command line is refused before it is sent', async () => {
  const args = { path: 'cmd.exe', arg: ['x'.repeat(20_000)] };
  await expect(lab.run(guest, 'guest-exec', args)).rejects.toMatchObject({
    msgKey: 'guest_argument_invalid',
    params: { field: 'arg' },
  });
});
