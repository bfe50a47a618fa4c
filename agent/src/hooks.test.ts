import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, jest, test } from '@jest/globals';
import type { Logger } from '@virtkeep/shared/log';
import { type BackupPhase, ProgramHooks, tellHook } from './hooks.ts';

const signal = new AbortController().signal;
let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'virtkeep-hooks-'));
});
afterAll(() => rmSync(directory, { recursive: true }));

const info = jest.fn<(text: string, more: Record<string, string>) => void>();
const log = { info } as unknown as Logger;
const warn = jest.fn();
beforeEach(() => {
  for (const mock of [info, warn]) mock.mockClear();
});

/** A hook that is this script. */
function hook(script: string, { timeoutMs = 60_000, args = [] as string[] } = {}): ProgramHooks {
  const path = join(directory, 'hook');
  writeFileSync(path, `#!/bin/sh\n${script}\n`, { mode: 0o755 });
  return new ProgramHooks({ command: [path, ...args], timeoutMs });
}

const run = (hooks: ProgramHooks, phase: BackupPhase = 'backup-start', facts = {}) =>
  hooks.run(phase, facts, { signal, log });
const said = () => info.mock.calls[0]?.[1];

test('is told the phase as its last argument and all else by its environment, which holds nothing more', async () => {
  process.env.NOT_FOR_HOOKS = '1';
  const out = join(directory, 'told');
  const hooks = hook(`env > ${out}; echo "$0: $*" >> ${out}`, { args: ['--one', 'a b; $(touch x)'] });
  await run(hooks, 'backup-end', { VM_NAME: 'web $(id)\n"', FILE: '/pool/backups/a.tar' });
  delete process.env.NOT_FOR_HOOKS;
  const text = readFileSync(out, 'utf8');
  expect(text).toContain('VIRTKEEP_PHASE=backup-end\n');
  expect(text).toContain('VIRTKEEP_VM_NAME=web $(id)\n"\n');
  expect(text).toContain('VIRTKEEP_FILE=/pool/backups/a.tar\n');
  expect(text).toContain(': --one a b; $(touch x) backup-end\n');
  const names = text.match(/^[A-Z_]+(?==)/gm)!.filter(name => !name.startsWith('VIRTKEEP_'));
  expect(names.filter(name => !['PATH', 'LC_ALL', 'PWD', 'SHLVL', '_', 'OLDPWD'].includes(name))).toEqual([]);
});

test.each([
  ['exit 3', /exit code 3/],
  ['echo the database is busy >&2; exit 1', /the database is busy/],
  ['kill -9 $$', /SIGKILL/],
])('that ends with "%s" has failed, and says why', async (script, reason) => {
  await expect(run(hook(script))).rejects.toMatchObject({
    msgKey: 'hook_failed',
    message: expect.stringMatching(reason),
  });
});

test('that is not there has failed', async () => {
  const hooks = new ProgramHooks({ command: [join(directory, 'nothing')], timeoutMs: 60_000 });
  await expect(run(hooks)).rejects.toMatchObject({ msgKey: 'hook_failed' });
});

function isAlive(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.startsWith('Z');
  } catch {
    return false; // reaped, perhaps while we look
  }
}

test('that hangs is killed with its children, also with those that do not listen', async () => {
  const pids = join(directory, 'pids');
  const script = `(trap '' TERM; exec sleep 1000) & echo $! > ${pids}; echo $$ >> ${pids}; wait; sleep 1000`;
  const hooks = hook(script, { timeoutMs: 3000 });
  await expect(run(hooks)).rejects.toMatchObject({
    msgKey: 'hook_failed',
    message: expect.stringContaining('did not end within 3 s and was killed'),
  });
  const begun = readFileSync(pids, 'utf8').trim().split('\n').map(Number);
  expect(begun).toHaveLength(2);
  // killed, and reaped by whoever is their parent by now
  while (begun.some(isAlive)) await new Promise(resolve => setImmediate(resolve));
});

test('is ended when the backup is cancelled', async () => {
  const stop = new AbortController();
  const running = hook('sleep 1000').run('backup-start', {}, { signal: stop.signal, log });
  stop.abort();
  await expect(running).rejects.toMatchObject({ msgKey: 'canceled' });
});

test('what it says goes into the log, bounded, and without what looks like a secret', async () => {
  await run(
    hook(
      'echo "password=hunter2 db_token: abc123"; echo "Authorization: Bearer xyz" >&2; head -c 1000000 /dev/zero | tr "\\0" x',
    ),
  );
  const { stdout, stderr } = said()!;
  expect(stdout!.length).toBeLessThanOrEqual(17_000);
  expect([stdout, stderr].join(' ')).not.toMatch(/hunter2|abc123|xyz/);
  expect(stdout).toContain('password=[redacted]');
});

test('a secret does not get into the log by what the end of the messages is cut to', async () => {
  // each length once puts its keyword before the cut, and its value behind it
  for (const after of [16 * 1024 - 20, 64 * 1024 - 20]) {
    info.mockClear();
    const filler = `head -c ${after} /dev/zero | tr "\\0" x >&2`;
    await run(
      hook(`echo "first" >&2; echo "password=correct-horse-42" >&2; ${filler}; echo >&2; echo last >&2`),
    );
    await run(hook(`printf "password=correct-horse-42 " >&2; ${filler}`));
    const { stderr } = said()!;
    expect(stderr).toContain('last');
    expect(JSON.stringify(info.mock.calls)).not.toMatch(/orse-42/);
  }
});

test('the reason of a failure is what it said last, by whole lines', async () => {
  const steps = 'for i in $(seq 1 40); do echo "step $i: all of it went as it should" >&2; done';
  const failing = run(hook(`${steps}; echo "ERROR: the database is read-only" >&2; exit 1`));
  await expect(failing).rejects.toMatchObject({
    params: { reason: expect.stringMatching(/^step \d+: all .*\nERROR: the database is read-only$/s) },
  });
});

test('what cannot be told is a warning, and is told later when the agent stops', async () => {
  const told = { phase: 'backup-abort' as const, facts: {} };
  await tellHook(hook('echo no >&2; exit 1'), told, { signal, log, warn });
  expect(warn).toHaveBeenCalledWith('The hook backup-abort failed: no.');
  await tellHook(undefined, told, { signal, log, warn });
  const stopping = AbortSignal.abort();
  await expect(tellHook(hook('true'), told, { signal: stopping, log, warn })).rejects.toThrow();
});
