import { expect, test } from '@jest/globals';
import { definition, fileRow } from '../sample-files.ts';
import type { OpenPart } from './step.ts';
import { TrimStep } from './trim-step.ts';
import { VerifyStep } from './verify-step.ts';

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

test('a backup is compared once, also when the clock of its node is behind', async () => {
  const row = fileRow('f', 'f', 0);
  const step = new VerifyStep({ backupFiles: { find: async () => row } as never, fileActions: {} as never });
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
