import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { Operation, OperationState } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import { newId } from '@virtkeep/shared/ids';
import { type Logger, logLine } from '@virtkeep/shared/log';
import type { Effect, UndoWhen } from '../workflows/effect.ts';
import { JournaledEffects } from './effects.ts';
import { Journal } from './journal.ts';

const domainId = newId();
const firmware = { domainId, nvramPath: '/nvram', tpm: false, key: 'k' };
const revert: Effect = {
  ...{ type: 'revert', domainId, state: 's', overlays: [], formerOverlays: {}, formerDefinition: '' },
  ...{ formerCurrent: null, wasRunning: true, firmware },
};
const unusedLayers = { type: 'unused_layers', domainId, paths: ['/top'] } satisfies Effect;
const pull: Effect = { type: 'instant_pull', domainId, archivePath: '/a', bandwidth: 0, disks: [] };
const access: Effect = { type: 'archive_access', path: '/a', gid: 0, mode: 0o600 };
const archive: Effect = { type: 'archive', backupId: newId(), partialPath: '/p', finalPath: '/f' };
const state: Effect = { type: 'automatic_state', domainId, name: 's', overlays: [] };
const file: Effect = { type: 'file', path: '/file' };
const directory: Effect = { type: 'directory', path: '/directory' };
const domain: Effect = { type: 'domain', domainId };
const changed: Effect = { type: 'changed_disks', paths: ['/directory/vda.qcow2'] };
const frozen: Effect = { type: 'frozen_guest', domainId };
const paused: Effect = { type: 'paused_guest', domainId };

const ignore = () => {};
const silent = { error: ignore, warn: ignore, info: ignore, debug: ignore } as unknown as Logger;

let root: string;
let journal: Journal;
let effects: JournaledEffects;
let undone: string[];
let failing: Set<Effect['type']>;
const operationId = newId();

const open = (log = silent) =>
  new JournaledEffects(
    journal,
    operationId,
    async ({ type }) => {
      if (failing.has(type)) throw new Error('not now');
      undone.push(type);
    },
    { log },
  );
const declare = (...list: (Effect | [Effect, UndoWhen])[]) =>
  list.map(entry => {
    const [effect, when] = Array.isArray(entry) ? entry : [entry, 'failure' as const];
    return effects.begin(effect, when);
  });
const pass = async () => {
  undone = [];
  await effects.undoAll(() => AbortSignal.timeout(240_000), ignore);
  return undone;
};
const crash = () => {
  journal.close();
  journal = new Journal(join(root, 'journal.db'));
  effects = open();
};

beforeEach(() => {
  undone = [];
  root = mkdtempSync(join(tmpdir(), 'virtkeep-effects-'));
  journal = new Journal(join(root, 'journal.db'));
  const message = Operation.fromPartial({ id: operationId, state: OperationState.RUNNING });
  journal.insertOperation({ message, fingerprint: '', locks: [], committed: false });
  failing = new Set();
  effects = open();
});
afterEach(() => {
  journal.close();
  rmSync(root, { recursive: true });
});

/** Each: what is declared, oldest first; what cannot be undone; what must stay meanwhile. */
const cases: [string, (Effect | [Effect, UndoWhen])[], Effect['type'], Effect['type'][]][] = [
  [
    'the former top layers and the kept firmware stay while a revert is not undone',
    [[unusedLayers, 'always'], [file, 'always'], revert],
    'revert',
    ['file', 'unused_layers'],
  ],
  [
    'the overlays stay while what they hold is not in the images',
    [[directory, 'always'], changed],
    'changed_disks',
    ['directory'],
  ],
  [
    'an archive stays readable while a VM pulls from it',
    [
      [access, 'always'],
      [pull, 'always'],
    ],
    'instant_pull',
    ['archive_access'],
  ],
  [
    'the files of a restored domain stay while it is defined',
    [directory, file, domain],
    'domain',
    ['file', 'directory'],
  ],
];

describe.each(cases)('%s', (_name, declared, stuck, waiting) => {
  test.each(['in the order of the recipe', 'in the wrong one'])('declared %s', async which => {
    declare(...(which === 'in the wrong one' ? declared.toReversed() : declared));
    failing.add(stuck);
    expect(await pass()).toEqual([]);
    expect(await pass()).toEqual([]);
    crash();
    expect(await pass()).toEqual([]);
    failing.clear();
    const [first, ...rest] = await pass();
    expect(first).toBe(stuck);
    expect(rest.toSorted()).toEqual(waiting.toSorted());
    expect(await pass()).toEqual([]);
  });
});

