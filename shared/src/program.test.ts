import { describe, expect, test } from '@jest/globals';
import { VirtkeepError } from './errors.ts';
import { failureOf, type ProgramOptions, runProgram } from './program.ts';

const failed = (reason: string) => new VirtkeepError('qemu_img_failed', { command: 'x', reason });
const options = (more: Partial<ProgramOptions> = {}): ProgramOptions => ({
  signal: new AbortController().signal,
  operation: 'a test',
  timeoutMs: 0,
  maxOutputBytes: 1000,
  failed,
  ...more,
});
const key = (msgKey: string) => expect.objectContaining({ msgKey });

describe('runProgram', () => {
  test('tells output, errors and how it ended; any exit code is an answer', async () => {
    const end = await runProgram(['sh', '-c', 'echo out; echo "  why" >&2; exit 3'], options());
    expect(end).toEqual({ code: 3, signalName: null, stdout: 'out\n', stderr: '  why\n' });
    expect(failureOf(end)).toBe('why');
    const killed = await runProgram(['sh', '-c', 'kill -9 $$'], options());
    expect([killed.code, failureOf(killed)]).toEqual([null, 'ended by SIGKILL']);
    expect(failureOf({ ...end, stderr: '' })).toBe('exit code 3');
  });

  test('output can be taken piece by piece, and is bounded otherwise', async () => {
    const pieces: Buffer[] = [];
    const printing = ['sh', '-c', 'yes | head -c 2000'];
    const end = await runProgram(printing, options({ onOutput: piece => pieces.push(piece) }));
    expect([end.stdout, Buffer.concat(pieces).length]).toEqual(['', 2000]);
    await expect(runProgram(printing, options())).rejects.toMatchObject({
      params: { reason: 'its output is too large' },
    });
  });

  test('what cannot be run is a failure with its reason', async () => {
    await expect(runProgram(['/no/such/program'], options())).rejects.toEqual(key('qemu_img_failed'));
  });

  test('abort and time-out end it, also when it holds on to its pipes or takes no TERM', async () => {
    const sleeping = ['sh', '-c', 'trap "" TERM; while :; do sleep 1; done'];
    await expect(runProgram(sleeping, options({ timeoutMs: 100 }))).rejects.toEqual(key('timed_out'));
    const stopper = new AbortController();
    setTimeout(() => stopper.abort(), 100);
    await expect(runProgram(['sleep', '600'], options({ signal: stopper.signal }))).rejects.toEqual(
      key('canceled'),
    );
    await expect(runProgram(['true'], options({ signal: stopper.signal }))).rejects.toEqual(key('canceled'));
  });

  test('the caller may say how it is ended', async () => {
    const stop = (child: { kill(signal: 'SIGKILL'): boolean }) => void child.kill('SIGKILL');
    await expect(runProgram(['sleep', '600'], options({ timeoutMs: 50, stop }))).rejects.toEqual(
      key('timed_out'),
    );
  });
});
