import { afterAll, beforeAll } from '@jest/globals';

const PAUSE_MS = 3_000;

/** The pauses between two tries are not waited for in the tests of a file; longer times are as they are. */
export function skipPauses(): void {
  const { setTimeout: patient } = globalThis;
  beforeAll(() => {
    globalThis.setTimeout = ((work: () => void, delayMs = 0, ...rest: []) =>
      patient(work, delayMs <= PAUSE_MS ? 0 : delayMs, ...rest)) as typeof setTimeout;
  });
  afterAll(() => {
    globalThis.setTimeout = patient;
  });
}
