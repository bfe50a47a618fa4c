import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { STORIES } from './stories.ts';
import { play } from './undo-model.ts';

/** How many histories each workflow is put through; `make soak` asks for more. A seed alone makes one of them again. */
const HISTORIES = Number(process.env.VIRTKEEP_UNDO_HISTORIES ?? 5);
const FIRST_SEED = Number(process.env.VIRTKEEP_UNDO_SEED ?? 1);

/** The pauses between two tries are not waited for. */
const PAUSE_MS = 3_000;
const { setTimeout: patient } = globalThis;
beforeAll(() => {
  globalThis.setTimeout = ((work: () => void, delayMs = 0, ...rest: []) =>
    patient(work, delayMs <= PAUSE_MS ? 0 : delayMs, ...rest)) as typeof setTimeout;
});
afterAll(() => {
  globalThis.setTimeout = patient;
});

describe.each(Object.keys(STORIES))('%s', name => {
  test(`${HISTORIES} histories from seed ${FIRST_SEED} on`, async () => {
    for (let seed = FIRST_SEED; seed < FIRST_SEED + HISTORIES; seed += 1) {
      const log: string[] = [];
      await play(STORIES[name]!, seed, log).catch((error: Error) => {
        error.message = `VIRTKEEP_UNDO_SEED=${seed}: ${error.message}\n${log.join('\n')}`;
        throw error;
      });
    }
    expect(HISTORIES).toBeGreaterThan(0);
  });
});
