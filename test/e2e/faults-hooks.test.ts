// Hooks of a real agent: a backup that is refused, and what they are told when the agent is killed, also while one of them runs.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals';
import { OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { Guest } from '../lab/guest.ts';
import { waitFor } from '../lab/run.ts';
import { AgentAlone, fileOf, INTERRUPTED, type Picture } from './agent-alone.ts';

let alone: AgentAlone;
let guest: Guest;
let before: Picture;

const HOOK = mkdtempSync(join(tmpdir(), 'virtkeep-hook-'));
const at = (name: string) => join(HOOK, name);
/** Notes what it is told; what it does then says a file of the phase's name. */
const SCRIPT = `#!/bin/sh
dir=$(dirname "$0")
echo "$VIRTKEEP_PHASE $VIRTKEEP_OUTCOME $VIRTKEEP_ERROR_KEY $VIRTKEEP_VM_NAME $VIRTKEEP_FILE" >> "$dir/told"
test -e "$dir/$1" && . "$dir/$1"
exit 0
`;

beforeAll(async () => {
  writeFileSync(at('hook'), SCRIPT, { mode: 0o755 });
  alone = await AgentAlone.start({ hooks: { backup: { command: [at('hook')], timeout_seconds: 60 } } });
  guest = await alone.world.defineTiny({ idle: true });
  before = await alone.picture(guest);
});
afterAll(async () => {
  await alone?.stop();
  rmSync(HOOK, { recursive: true, force: true });
});
beforeEach(() => {
  for (const name of ['told', 'backup-start', 'backup-end', 'backup-abort', 'pid'])
    rmSync(at(name), { force: true });
});

const told = () =>
  existsSync(at('told'))
    ? readFileSync(at('told'), 'utf8')
        .trim()
        .split('\n')
        .map(line => line.replaceAll(/ +/g, ' ').trim())
    : [];
const does = (phase: string, script: string) => writeFileSync(at(phase), script);

/** A backup to its end; its file goes again. */
async function backUp(request: object = {}) {
  const operation = await alone.ended(await alone.startBackup(guest, request));
  return operation;
}

test('before and after a backup', async () => {
  await alone.arm('');
  const operation = await backUp();
  expect(operation.state).toBe(OperationState.SUCCEEDED);
  const { path } = fileOf(operation);
  expect(told()).toEqual([`backup-start ${guest.name}`, `backup-end success ${guest.name} ${path}`]);
  rmSync(path);
});

test('one that fails before refuses the backup, and nothing was done', async () => {
  does('backup-start', 'echo the database is busy >&2; exit 1');
  const { error } = await backUp();
  expect(error).toMatchObject({
    msgKey: 'hook_failed',
    detail: expect.stringContaining('the database is busy'),
  });
  expect(told()).toEqual([`backup-start ${guest.name}`, `backup-abort failed hook_failed ${guest.name}`]);
  expect(await alone.picture(guest)).toEqual(before);
});

test('one that fails afterwards is a warning', async () => {
  does('backup-end', 'exit 7');
  const operation = await backUp();
  expect(operation.state).toBe(OperationState.SUCCEEDED);
  expect(operation.warnings.join()).toContain('The hook backup-end failed: exit code 7');
  rmSync(fileOf(operation).path);
});

test('a backup that fails or is cancelled', async () => {
  await alone.arm('backup.copy.before=fail');
  await backUp();
  expect(told().at(-1)).toMatch(/^backup-abort failed \w+ /);
  rmSync(at('told'));
  const operation = await alone.canceledAt('backup.copy.before', () => alone.startBackup(guest));
  expect(operation.state).toBe(OperationState.CANCELED);
  expect(told().at(-1)).toBe(`backup-abort canceled canceled ${guest.name}`);
  expect(await alone.picture(guest)).toEqual(before);
});

test('the agent is killed while the hook runs: it ends, and the next agent tells', async () => {
  does('backup-start', `echo $$ > ${at('pid')}; exec sleep 1000`);
  await alone.arm('');
  const id = await alone.startBackup(guest);
  const pid = await waitFor(
    'the hook',
    () => existsSync(at('pid')) && readFileSync(at('pid'), 'utf8').trim(),
    120_000,
  );
  await alone.agent.daemon.kill();
  await waitFor('the end of the hook', () => !existsSync(`/proc/${pid}`), 120_000);
  expect(told()).toEqual([`backup-start ${guest.name}`]);
  await alone.up();
  expect(await alone.ended(id)).toMatchObject(INTERRUPTED);
  expect(told().slice(1)).toEqual([`backup-abort failed interrupted ${guest.name}`]);
  expect(await alone.picture(guest)).toEqual(before);
});

test.each(['hook.before', 'hook.after', 'copy.before', 'publish.after'])(
  'the agent is killed at %s',
  async moment => {
    expect(await alone.killedAt(`backup.${moment}`, () => alone.startBackup(guest))).toMatchObject(
      INTERRUPTED,
    );
    expect(told().at(-1)).toBe(`backup-abort failed interrupted ${guest.name}`);
    expect(await alone.picture(guest)).toEqual(before);
  },
);

test('the agent is killed behind the commit: the next one tells of the success', async () => {
  const operation = await alone.killedAt('backup.merge.before', () =>
    alone.startBackup(guest, { canBeIncremental: true }),
  );
  expect(operation.state).toBe(OperationState.SUCCEEDED);
  expect(told().at(-1)).toBe(`backup-end success ${guest.name} ${fileOf(operation).path}`);
});
