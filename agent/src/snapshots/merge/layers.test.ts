import { describe, expect, test } from '@jest/globals';
import type { LooseLayer } from '../../domain-xml/index.ts';
import type { SavedState } from '../chain.ts';
import { unnamedWithout } from './layers.ts';
import type { ChainPicture } from './picture.ts';
import { nextMergeStep, removalRefusal } from './plan.ts';
import type { MergeStep } from './step.ts';

const [BASE, LAYER, ABOVE, OVERLAY] = ['/p/base', '/p/layer', '/p/above', '/p/overlay'];

const stateOf = (name: string, frozen: string, overlay: string): SavedState =>
  ({
    name,
    overlays: { vda: overlay },
    frozen: { vda: frozen },
    internalDisks: [],
    memory: 'no',
    memoryPath: null,
    parent: null,
  }) as never;
/** The layer is an overlay of an older state, so it is no disk's first file. */
const OLDER = stateOf('older', BASE!, LAYER!);

const merging = (stage?: LooseLayer['stage']): LooseLayer => ({
  targetDev: 'vda',
  path: LAYER!,
  overlay: true,
  merging: ABOVE!,
  ...(stage ? { stage } : {}),
});

function picture(change: Partial<ChainPicture>, looseLayers: LooseLayer[]): ChainPicture {
  return {
    domainId: '5e0f5a7c-3a77-4d0a-9d4f-0d5b6c1f3a11', power: 'off', persistent: true, memorySaved: false, live: new Map(),
    config: new Map(), states: [OLDER], automatic: [], files: new Map([[BASE!, null], [LAYER!, BASE!]]), empty: new Set(), inner: new Set(),
    since: new Map(), gone: new Set(), foreign: new Map(), saving: false, ...change,
    metadata: { template: false, templateVersion: 0, attachments: [], looseLayers } as never,
  }; // biome-ignore format: one record
}

/** All steps that only change notes, states and files are done until the end, or until one that moves data. */
function stepsOf(start: ChainPicture, name: string | null = null): MergeStep[] {
  const steps: MergeStep[] = [];
  for (let now = start; steps.length < 20; ) {
    const step = nextMergeStep(now, { name, countsAsDeletion: false }, new Date(0));
    steps.push(step);
    if (step.do === 'note') now = { ...now, metadata: step.metadata };
    else if (step.do === 'forget')
      now = { ...now, states: now.states.filter(state => state.name !== step.name) };
    else if (step.do === 'remove_file')
      now = { ...now, files: new Map([...now.files].filter(([path]) => path !== step.path)) };
    else return steps;
  }
  throw new Error('it turns in circles');
}

const removed = (steps: MergeStep[]) => steps.flatMap(step => (step.do === 'remove_file' ? [step.path] : []));
const all = new Map<string, string | null>([[BASE!, null], [LAYER!, BASE!], [ABOVE!, LAYER!]]); // biome-ignore format: a chain
const at = (path: string) => ({ path, mirror: null, job: null });

describe('the upper file of a noted merge is not there', () => {
  test.each(['begun', 'live', 'merged', undefined] as const)(
    'and a definition names it, put back or on a pool that is away: the lower file stays and is told (%s)',
    stage => {
      const config = new Map([['vda', ABOVE!]]);
      const steps = stepsOf(picture({ config }, [merging(stage)]));
      expect(steps).toEqual([{ do: 'done', left: [expect.stringContaining(LAYER!)] }]);
    },
  );

  test('and nobody names either: the lower file stays, since it may have what the upper one had', () => {
    const steps = stepsOf(picture({ config: new Map([['vda', BASE!]]) }, [merging('merged')]));
    expect([removed(steps), steps.at(-1)]).toEqual([
      [],
      { do: 'done', left: [expect.stringContaining(LAYER!)] },
    ]);
  });

  test('and the definition that names it is of before the merge: what it stood on stays and is told', () => {
    const loose = { targetDev: 'vda', path: LAYER!, overlay: true };
    const steps = stepsOf(picture({ config: new Map([['vda', ABOVE!]]) }, [loose]));
    expect(steps).toEqual([{ do: 'done', left: [expect.stringContaining(LAYER!)] }]);
  });

  test('and the lower one is in its place: the merge is over', () => {
    const steps = stepsOf(picture({ config: new Map([['vda', LAYER!]]) }, [merging('merged')]));
    expect(steps.at(-1)).toEqual({ do: 'done' });
    expect(removed(steps)).toEqual([]);
  });
});

