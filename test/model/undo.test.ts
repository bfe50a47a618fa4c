import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { open, rename, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, describe, expect, test } from '@jest/globals';
import type { Effect } from '../../agent/src/workflows/effect.ts';
import { ROOT } from '../lab/paths.ts';
import { skipPauses } from './pauses.ts';
import { patchNode, RunOfAgent } from './run-of-agent.ts';
import { DECLARED_IN, STORIES, STORY_OF, type StoryName, WITHOUT_EFFECTS } from './stories/index.ts';
import { play } from './undo-model.ts';

const unpatch = patchNode();

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

test('the calls of the file system are points, also of what was loaded before', async () => {
  const root = mkdtempSync(join(tmpdir(), 'virtkeep-points-'));
  const [first, second] = [join(root, 'first'), join(root, 'second')];
  const points: string[] = [];
  const run = new RunOfAgent(root, async point => void points.push(point));
  await run.within(async () => {
    await writeFile(first, '');
    await rename(first, second);
    const handle = await open(second, 'r+');
    await handle.sync();
    await handle.close();
  });
  rmSync(root, { recursive: true });
  expect(points).toEqual(
    ['writeFile first', 'rename second', 'open second', 'sync second'].flatMap(point => [
      `${point}.before`,
      `${point}.after`,
    ]),
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
