// An agent that is killed while a guest is frozen by hand, or has a file open: the next one knows, and ends it.
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { AgentAlone } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let domainId: string;

beforeAll(async () => {
  // long enough for a kill in time on a slow machine
  alone = await AgentAlone.start({ guest: { freeze_limit_seconds: 20, file_idle_seconds: 10 } });
  guest = await alone.world.defineTiny();
  domainId = await guest.uuid();
  await (await guest.start()).waitForAgent();
});
afterAll(() => alone?.stop());

async function run(command: string, args: object = {}): Promise<unknown> {
  const request = { domainId, command, argumentsJson: JSON.stringify(args), timeoutSeconds: 60 };
  return JSON.parse((await alone.guests.runCommand(request)).resultJson);
}

test('a freeze by hand outlives the agent, is shown by the next one, and thawed after its limit', async () => {
  expect(await run('guest-fsfreeze-freeze')).toBe(1);
  const { frozenSince } = await alone.guests.getInfo({ domainId });
  expect(frozenSince).toBeInstanceOf(Date);
  await alone.agent.daemon.kill();
  expect(await guest.agent('guest-fsfreeze-status')).toBe('frozen');
  await alone.up();
  const thawed = async () => (await guest.agent('guest-fsfreeze-status')) === 'thawed';
  await waitFor('the thaw', thawed, 240_000, 200);
  const forgotten = async () => (await alone.guests.getInfo({ domainId })).frozenSince === undefined;
  await waitFor('the end of it in what is shown', forgotten, 120_000, 100);
  expect(await run('guest-exec', { path: '/bin/echo', arg: ['alive'] })).toMatchObject({
    'out-data': 'alive\n',
  });
});

test('a file that was left open is closed by the next agent', async () => {
  const handle = await run('guest-file-open', { path: '/tmp/left', mode: 'w' });
  await alone.restart();
  const closed = () =>
    guest.agent('guest-file-flush', { handle }).then(
      () => false,
      error => /has not been found/.test(String(error)),
    );
  await waitFor('the closing', closed, 240_000, 500);
});

test('what the guest tells is shown with its domain in every list', async () => {
  const told = async () => (await alone.domains.list({})).domains[0]?.guestInfo?.hostname === 'tiny';
  await waitFor('the host name', told, 120_000, 100);
});