test('a lower file that is not there, below one that is, is waited for', () => {
  const files = new Map([[ABOVE!, LAYER!]]);
  const steps = stepsOf(picture({ files, config: new Map([['vda', ABOVE!]]) }, [merging('begun')]));
  expect(steps).toHaveLength(1);
  expect(steps[0]!.do).toBe('done');
});

test('before the upper file goes, that it was merged is noted in the definition', () => {
  const live = new Map([['vda', at(LAYER!)]]);
  const config = new Map([['vda', LAYER!]]);
  const [first, second] = stepsOf(picture({ power: 'running', live, config, files: all }, [merging('live')]));
  expect(first).toMatchObject({ do: 'note', metadata: { looseLayers: [{ stage: 'merged' }] } });
  expect(second).toMatchObject({ do: 'remove_file', path: ABOVE });
});

test.each(['begun', 'merged'] as const)(
  'two loose layers that nobody uses go from the top, be the one merged into the other or not (%s)',
  stage => {
    const looseLayers = [merging(stage), { targetDev: 'vda', path: ABOVE!, overlay: true }];
    const steps = stepsOf(picture({ files: all, config: new Map([['vda', BASE!]]) }, looseLayers));
    expect([removed(steps), steps.at(-1)]).toEqual([[ABOVE, LAYER], { do: 'done' }]);
  },
);

test.each([
  ['there', all],
  ['gone', new Map([...all].filter(([path]) => path !== ABOVE))],
])(
  'a merge into what a state keeps comes to its end before the state goes: its upper file is %s',
  (_, files) => {
    const states = [OLDER, stateOf('newer', LAYER!, OVERLAY!)];
    const config = new Map([['vda', BASE!]]);
    const steps = stepsOf(picture({ files, states, config }, [merging('merged')]), 'newer');
    expect([steps.filter(step => step.do !== 'note'), steps.at(-1)]).toEqual([
      [
        ...(files === all ? [{ do: 'remove_file', path: ABOVE, heirs: [LAYER] }] : []),
        { do: 'forget', name: 'newer' },
        { do: 'remove_file', path: LAYER },
        { do: 'done' },
      ],
      { do: 'done' },
    ]);
  },
);

test('what stands on its lower file no more, since that was itself merged, is merged into nothing', () => {
  const files = new Map<string, string | null>([[BASE!, null], [LAYER!, BASE!], [ABOVE!, BASE!], [OVERLAY!, ABOVE!]]); // biome-ignore format: a tree
  const steps = stepsOf(picture({ files, config: new Map([['vda', OVERLAY!]]) }, [merging('begun')]));
  expect([removed(steps), steps.at(-1)]).toEqual([[LAYER], { do: 'done' }]);
});

test('the file of a detached disk is merged into nothing, though an upper one was left out of it', () => {
  const looseLayers = [{ targetDev: 'vda', path: BASE!, overlay: false }, merging('begun')];
  const files = new Map([...all, ['/p/other', null] as const]);
  const config = new Map([['vda', '/p/other']]);
  const steps = stepsOf(picture({ states: [], files, config }, looseLayers));
  expect(steps).toEqual([{ do: 'done' }]);
});

test('the first file of a disk that the VM has no more has what was merged into it: nothing is left to be told', () => {
  const first: LooseLayer = { ...merging('merged'), path: BASE!, overlay: false };
  const other = { files: new Map([[BASE!, null], ['/p/other', null]]), config: new Map([['vda', '/p/other']]) }; // biome-ignore format: one line
  const steps = stepsOf(picture({ ...other, states: [] }, [first]));
  expect(steps.map(step => step.do)).toEqual(['note', 'done']);
});

test('a layer whose merge is not known to be done holds up no deletion, and is told', () => {
  const files = new Map([...all, [OVERLAY!, LAYER!]]);
  const states = [OLDER, stateOf('newer', LAYER!, OVERLAY!)];
  const steps = stepsOf(
    picture({ files, states, config: new Map([['vda', OVERLAY!]]) }, [merging('begun')]),
    'newer',
  );
  expect(steps.at(-1)).toEqual({ do: 'done', left: [expect.stringContaining(ABOVE!)] });
  expect(removed(steps)).toEqual([]);
});

