import { expect, jest, test } from '@jest/globals';
import { ProgressMeter } from './progress.ts';

test('thousands of reports become four events a second, with the rate of the last seconds', () => {
  jest.useFakeTimers();
  try {
    let events = 0;
    let nowMs = 0;
    const meter = new ProgressMeter(
      () => events++,
      () => nowMs,
    );
    meter.begin('copy');
    expect(events).toBe(1);
    meter.total(1_000_000);
    for (let step = 1; step <= 1000; step++) {
      meter.done(step * 1000);
      nowMs += 1;
      jest.advanceTimersByTime(1);
    }
    expect(events).toBe(5);
    const { phase, bytesDone, bytesTotal, rate } = meter.snapshot();
    expect({ phase, bytesDone, bytesTotal }).toEqual({
      phase: 'copy',
      bytesDone: 1_000_000n,
      bytesTotal: 1_000_000n,
    });
    expect(Number(rate)).toBeGreaterThan(900_000);
    expect(Number(rate)).toBeLessThan(1_100_000);
    meter.done(5);
    meter.stop();
    jest.advanceTimersByTime(1000);
    expect(events).toBe(5);
    meter.begin('publish');
    expect(meter.snapshot()).toEqual({
      phase: 'publish',
      bytesDone: 0n,
      bytesTotal: 0n,
      rate: 0n,
      message: '',
    });
  } finally {
    jest.useRealTimers();
  }
});
