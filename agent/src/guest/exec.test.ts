import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, test } from '@jest/globals';
import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { untilExited } from './exec.ts';
import { execCommand, replyOf } from './exec-command.ts';
import { ExecTable } from './exec-table.ts';
import { type ProgramStatus, statusOf } from './programs.ts';

const signal = new AbortController().signal;
const base64 = (text: string | Buffer) => Buffer.from(text).toString('base64');
const END = { exited: true, exitcode: 1, 'out-data': base64('o') };
const CAPTURED = { capturedBytes: 10, isDropped: false };

/** A domain whose agent answers guest-exec-status with these, one after the other. */
function guestOf(answers: (object | Error)[], uuid: string): { domain: Domain; asked: number[] } {
  const asked: number[] = [];
  const domain = {
    uuid,
    name: 'vm',
    agentCommand: async (request: string) => {
      asked.push((JSON.parse(request) as { arguments: { pid: number } }).arguments.pid);
      const answer = answers.shift();
      if (answer instanceof Error) throw answer;
      return JSON.stringify({ return: answer });
    },
  };
  return { domain: domain as unknown as Domain, asked };
}

describe('the answer of guest-exec-status', () => {
  test('is decoded, and cut at its limit', () => {
    const status = statusOf(
      { exited: true, exitcode: 3, 'out-data': base64('0123456789A'), 'err-data': base64('e') },
      CAPTURED,
    );
    expect(status).toMatchObject({ exited: true, exitCode: 3, outTruncated: true, errTruncated: false });
    expect(status.out.toString()).toBe('0123456789');
    expect(status.err.toString()).toBe('e');
  });

  test.each([[null], ['text'], [{}], [{ exited: 'yes', exitcode: '0', 'out-data': 5 }]])(
    '%j is no end',
    answer => {
      expect(statusOf(answer, CAPTURED)).toMatchObject({ exited: false, out: Buffer.alloc(0) });
    },
  );
});

describe('the reply', () => {
  const ended = (out: Buffer, outTruncated = false): ProgramStatus => ({
    exited: true, exitCode: 0, out, err: Buffer.alloc(0), outTruncated, errTruncated: false,
  }); // biome-ignore format: one record

  test('is that of the specification', () => {
    expect(replyOf(ended(Buffer.from('grün\n')))).toEqual({
      exitcode: 0,
      'out-data': 'grün\n',
      exited: true,
    });
  });

  test('has what is not text in base64', () => {
    for (const bytes of [Buffer.from([0xff]), Buffer.from('a\0b')])
      expect(replyOf(ended(bytes))).toMatchObject({ 'out-data': base64(bytes), 'out-encoding': 'base64' });
  });

  test('leaves out the half of a character at a cut, and nowhere else', () => {
    const bytes = Buffer.from('aüü').subarray(0, 4);
    expect(replyOf(ended(bytes, true))).toMatchObject({ 'out-data': 'aü', 'out-truncated': true });
    expect(replyOf(ended(bytes))).toMatchObject({ 'out-encoding': 'base64' });
    expect(replyOf(ended(Buffer.from('a€'), true))).toMatchObject({ 'out-data': 'a€' });
    expect(replyOf(ended(Buffer.from('a😀').subarray(0, 4), true))).toMatchObject({ 'out-data': 'a' });
  });

  test.each([
    [{ signal: 9 }, { exitcode: 137, signal: 9 }],
    // of Windows: the code of an exception
    [{ signal: 0xc0000005 }, { exitcode: 0xc0000005, signal: 0xc0000005 }],
    [{ exitCode: 3 }, { exitcode: 3 }],
    [{}, { exitcode: -1 }],
  ])('of %j has an exit code in any case', (how, told) => {
    const { exitCode: _, ...rest } = ended(Buffer.alloc(0));
    expect(replyOf({ ...rest, ...how })).toEqual({ ...told, 'out-data': '', exited: true });
  });
});

test('the time for a program begins when it was started, not when it was asked for', async () => {
  let startedMs = 0;
  const domain = {
    uuid: 'vm',
    name: 'vm',
    agentCommand: async (request: string) => {
      const { execute } = JSON.parse(request) as { execute: string };
      if (execute === 'guest-get-osinfo') await sleep(150);
      if (execute === 'guest-exec') startedMs = performance.now();
      const isOver = performance.now() - startedMs > 100;
      if (execute === 'guest-exec-status')
        return JSON.stringify({ return: isOver ? END : { exited: false } });
      return JSON.stringify({ return: { pid: 7 } });
    },
  } as unknown as Domain;
  const reply = await execCommand(new ExecTable(), domain, { path: 'sleep' }, { timeoutMs: 140, signal });
  expect(reply).toEqual({ exitcode: 1, 'out-data': 'o', exited: true });
});