describe('the end of a branch that nobody came back to', () => {
  const loose = { targetDev: 'vda', path: LAYER!, overlay: true };
  const [kept, top] = ['/p/kept', '/p/top'];
  // the last revert took away what was written after it
  const states = [stateOf('older', BASE!, top), stateOf('later', kept, OVERLAY!)];
  const config = new Map([['vda', top]]);
  const whole = new Map<string, string | null>([[BASE!, null], [LAYER!, BASE!], [top, BASE!], [kept, BASE!]]); // biome-ignore format: a tree

  test('goes although the overlay of another branch is not there any more', () => {
    const steps = stepsOf(picture({ states, config, files: whole }, [loose]));
    expect([removed(steps), steps.at(-1)]).toEqual([[LAYER], { do: 'done' }]);
  });

  test('stays, and is told, while a file is not there that a state keeps: it may stand on it', () => {
    const files = new Map([...whole].filter(([path]) => path !== kept));
    const steps = stepsOf(picture({ states, config, files }, [loose]));
    expect(steps).toEqual([{ do: 'done', left: [expect.stringContaining(kept)] }]);
  });

  test('stays, and is told, while it is not known what an overlay stands on that is not there', () => {
    const unknown = { ...states[1]!, frozen: {} };
    const steps = stepsOf(picture({ states: [states[0]!, unknown], config, files: whole }, [loose]));
    expect(steps).toEqual([{ do: 'done', left: [expect.stringContaining(OVERLAY!)] }]);
  });
});

test('a state is not deleted while the disk that may stand on its file is not there', () => {
  const state = stateOf('mine', LAYER!, ABOVE!);
  const config = new Map([['vda', ABOVE!]]);
  const nothing = new Map<string, string | null>();
  const isRefused = (files: ChainPicture['files'], change: Partial<ChainPicture>) =>
    removalRefusal(picture({ ...change, files, states: [OLDER, state] }, []), state)?.includes(ABOVE!) ??
    false;
  expect(isRefused(nothing, { config })).toBe(true);
  expect(isRefused(nothing, { live: new Map([['vda', at(ABOVE!)]]) })).toBe(true);
  expect(isRefused(all, { config })).toBe(false);
  // an image in a drive may be gone for good
  expect(isRefused(all, { config: new Map([...config, ['sda', '/p/gone.iso']]) })).toBe(false);
  // and so may the disk that it was
  expect(isRefused(nothing, {})).toBe(false);
});

describe('an overlay that only its state names', () => {
  const before = new Map([['vda', BASE!]]);
  const after = new Map([['vda', LAYER!]]);
  const running = { power: 'running', live: new Map([['vda', at(LAYER!)]]) } as const;
  const unnamed = (change: Partial<ChainPicture>, loose: LooseLayer[] = []) =>
    unnamedWithout(picture(change, loose), OLDER);

  test('is told when the definition of before the state was put back', () => {
    expect(unnamed({ config: before })).toEqual([
      { path: LAYER, reason: expect.stringContaining('no disk') },
    ]);
    expect(unnamed({ config: before, ...running })).toMatchObject([{ path: LAYER, instead: BASE }]);
  });

  test('is told with the file that may stand on it, when that is not there', () => {
    const [found] = unnamed({ config: new Map([['vda', ABOVE!]]) });
    expect(found).toEqual({
      path: LAYER,
      reason: expect.stringContaining(`${ABOVE}, which may stand on it`),
    });
  });

  test.each<[string, Partial<ChainPicture>]>([
    ['is the disk', { config: after }],
    ['is below the disk', { config: new Map([['vda', ABOVE!]]), files: all }],
    [
      'is kept by another state',
      { config: before, states: [OLDER, stateOf('s', LAYER!, ABOVE!)], files: all },
    ],
    ['is used by another VM', { config: before, foreign: new Map([[LAYER!, 'vm2']]) }],
    ['is not there', { config: before, files: new Map([[BASE!, null]]) }],
    ['stands on something else', { config: before, files: new Map([[BASE!, null], [LAYER!, null]]) }], // biome-ignore format: one line
    ['is what a VM without a definition runs with', { ...running, persistent: false }],
    ['will be merged, since only the next start is without the disk', running],
  ])('is not told when it %s', (_what, change) => {
    expect(unnamed(change)).toEqual([]);
  });

  test('is not told when it is on its way into the file below: its merge tells', () => {
    expect(unnamed({ config: before }, [{ ...merging(), path: BASE!, merging: LAYER! }])).toEqual([]);
  });
});
