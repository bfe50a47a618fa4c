import { expect, test } from '@jest/globals';
import { outcomeOfRun } from './run-outcome.ts';

const nothing = { parts: [], missing: [], canceled: false };

test('a backup of nothing has failed, so that somebody hears of the tag that no VM bears any more', () => {
  expect(outcomeOfRun({ action: 'backup', verbose_name: 'nightly' }, nothing)).toMatchObject({
    status: 'FAILED',
    error: { msgKey: 'nothing_selected' },
  });
});

test('nothing to verify is well', () => {
  expect(outcomeOfRun({ action: 'verify', verbose_name: 'weekly' }, nothing).status).toBe('SUCCESS');
});