test('the log has nothing of a definition, which may hold passwords', async () => {
  const lines: string[] = [];
  const warn = (message: string, meta: object) =>
    void lines.push(logLine({ level: 'warn', message, timestamp: '', ...meta }));
  effects = open({ ...silent, warn } as unknown as Logger);
  const formerDefinition = "<graphics passwd='hidden-word'/>";
  declare({ ...revert, formerDefinition } as Effect);
  failing.add('revert');
  await pass();
  expect(lines.join('')).toMatch(/could not be undone.*"effect":"revert"/);
  expect(lines.join('')).not.toContain('hidden-word');
});

test('a guest is thawed and resumed first, whatever else fails', async () => {
  declare([frozen, 'always'], [paused, 'always'], [state, 'always'], archive);
  failing = new Set(['automatic_state', 'archive']);
  expect(await pass()).toEqual(['paused_guest', 'frozen_guest']);
  failing.clear();
  expect(await pass()).toEqual(['archive', 'automatic_state']);
});

test('a guest does not wait for what takes long', async () => {
  declare([paused, 'always'], [frozen, 'always'], [state, 'always']);
  expect(await pass()).toEqual(['paused_guest', 'frozen_guest', 'automatic_state']);
});

test('a guest that cannot be thawed holds up nothing', async () => {
  declare([state, 'always'], [frozen, 'always']);
  failing.add('frozen_guest');
  expect(await pass()).toEqual(['automatic_state']);
});

test('a backup pool that is away does not keep the layers of a VM', async () => {
  declare([state, 'always'], archive);
  failing.add('archive');
  expect(await pass()).toEqual(['automatic_state']);
});

test('a pass goes on where the one before stopped', async () => {
  declare([unusedLayers, 'always'], [file, 'always'], revert);
  failing.add('file');
  expect(await pass()).toEqual(['revert', 'unused_layers']);
  failing.clear();
  expect(await pass()).toEqual(['file']);
});

test('what a recipe undoes early waits for what stands on it', async () => {
  const [leftover] = declare([unusedLayers, 'always'], revert);
  await expect(leftover!.undo(AbortSignal.timeout(240_000))).rejects.toMatchObject({ msgKey: 'internal' });
  expect(undone).toEqual([]);
  expect(await pass()).toEqual(['revert', 'unused_layers']);
});

test('which of its files stand on one another a recipe knows: it removes one before others that came later', async () => {
  const [merged] = declare([file, 'always'], [file, 'failure']);
  await merged!.undo(AbortSignal.timeout(240_000));
  expect(undone).toEqual(['file']);
  expect(journal.effects(operationId)).toHaveLength(1);
});

test('while a layer of one disk cannot be removed only what it stands on stays, whatever pool the other disks are in', async () => {
  const [base, other, layer] = [
    { type: 'file' as const, path: '/a/base', stack: 'a' },
    { type: 'file' as const, path: '/b/disk', stack: 'b' },
    { type: 'file' as const, path: '/away/layer', stack: 'a' },
  ];
  declare(base, other, layer);
  const gone: string[] = [];
  let isAway = true;
  effects = new JournaledEffects(
    journal,
    operationId,
    async effect => {
      const { path } = effect as typeof base;
      if (isAway && path === layer.path) throw new Error('not now');
      gone.push(path);
    },
    { log: silent },
  );
  await pass();
  expect(gone).toEqual([other.path]);
  isAway = false;
  await pass();
  expect(gone).toEqual([other.path, layer.path, base.path]);
});

test('an effect that the result was to replace holds up nothing without one', async () => {
  declare([domain, 'success'], file);
  failing.add('domain');
  expect(await pass()).toEqual(['file']);
});

test('a journal that cannot be written keeps no guest frozen, and is written when it can be', async () => {
  declare([state, 'success'], frozen);
  const strike = journal.strikeEffect.bind(journal);
  journal.strikeEffect = () => {
    throw new Error('the disk is full');
  };
  undone = [];
  const failures = await effects.undoAll(() => AbortSignal.timeout(240_000), ignore);
  expect(undone).toEqual(['frozen_guest']);
  expect(failures.map(({ what }) => what)).toEqual(['journal', 'frozen_guest']);
  journal.strikeEffect = strike;
  expect(await pass()).toEqual(['frozen_guest']);
  expect(journal.effects(operationId)).toEqual([]);
});

test('what is left of an effect is all that is undone of it later, by the next agent too', async () => {
  declare(unusedLayers);
  const seen: Effect[] = [];
  const half = () =>
    new JournaledEffects(
      journal,
      operationId,
      async (effect, _signal, _warn, amend) => {
        seen.push(effect);
        amend({ ...unusedLayers, paths: [] });
        throw new Error('not now');
      },
      { log: silent },
    );
  effects = half();
  await pass();
  await pass();
  crash();
  effects = half();
  await pass();
  expect(seen).toEqual([unusedLayers, { ...unusedLayers, paths: [] }, { ...unusedLayers, paths: [] }]);
});
