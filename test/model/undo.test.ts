import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import type { Effect } from '../../agent/src/workflows/effect.ts';
import { ROOT } from '../lab/paths.ts';
import { skipPauses } from './pauses.ts';
import { patchNode } from './run-of-agent.ts';
import type { StoryName } from './stories/index.ts';

// before anything of the agent is loaded
const unpatch = patchNode();
const { DECLARED_IN, STORIES, STORY_OF, WITHOUT_EFFECTS } = await import('./stories/index.ts');
const { play } = await import('./undo-model.ts');

/** How many histories each workflow is put through; `make soak` asks for more. A seed alone makes one of them again. */
const HISTORIES = Number(process.env.VIRTKEEP_UNDO_HISTORIES ?? 1);
const FIRST_SEED = Number(process.env.VIRTKEEP_UNDO_SEED ?? 1);
/** So many histories declare all that there is to be declared. */
const ENOUGH_HISTORIES = 50;

const MAX_HISTORY_MS = 120_000;

skipPauses();
afterAll(unpatch);

const NAMES = Object.keys(STORIES) as StoryName[];

describe.each(NAMES)('%s', name => {
  const listed = Object.keys(DECLARED_IN).filter(type => DECLARED_IN[type as Effect['type']].includes(name));

  test(
    `${HISTORIES} histories from seed ${FIRST_SEED} on`,
    async () => {
      const declared = new Set<string>();
      for (let seed = FIRST_SEED; seed < FIRST_SEED + HISTORIES; seed += 1) {
        const log: string[] = [];
        const { effects } = await play(STORIES[name], seed, log).catch((error: Error) => {
          error.message = `VIRTKEEP_UNDO_SEED=${seed}: ${error.message}\n${log.join('\n')}`;
          throw error;
        });
        for (const type of effects) declared.add(type);
      }
      expect([...declared].filter(type => !listed.includes(type))).toEqual([]);
      if (HISTORIES >= ENOUGH_HISTORIES) expect(listed.filter(type => !declared.has(type))).toEqual([]);
    },
    HISTORIES * MAX_HISTORY_MS,
  );
});

test('each workflow has a story, or declares nothing', () => {
  const directory = join(ROOT, 'agent/src/workflows');
  const names = readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter(file => /(?<!\.test)\.ts$/.test(file))
    .flatMap(file => [...readFileSync(join(directory, file), 'utf8').matchAll(MAKES_WORKFLOW)])
    .map(([, name]) => name!);
  expect(names.toSorted()).toEqual([...Object.keys(STORY_OF), ...WITHOUT_EFFECTS].toSorted());
  const told = new Set<string>([...Object.values(STORY_OF), ...Object.values(DECLARED_IN)].flat());
  expect(NAMES.filter(name => !told.has(name))).toEqual([]);
});

/** Up to its own result, and into no other function's. */
const MAKES_WORKFLOW = /^export function (\w+)\((?:(?!^\})[\s\S])*?\): Workflow \{/gm;
