import { expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/node-libvirt';
import { GuestCommands, type GuestCommandsDependencies } from './run-command.ts';

const commands = new GuestCommands({} as GuestCommandsDependencies);
const options = { timeoutMs: 1000, signal: new AbortController().signal };

const run = (command: string, answer: unknown) => {
  const agentCommand = async () => JSON.stringify({ return: answer });
  return commands.run({ uuid: 'vm', name: 'vm', agentCommand } as unknown as Domain, command, {}, options);
};

test('the system of a guest has all of its fields, also those that the guest does not know', async () => {
  const known = { id: 'debian', name: 'Debian GNU/Linux', 'kernel-release': '6.1.0', newer: [1] };
  const unknown = [
    'variant',
    'variant-id',
    'version',
    'version-id',
    'pretty-name',
    'kernel-version',
    'machine',
  ];
  expect(await run('guest-get-osinfo', known)).toEqual({
    ...known,
    ...Object.fromEntries(unknown.map(name => [name, ''])),
  });
});

test('the answer of another command stays as it is', async () => {
  expect(await run('guest-get-host-name', { 'host-name': 'a' })).toEqual({ 'host-name': 'a' });
});
