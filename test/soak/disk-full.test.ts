/**
 * Every place that is written to, full to the last byte at every step of every workflow that changes disks or archives.
 * VIRTKEEP_FULL_STORY, VIRTKEEP_FULL_PLACE, VIRTKEEP_FULL_MOMENT and VIRTKEEP_FULL_ENDING choose cells.
 */
import { afterAll, beforeAll, describe, test } from '@jest/globals';
import { ENDINGS, FullPlaces, PLACE_NAMES, type Story } from '../full/places.ts';
import { expectNamed, STORIES } from '../full/stories.ts';

function chosen<T extends string>(name: string, all: readonly T[]): T[] {
  const wish = process.env[name];
  return all.filter(value => !wish || wish.split(',').includes(value));
}
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

  const cells = chosen('VIRTKEEP_FULL_PLACE', PLACE_NAMES).flatMap(place =>
    chosen('VIRTKEEP_FULL_MOMENT', STORIES[key].moments).flatMap(moment =>
      chosen('VIRTKEEP_FULL_ENDING', ENDINGS).map(ending => ({ place, moment, ending })),
    ),
  );
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
