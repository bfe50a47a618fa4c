import { expect, test } from '@jest/globals';
import { furtherDetail, NO_DETAIL, type TaskDetail } from './record.ts';

const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second));
const timeAt = (second: number) => at(second).toISOString();

/** After it told these, one a second. */
function after(...told: Partial<TaskDetail>[]): TaskDetail {
  return told.reduce<TaskDetail>((before, now, second) => furtherDetail(before, now, at(second)), NO_DETAIL);
}

test('a step is kept with when it was come to and what was said in it last', () => {
  const { steps, phase } = after(
    { phase: 'estimate' },
    { phase: 'copy', message: 'disk 1' },
    { phase: 'copy', bytes_done: 5 },
    { phase: 'copy', message: 'disk 2' },
    { phase: 'merge', message: '' },
  );
  expect(phase).toBe('merge');
  expect(steps).toEqual([
    { phase: 'estimate', message: '', since: timeAt(0) },
    { phase: 'copy', message: 'disk 2', since: timeAt(1) },
    { phase: 'merge', message: '', since: timeAt(4) },
  ]);
});

test('a step that is come to again is another one, and of very many the latest stay', () => {
  const phases = Array.from({ length: 50 }, (_, index) => ({ phase: index % 2 === 0 ? 'copy' : 'merge' }));
  const { steps } = after(...phases);
  expect(steps).toHaveLength(30);
  expect(steps.at(-1)).toEqual({ phase: 'merge', message: '', since: timeAt(49) });
});

test('a task of before steps were kept goes on, and one that has told nothing has none', () => {
  const { steps: _, ...before } = { ...NO_DETAIL, phase: 'copy', message: 'disk 1' };
  expect(furtherDetail(before, { bytes_done: 7 }, at(9)).steps).toEqual([
    { phase: 'copy', message: 'disk 1', since: timeAt(9) },
  ]);
  expect(furtherDetail({}, {}).steps).toEqual([]);
});
