import { describe, expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { BackupChoices } from '../definition.ts';
import { definition, fileRow } from '../sample-files.ts';
import { BackupStep } from './backup-step.ts';
import { BY_LIMIT, StatesStep } from './states-step.ts';
import type { EndedTask, OpenPart } from './step.ts';
import { TrimStep } from './trim-step.ts';
import { VerifyStep } from './verify-step.ts';

test.each([
  { made: 'a new archive', mode: 'full', extend_id: null, states: 1, bytes: 700 },
  { made: 'an increment', mode: 'increment', extend_id: 'f', states: 2, bytes: 200 },
  { made: 'a new archive instead of an increment', mode: 'increment', extend_id: 'f', states: 1, bytes: 700 },
])('$made took what it wrote to its pool, whatever the last phase of the work was', async example => {
  const { mode, extend_id, states, bytes } = example;
  let file = fileRow('f', 'f', 0, { size: 500, states: 1 });
  const step = new BackupStep({
    backupFiles: { find: async () => file },
  } as never);
  const part = {
    row: { entity_id: 'vm', mode, extend_id },
    run: { scheduled_task_id: 'task' },
    definition: definition({}),
  } as unknown as OpenPart;
  const { subject } = await step.plan(part);
  file = fileRow('f', 'f', 0, { size: 700, states });
  const detail_json = JSON.stringify({ phase: 'merge', bytes_done: 0 });
  const state = { row: { detail_json }, entities: [{ id: 'f', class: 'file' }] };
  const task = { status: 'SUCCESS', state, error: null } as unknown as EndedTask;
  const end = await step.ended({ ...part, row: { ...part.row, subject: subject! } }, task);
  expect(end).toMatchObject({ go: 'next', columns: { file_id: 'f', bytes } });
});

test.each([
  { extend_id: null, newArchive: true },
  { extend_id: 'f', newArchive: false },
])(
  'an increment that was decided to extend $extend_id extends nothing else that is there by now',
  async example => {
    expect(await begun({ mode: 'increment', ...example }, { increment: true })).toMatchObject({
      newArchive: example.newArchive,
    });
  },
);

/** What a task that has made the archives `f`, `g` and `h` of the VM asks of its backup, beside the options of users. */
async function begun(row: object, options: BackupChoices): Promise<unknown> {
  const asked: unknown[] = [];
  const step = new BackupStep({
    backups: { backup: async (...request: unknown[]) => void asked.push(request.at(-1)) },
    backupFiles: { find: async (id: string) => fileRow(id, id.charAt(0), 0) },
    archivesOf: async () => new Set(['f', 'g', 'h']),
    nodeName: () => 'n1',
  } as never);
  const part = {
    row: { entity_id: 'vm', entity_name: 'vm', ...row },
    run: { scheduled_task_id: 'task', due_time: null, created: '2026-03-01T02:00:00.000Z' },
    definition: { ...definition({}), options },
  } as unknown as OpenPart;
  await step.begin(part, { id: 'u', username: 'u' }, 't');
  return asked[0];
}

test.each<[string, object, BackupChoices, string[]]>([
  ['a new one', { mode: 'full', extend_id: null }, { increment: true }, ['f', 'g', 'h']],
  [
    'a new one that only others extend',
    { mode: 'full', extend_id: null },
    { can_be_incremental: true },
    ['f', 'g', 'h'],
  ],
  [
    'the one that it extends, a copy',
    { mode: 'increment', extend_id: 'g-copy' },
    { increment: true },
    ['f', 'h'],
  ],
  [
    'none when it extends what somebody else made',
    { mode: 'increment', extend_id: 'x' },
    { increment: true },
    [],
  ],
  [
    'a new one, as the one that the task names is extended again',
    { mode: 'full', extend_id: null },
    { backup: 'h' },
    ['f', 'g'],
  ],
  [
    'none while states are held',
    { mode: 'full', extend_id: null },
    { increment: true, hold_states: true },
    [],
  ],
])('a run leaves the archives that its task made for %s', async (_for, row, options, leaves) => {
  expect(await begun(row, options)).toMatchObject({ leaves });
});

describe('a backup that its node says has not the space', () => {
  const step = new BackupStep({ poolName: () => 'bulk' } as never);
  const refused = (estimate: number, free_space_cleanup: boolean, pool = 'bulk') => {
    const row = { mode: 'increment', extend_id: 'f', estimate };
    const part = { row, definition: definition({ free_space_cleanup }) } as unknown as OpenPart;
    const error = new VirtkeepError('pool_no_space', { pool, free_bytes: 0, needed_bytes: 300 });
    return step.ended(part, { status: 'FAILED', state: null, error });
  };

  test('has room made for as much as the node says, when that is more than was thought', async () => {
    expect(await refused(100, true)).toEqual({
      go: 'again',
      columns: { step: 'space', subject: null, estimate: 300 },
    });
  });

  test('has failed when room was made for that already, the task makes none, or another place is full', async () => {
    expect(await refused(300, true)).toMatchObject({ go: 'fail' });
    expect(await refused(100, false)).toMatchObject({ go: 'fail' });
    expect(await refused(100, true, '/var/lib/libvirt/qemu')).toMatchObject({ go: 'fail' });
  });
});

test('trimming takes no restore points out of an archive that the task did not make', async () => {
  const byHand = fileRow('by-hand', 'by-hand', 0, { states: 30 });
  const step = new TrimStep({
    backupFiles: { find: async () => byHand } as never,
    fileActions: {} as never,
    archivesOf: async taskId => new Set(taskId === 'own' ? ['by-hand'] : []),
  });
  const part = {
    row: { file_id: 'by-hand' },
    run: { scheduled_task_id: 'another' },
    definition: definition({ keep_states: 7, options: { increment: true } }),
  } as unknown as OpenPart;
  expect(await step.plan(part)).toBeNull();
  expect(await step.plan({ ...part, run: { scheduled_task_id: 'own' } } as never)).toEqual({});
});

test('a part whose old restore points were not taken out goes on, and keeps the error', async () => {
  const step = new TrimStep({} as never);
  const error = new VirtkeepError('internal', { request_id: 'r' });
  const end = await step.ended({} as never, { status: 'FAILED', state: null, error });
  expect(end).toEqual({
    go: 'next',
    columns: { error_json: expect.stringContaining('"msg_key":"internal"') },
    note: `Old restore points were not taken out: ${error.message}`,
  });
});

test('the limit counts increments, also where their restore points were taken out, and no states that people made', async () => {
  const byHand = { id: 'a', name: 'a', backupId: '', created: new Date() };
  let numbers: number[] = [];
  const file = () =>
    fileRow('f', 'f', 0, { record_json: JSON.stringify({ states: numbers.map(number => ({ number })) }) });
  const step = new StatesStep({
    inventory: { domains: { get: () => ({ domain: { savedStates: [byHand] } }) } },
    backupFiles: { find: async () => file() },
    archivesOf: async (taskId: string) => new Set(taskId === 'own' ? ['f'] : []),
  } as never);
  const limited = definition({ increment_limit: 3, keep_states: 2, options: { increment: true } });
  const reached: number[] = [];
  for (let run = 1; run <= 9; run += 1) {
    const mode = numbers.length === 0 ? 'full' : 'increment';
    numbers.push((numbers.at(-1) ?? 0) + 1);
    const row = { entity_id: 'vm', step: 'limit', mode, file_id: 'f', subject: null };
    const planOf = (task: string) =>
      step.plan({ row, run: { scheduled_task_id: task }, definition: limited } as unknown as OpenPart);
    expect(await planOf('one that extends what another made')).toBeNull();
    const isReached = (await planOf('own')) !== null;
    if (isReached) reached.push(run);
    numbers = isReached ? [] : numbers.slice(-limited.keep_states);
  }
  expect(reached).toEqual([4, 8]);
});

test('the limit deletes the states that there were when it was reached, and none that somebody saves meanwhile', async () => {
  const saved = (id: string) => ({ id, name: id, backupId: '', created: new Date() });
  let savedStates = [saved('a'), saved('b')];
  const removed: string[] = [];
  const step = new StatesStep({
    inventory: { domains: { get: () => ({ domain: { savedStates } }) } },
    snapshots: { remove: async (_domain: string, { id }: { id: string }) => void removed.push(id) },
  } as never);
  const part = {
    row: { entity_id: 'vm', step: 'clear', mode: BY_LIMIT, subject: null as string | null },
    definition: definition({ increment_limit: 1, options: { increment: true } }),
  } as unknown as OpenPart;
  for (let planned = await step.plan(part); planned !== null; planned = await step.plan(part)) {
    part.row.subject = planned.subject!;
    await step.begin(part, { id: 'u', username: 'u' }, 't');
    savedStates = [
      ...savedStates.filter(({ id }) => !removed.includes(id)),
      saved(`after ${removed.at(-1)}`),
    ];
  }
  expect(removed).toEqual(['a', 'b']);
});

test('a backup is compared once, also when the clock of its node is behind', async () => {
  const row = fileRow('f', 'f', 0);
  const step = new VerifyStep({ backupFiles: { find: async () => row } } as never);
  const part = {
    row: { file_id: 'f', started: '2026-03-01T02:00:00.000Z' },
    definition: definition({ options: { hash_sum: true } }),
  } as unknown as OpenPart;
  expect(await step.plan(part)).toEqual({ subject: 'f' });
  // the agent tells its own time, which is an hour behind
  const hash_sum = { algorithm: 'SHA-256', value: null, verified_at: '2026-03-01T01:10:00.000Z', ok: true };
  row.record_json = JSON.stringify({ ...JSON.parse(row.record_json), hash_sum });
  expect(await step.plan({ ...part, row: { ...part.row, subject: 'f' } })).toBeNull();
});

test('a comparison whose start was cut off is made, and none before it again', async () => {
  const files = ['new', 'old'].map((id, age) => fileRow(id, id, age));
  const step = new VerifyStep({
    backupFiles: { filesOf: async () => files },
    inventory: { isOrphaned: () => false },
  } as never);
  const row = { entity_id: 'vm', file_id: null, subject: 'new,old' as string | null };
  const part = {
    row,
    definition: definition({ action: 'verify', verify_scope: 'all' }),
  } as unknown as OpenPart;
  Object.assign(row, await step.unbegun(part));
  expect(row.subject).toBe('new');
  expect(await step.plan(part)).toEqual({ subject: 'new,old' });
  Object.assign(row, { subject: 'new' }, await step.unbegun(part));
  expect(await step.plan(part)).toEqual({ subject: 'new' });
});

test.each([
  ['all', ['p1'], 'there', ['there', 'older']],
  ['newest', ['p1'], 'there', ['there']],
  ['all', ['p1', 'p2'], 'lost', undefined],
])(
  'a comparison (%s) leaves out what lies in a pool that no node has, unless that is all',
  async (...row) => {
    const [verify_scope, orphaned, first, all] = row;
    const files = [
      fileRow('lost', 'lost', 0, { pool_id: 'p1' }),
      fileRow('there', 'there', 1, { pool_id: 'p2' }),
      fileRow('older', 'older', 2, { pool_id: 'p2' }),
    ];
    const step = new VerifyStep({
      backupFiles: { filesOf: async () => files },
      inventory: { isOrphaned: (id: string) => orphaned.includes(id) },
    } as never);
    const part = (subject: string | null) =>
      ({
        row: { entity_id: 'vm', subject },
        definition: definition({ action: 'verify', verify_scope: verify_scope as 'all' }),
      }) as unknown as OpenPart;
    const note = all && 'Left out, in pools that no node has any more: 1 of its backups';
    expect(await step.plan(part(null))).toEqual({ subject: first, note });
    if (all) expect(await step.plan(part(all.join()))).toBeNull();
  },
);
