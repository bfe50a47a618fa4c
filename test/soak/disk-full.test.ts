/**
 * Every place that is written to, full to the last byte at every step of every workflow that changes disks or archives.
 * Each cell has one of the three endings, another one with each VIRTKEEP_FULL_SEED. VIRTKEEP_FULL_STORY, VIRTKEEP_FULL_PLACE,
 * VIRTKEEP_FULL_MOMENT and VIRTKEEP_FULL_ENDING choose cells and endings.
 */
import { afterAll, beforeAll, describe, test } from '@jest/globals';
import { ENDINGS, type Ending, FullPlaces, PLACE_NAMES, type Story } from '../full/places.ts';
import { expectNamed, STORIES } from '../full/stories.ts';

function chosen<T extends string>(name: string, all: readonly T[]): T[] {
  const wish = process.env[name];
  return all.filter(value => !wish || wish.split(',').includes(value));
}

function endingsOf(index: number): Ending[] {
  if (process.env.VIRTKEEP_FULL_ENDING) return chosen('VIRTKEEP_FULL_ENDING', ENDINGS);
  return [ENDINGS[(index + SEED) % ENDINGS.length]!];
}

const SEED = Number(process.env.VIRTKEEP_FULL_SEED ?? 1);
const stories = chosen('VIRTKEEP_FULL_STORY', Object.keys(STORIES) as (keyof typeof STORIES)[]);

describe.each(stories)('%s', key => {
  let full: FullPlaces;
  let story: Story;

  beforeAll(async () => {
    full = await FullPlaces.start();
    story = await STORIES[key].make(full);
  });
  afterAll(async () => {
    try {
      await story?.finish?.();
    } finally {
      await full?.stop();
    }
  });

  const places = chosen('VIRTKEEP_FULL_PLACE', PLACE_NAMES);
  const moments = chosen('VIRTKEEP_FULL_MOMENT', STORIES[key].moments);
  const cells = places
    .flatMap(place => moments.map(moment => ({ place, moment })))
    .flatMap((cell, index) => endingsOf(index).map(ending => ({ ...cell, ending })));
  test.each(cells)('$place full at $moment, $ending', async cell => {
    await story.prepare();
    const operation = await full.run(story, cell);
    if (process.env.VIRTKEEP_FULL_LOG)
      process.stderr.write(
        `${key} ${JSON.stringify(cell)}: ${operation.state} ${operation.error?.detail ?? ''} | ${operation.warnings.join(' | ')}\n`,
      );
    expectNamed(full, cell.place, operation);
    await story.check(operation);
  });
});
