import { expect, test } from '@jest/globals';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { TaskRow } from '../../store/schema.ts';
import { finishedRow, type TaskOutcome, taskEvent } from './outcome.ts';
import { NO_DETAIL } from './record.ts';

const RUNNING = {
  id: 't',
  verbose_name: 'Backup of web',
  username: 'ann',
  status: 'IN_PROGRESS',
  progress: 40,
  detail_json: JSON.stringify({ ...NO_DETAIL, phase: 'copy', rate: 5, message: 'disk 2 of 3' }),
} as TaskRow;
const WARNING = 'The guest could not be quiesced.';

test.each<[TaskOutcome, object]>([
  [{ status: 'SUCCESS' }, { type: 'info', message: 'Backup of web succeeded', detailMessage: '' }],
  [
    { status: 'SUCCESS', message: WARNING },
    { type: 'warning', detailMessage: WARNING },
  ],
  [
    { status: 'PARTIAL', message: WARNING },
    { type: 'warning', detailMessage: WARNING },
  ],
  [
    { status: 'CANCELED', message: WARNING },
    { type: 'warning', detailMessage: WARNING },
  ],
  [
    { status: 'FAILED', error: new VirtkeepError('overloaded'), message: 'o1 was left.' },
    { type: 'error', detailMessage: 'The service is overloaded. Try again shortly. o1 was left.' },
  ],
])('what ends so is told with what people should know beside it: %j', (outcome, event) => {
  expect(taskEvent(finishedRow(RUNNING, outcome), [])).toMatchObject(event);
});

test('what a task was about when it ended is no word on its end', () => {
  const { detail_json } = finishedRow(RUNNING, { status: 'SUCCESS' });
  expect(JSON.parse(detail_json)).toMatchObject({ phase: 'copy', rate: 0, message: '' });
});
