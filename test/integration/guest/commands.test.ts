// Programs and files in a guest, through the service: streams, limits, what is asked about later or left open.
// guest-rest.test.ts has every command with its effect.
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import type { Guest } from '../../lab/guest.ts';
import { waitFor } from '../../lab/run.ts';
import { GuestLab } from './lab.ts';

const failure = (msgKey: string) => expect.objectContaining({ msgKey });
const base64 = (text: string) => Buffer.from(text).toString('base64');
let lab: GuestLab;
let guest: Guest;

beforeAll(async () => {
  lab = await GuestLab.start();
  guest = await lab.tiny('real');
});
afterAll(() => lab?.stop());

const run = (command: string, args: Record<string, unknown> = {}, timeoutSeconds = 60) =>
  lab.run(guest, command, args, timeoutSeconds);
const sh = (script: string, rest: Record<string, unknown> = {}, timeoutSeconds = 120) =>
  run('guest-exec', { path: '/bin/sh', arg: ['-c', script], ...rest }, timeoutSeconds);

describe('programs', () => {
  test('the example of the specification: path and arg; exitcode, out-data, exited', async () => {
    expect(await run('guest-exec', { path: '/bin/echo', arg: ['a b', "it's", '$HOME', '*', ''] })).toEqual({
      exitcode: 0,
      'out-data': "a b it's $HOME * \n",
      exited: true,
    });
  });

  test('exit code, signal, both streams, standard input, environment', async () => {
    expect(await sh('echo out; echo err >&2; exit 200')).toEqual({
      exitcode: 200,
      'out-data': 'out\n',
      'err-data': 'err\n',
      exited: true,
    });
    expect(await sh('kill -9 $$')).toEqual({
      exitcode: 137,
      signal: 9,
      'out-data': '',
      exited: true,
    });
    expect(await sh('cat', { 'input-data': base64('from outside') })).toMatchObject({
      'out-data': 'from outside',
    });
    expect(await sh('echo $A', { env: ['A=b c'] })).toMatchObject({ 'out-data': 'b c\n' });
    expect(await run('guest-exec', { path: '/none' })).toMatchObject({ exitcode: 127, exited: true });
    expect(await sh("printf '\\377\\000'")).toMatchObject({ 'out-data': '/wA=', 'out-encoding': 'base64' });
  });

  test('each way to capture', async () => {
    const script = 'echo out; echo err >&2';
    const captured = async (how: unknown) => {
      const { 'out-data': out, 'err-data': err } = (await sh(script, { 'capture-output': how })) as Record<
        string,
        string
      >;
      return [out, err];
    };
    expect(await captured(false)).toEqual(['', undefined]);
    expect(await captured('stdout')).toEqual(['out\n', undefined]);
    expect(await captured('stderr')).toEqual(['', 'err\n']);
    expect(await captured('merged')).toEqual(['out\nerr\n', undefined]);
  });

  test('an output of any size is cut, and the agent lives', async () => {
    const reply = (await sh('yes | head -c 17000000; head -c 2000000 /dev/zero >&2; exit 5')) as Record<
      string,
      unknown
    >;
    expect(reply).toMatchObject({
      exitcode: 5,
      'out-truncated': true,
      'err-truncated': true,
      'err-encoding': 'base64',
    });
    expect((reply['out-data'] as string).length).toBe(1_000_000);
    expect(await run('guest-ping')).toEqual({});
  });

  test('one that takes longer is asked about any number of times', async () => {
    const started = (await sh('echo begun; while [ ! -e /tmp/go ]; do sleep 0.2; done; exit 3', {}, 1)) as {
      pid: number;
    };
    expect(started).toEqual({ pid: expect.any(Number), exited: false });
    const status = () => run('guest-exec-status', { pid: started.pid }) as Promise<{ exited: boolean }>;
    expect(await status()).toEqual({ exited: false });
    await sh('touch /tmp/go');
    const ended = await waitFor(
      'the end of the program',
      async () => {
        const now = await status();
        return now.exited ? now : undefined;
      },
      120_000,
      100,
    );
    expect(ended).toEqual({ exitcode: 3, 'out-data': 'begun\n', exited: true });
    expect(await status()).toEqual(ended);
    expect(await status()).toEqual(ended);
    await expect(run('guest-exec-status', { pid: 999_999 })).rejects.toEqual(
      failure('guest_process_unknown'),
    );
  });

  test('while one runs, other commands are answered', async () => {
    const running = sh('while [ ! -e /tmp/free ]; do sleep 0.2; done; echo freed');
    expect(await run('guest-ping')).toEqual({});
    await sh('touch /tmp/free');
    expect(await running).toMatchObject({ 'out-data': 'freed\n' });
  });
});

describe('files', () => {
  test('are written, flushed, sought, read and closed', async () => {
    const handle = await run('guest-file-open', { path: '/tmp/file', mode: 'w+' });
    const text = 'x'.repeat(300_000);
    expect(await run('guest-file-write', { handle, 'buf-b64': base64(text) })).toEqual({
      count: 300_000,
      eof: false,
    });
    expect(await run('guest-file-flush', { handle })).toEqual({});
    expect(await run('guest-file-seek', { handle, offset: 299_998, whence: 'set' })).toMatchObject({
      position: 299_998,
    });
    expect(await run('guest-file-read', { handle, count: 10 })).toMatchObject({
      count: 2,
      'buf-b64': base64('xx'),
      eof: true,
    });
    expect(await run('guest-file-close', { handle })).toEqual({});
    await expect(run('guest-file-read', { handle })).rejects.toEqual(failure('guest_agent_failed'));
    expect(await sh('wc -c < /tmp/file')).toMatchObject({ 'out-data': '300000\n' });
  });

  test('too large a piece is refused before it is asked for', async () => {
    await expect(run('guest-file-read', { handle: 1, count: 50_000_000 })).rejects.toMatchObject({
      msgKey: 'guest_argument_invalid',
      params: { field: 'count', command: 'guest-file-read' },
    });
  });

  test('an abandoned one is closed in the guest, by the next agent too', async () => {
    const handle = (await run('guest-file-open', { path: '/tmp/left', mode: 'w' })) as number;
    const heir = lab.newGuests();
    await heir.closeAbandoned(Date.now() + 3_600_000);
    await expect(run('guest-file-read', { handle })).rejects.toThrow(/has not been found/);
    heir.stop();
  });
});
