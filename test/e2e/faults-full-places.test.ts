// Some cells of the matrix of test/soak/disk-full.test.ts: a place that is written to is full at one moment of a revert or of a
// template's change. VIRTKEEP_FULL_SEED chooses others.
import { afterAll, beforeAll, expect, test } from '@jest/globals';
import { FullPlaces, type Story, shuffled } from '../full/places.ts';
import { expectNamed, STORIES } from '../full/stories.ts';

const SEED = Number(process.env.VIRTKEEP_FULL_SEED ?? 1);
const PLACES = ['pool', 'definitions', 'libvirt', 'nvram', 'swtpm', 'journal'] as const;
const CELLS = 2;

let full: FullPlaces;
const stories = new Map<string, Story>();

beforeAll(async () => {
  full = await FullPlaces.start();
});
afterAll(() => full?.stop());

const all = (['revert', 'template'] as const).flatMap(name =>
  STORIES[name].moments.flatMap(moment => PLACES.map(place => ({ name, moment, place }))),
);

test.each(shuffled(all, SEED).slice(0, CELLS))(
  `seed ${SEED}: $name, $place full at $moment`,
  async ({ name, place, moment }) => {
    const story = stories.get(name) ?? (await STORIES[name].make(full));
    stories.set(name, story);
    await story.prepare();
    const operation = await full.run(story, { place, moment, ending: 'space' });
    expectNamed(full, place, operation);
    await story.check(operation);
    expect(full.disk(place).freeBytes).toBeGreaterThan(0);
  },
);