test('a program that was started is told of, also when the guest is heard of no more: who is told of a failure starts it again', async () => {
  const domain = {
    uuid: 'vm',
    name: 'vm',
    agentCommand: async (request: string) => {
      const { execute } = JSON.parse(request) as { execute: string };
      if (execute === 'guest-exec-status') throw new Error('the guest is off');
      return JSON.stringify({ return: { pid: 7 } });
    },
  } as unknown as Domain;
  const run = (cancel: AbortSignal) =>
    execCommand(new ExecTable(), domain, { path: 'reboot' }, { timeoutMs: 60_000, signal: cancel });
  expect(await run(signal)).toEqual({ pid: 7, exited: false });
  await expect(run(AbortSignal.abort())).rejects.toMatchObject({ msgKey: 'canceled' });
});

describe('what is kept of programs', () => {
  const ID = '11111111-2222-4333-8444-555555555555';
  const program = (pid: number) => ({ pid, ...CAPTURED });
  test('the end, which the agent tells once, for ten minutes', async () => {
    let nowMs = 0;
    const table = new ExecTable(() => nowMs);
    const { domain, asked } = guestOf([{ exited: false }, END], ID);
    table.add(ID, program(5));
    expect((await table.status(domain, 5, signal)).exited).toBe(false);
    nowMs = 1_000_000;
    for (let count = 0; count < 3; count += 1) {
      nowMs += 299_000;
      if (count < 2)
        expect(await table.status(domain, 5, signal)).toMatchObject({ exited: true, exitCode: 1 });
    }
    expect(asked).toEqual([5, 5]);
    nowMs += 10_000;
    await expect(table.status(domain, 5, signal)).rejects.toMatchObject({ msgKey: 'guest_process_unknown' });
  });

  test('two who ask at once get the one answer; one who leaves does not lose it', async () => {
    const table = new ExecTable(() => 0);
    const { domain, asked } = guestOf([END], ID);
    table.add(ID, program(5));
    const leaving = new AbortController();
    const [first, second] = [table.status(domain, 5, leaving.signal), table.status(domain, 5, signal)];
    leaving.abort();
    await expect(first).rejects.toMatchObject({ msgKey: 'canceled' });
    expect((await second).exited).toBe(true);
    expect((await table.status(domain, 5, signal)).exited).toBe(true);
    expect(asked).toEqual([5]);
  });

  test('a number that the guest uses again is another program', async () => {
    const table = new ExecTable(() => 0);
    const { domain } = guestOf([END, { exited: false }], ID);
    table.add(ID, program(5));
    await table.status(domain, 5, signal);
    table.add(ID, program(5));
    expect((await table.status(domain, 5, signal)).exited).toBe(false);
  });

  test('programs of others are not asked about: nobody bounded what they say', async () => {
    const { domain, asked } = guestOf([], ID);
    await expect(new ExecTable().status(domain, 5, signal)).rejects.toMatchObject({
      msgKey: 'guest_process_unknown',
    });
    expect(asked).toEqual([]);
  });
});

describe('waiting for the end', () => {
  const running = { exited: false } as ProgramStatus;
  const ended = { exited: true } as ProgramStatus;
  const failing =
    (...outcomes: (ProgramStatus | 'guest_frozen' | 'guest_agent_silent' | 'guest_agent_disconnected')[]) =>
    async () => {
      const outcome = outcomes.length > 1 ? outcomes.shift()! : outcomes[0]!;
      if (typeof outcome === 'string') throw new VirtkeepError(outcome);
      return outcome;
    };

  test('goes on over what passes', async () => {
    const ask = failing(running, 'guest_frozen', 'guest_agent_silent', ended);
    expect(await untilExited(ask, 60_000, signal)).toBe(ended);
  });

  test('ends with its time, with the program still running', async () => {
    expect(await untilExited(failing(running), 0, signal)).toBe(running);
    expect(await untilExited(failing('guest_frozen'), 0, signal)).toMatchObject({ exited: false });
  });

  test('ends with what does not pass', async () => {
    await expect(untilExited(failing('guest_agent_disconnected'), 60_000, signal)).rejects.toMatchObject({
      msgKey: 'guest_agent_disconnected',
    });
    await expect(untilExited(failing('guest_agent_silent'), 0, signal)).rejects.toMatchObject({
      msgKey: 'guest_agent_silent',
    });
    const aborted = AbortSignal.abort();
    await expect(untilExited(failing(running), 60_000, aborted)).rejects.toMatchObject({
      msgKey: 'canceled',
    });
  });
});
