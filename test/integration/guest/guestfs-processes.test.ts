/** What runs libguestfs's programs, with others in their place: nothing of them outlives the agent, whatever ends it. */
import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { createLogger } from '@virtkeep/shared/log';
import { runGuestfs } from '../../../agent/src/workflows/guest/guestfs.ts';
import { NODE_BIN, ROOT } from '../../lab/paths.ts';
import { listProcesses } from '../../lab/processes.ts';
import { waitFor } from '../../lab/run.ts';

let dir: string;
/** Nobody else sleeps so long. */
let nap: string;
let naps = 0;
let left: string;

beforeEach(() => {
  dir = mkdtempSync('/var/tmp/virtkeep-guestfs-');
  naps += 1;
  nap = `${100_000 + naps}.${process.pid}`;
  left = `/tmp/virtkeep-left-${nap}`;
});
afterEach(() => {
  rmSync(dir, { recursive: true, force: true });
  rmSync(left, { force: true });
});

const sleepers = () => listProcesses().filter(({ command }) => command === `sleep ${nap}`);
/** Like libguestfs: a process in its group, one in a session of its own, and a file in /tmp. */
const script = () => `echo x > ${left}; sleep ${nap} & setsid sleep ${nap} & sleep ${nap}`;
const allSleep = () =>
  waitFor('the processes', () => existsSync(left) || sleepers().length === 3, 60_000).then(() =>
    waitFor('the processes', () => sleepers().length === 3, 60_000),
  );

const warnings: string[] = [];
const log = Object.assign(createLogger('test', 'error'), { warn: (text: string) => warnings.push(text) });
const optionsWith = (signal: AbortSignal, forceTcg = true) => ({
  domain: 'vm',
  signal,
  forceTcg,
  log: log as never,
});

describe('nothing is left', () => {
  test('by a program that is cancelled', async () => {
    const canceler = new AbortController();
    const ended = runGuestfs('sh', ['-c', script()], optionsWith(canceler.signal)).catch(error => error);
    await allSleep();
    canceler.abort(new VirtkeepError('canceled'));
    expect((await ended).msgKey).toBe('canceled');
    expect([sleepers(), existsSync(left)]).toEqual([[], false]);
  });

  test('by a program that ends before its children', async () => {
    const work = `echo x > ${left}; setsid sleep ${nap} >/dev/null 2>&1 & echo done`;
    expect(await runGuestfs('sh', ['-c', work], optionsWith(new AbortController().signal))).toBe('done\n');
    await waitFor('their end', () => sleepers().length === 0, 60_000);
    expect(existsSync(left)).toBe(false);
  });

  test('by an agent that is killed', async () => {
    const agent = startAgent();
    try {
      await allSleep();
    } finally {
      agent.kill('SIGKILL');
    }
    await waitFor('their end', () => sleepers().length === 0, 60_000);
    expect(existsSync(left)).toBe(false);
  });
});

/** A process that does as the agent does. */
function startAgent(): ChildProcess {
  const module = JSON.stringify(join(ROOT, 'agent/src/workflows/guest/guestfs.ts'));
  const options = `{ domain: 'vm', signal: new AbortController().signal, forceTcg: true, log: console }`;
  const text = `import { runGuestfs } from ${module};
await runGuestfs('sh', ['-c', ${JSON.stringify(script())}], ${options});`;
  return spawn(NODE_BIN, ['--input-type=module', '-e', text], { stdio: 'ignore', cwd: ROOT });
}

describe('what is answered', () => {
  const program = (text: string) => {
    const path = join(dir, 'program');
    writeFileSync(path, `#!/bin/sh\n${text}\n`);
    chmodSync(path, 0o700);
    return path;
  };
  const run = (path: string, args: string[] = [], forceTcg = true) =>
    runGuestfs(path, args, optionsWith(new AbortController().signal, forceTcg));

  test('is the output, with arguments as they are', async () => {
    const args = ['a b', '$HOME', '', "'"];
    expect(await run(program(`printf '<%s>' "$@"; ls ${dir}`), args)).toBe("<a b><$HOME><><'>program\n");
  });

  test('is that of a program in /tmp too', async () => {
    writeFileSync(left, 'text');
    expect(await run('cat', [left])).toBe('text');
  });

  test('of a failure is what the program said', async () => {
    const failed = run(program('echo "virt-customize: error: no root device found" >&2; exit 3'));
    await expect(failed).rejects.toMatchObject({
      msgKey: 'guestfs_failed',
      params: { reason: 'no root device found' },
    });
    await expect(run('there-is-no-such-program')).rejects.toMatchObject({
      params: { reason: expect.stringContaining('not installed') },
    });
  });

  test('where KVM does not work comes under emulation, which is kept', async () => {
    const path = program(`echo x >> ${dir}/runs
[ "$LIBGUESTFS_BACKEND_SETTINGS" = force_tcg ] && exec echo emulated
echo "virt-customize: error: libguestfs error: guestfs_launch failed, see earlier error messages" >&2
exit 1`);
    expect(await run(path, [], false)).toBe('emulated\n');
    expect(await run(path, [], false)).toBe('emulated\n');
    expect(warnings).toEqual([expect.stringContaining('does not start under KVM')]);
    expect(readdirSync(dir).sort()).toEqual(['program', 'runs']);
  });
});
