import { expect, test } from '@jest/globals';
import { coming } from './calendar.ts';

const HOUR_MS = 3_600_000;
const FROM = Date.parse('2026-03-01T00:00:00Z');

function hourly(id: string, firstMs: number) {
  const start_date = new Date(firstMs).toISOString();
  const definition = { action: 'verify', periodicity: 'hourly', every: 1, time_zone: 'UTC', start_date };
  return {
    id,
    verbose_name: id,
    enabled: 1,
    next_run: start_date,
    definition_json: JSON.stringify({ ...definition, full_weekdays: [], options: {} }),
  } as never;
}

test('of too many the soonest of all tasks stay, not all of the first task', () => {
  const tasks = [hourly('a', FROM + HOUR_MS / 2), hourly('b', FROM)];
  const found = coming(tasks, { from: FROM, to: FROM + 100 * HOUR_MS }, 5);
  expect(found.map(({ scheduled_task: { id }, time }) => `${id} ${time.slice(11, 16)}`)).toEqual([
    ...['b 00:00', 'a 00:30', 'b 01:00', 'a 01:30', 'b 02:00'],
  ]);
  expect(coming(tasks, { from: FROM, to: FROM + 2 * HOUR_MS }, 5)).toHaveLength(4);
});
