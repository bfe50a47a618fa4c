/** A loan ends when what its owner's disks lie on is there: before that, nothing of its instant could be merged. */
import { mkdirSync, renameSync, rmdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { diskId as idOfFile } from '../../agent/src/disks/index.ts';
import { NO_METADATA } from '../../agent/src/domain-xml/index.ts';
import { MARKER, PathGate, rememberPlaces } from '../../agent/src/pools/index.ts';
import { writeMetadata } from '../../agent/src/snapshots/index.ts';
import type { OperationContext, Workflow } from '../../agent/src/workflows/context.ts';
import type { UndoEffect } from '../../agent/src/workflows/effect.ts';
import { lendDiskWorkflow, returnDiskWorkflow } from '../../agent/src/workflows/lend/lend.ts';
import { reconcileLoansWorkflow } from '../../agent/src/workflows/lend/reconcile.ts';
import type { LoanAction } from '../../agent/src/workflows/lend/reconcile-plan.ts';
import { undoEffects } from '../../agent/src/workflows/undo/recover.ts';
import { undoWhenThere } from '../../agent/src/workflows/undo/world.ts';
import { skipPauses } from './pauses.ts';
import { perform } from './stories/perform.ts';
import { makeVm, type Vm } from './stories/vm.ts';
import { World } from './world.ts';

skipPauses();

const BORROWER = newId();
let world: World;
let owner: Vm;
let key: { ownerId: string; diskId: string; borrowerId: string };

beforeEach(async () => {
  world = new World();
  owner = await makeVm(world, { running: false });
  key = {
    ownerId: owner.machine.uuid,
    diskId: idOfFile(owner.tops()[0]!, world.poolRecord),
    borrowerId: BORROWER,
  };
  writeFileSync(join(world.pool, MARKER), '');
});
afterEach(() => world.remove());

/** The undo as the agent does it. */
function undoEffect() {
  const stored = new Map<string, unknown>();
  const settings = {
    get: (name: string) => stored.get(name),
    set: (name: string, to: unknown) => void stored.set(name, to),
  };
  const { id, name } = world.poolRecord;
  rememberPlaces(settings, [{ id, name, path: world.pool, mountPoint: world.pool, marker: true }]);
  const { libvirt, pools } = world.dependencies;
  const gate = new PathGate(60_000);
  return undoWhenThere(undoEffects(world.dependencies), {
    connected: () => true,
    libvirt,
    pools,
    settings,
    gate,
    untilController: async () => {},
  });
}

async function lend(borrowerNodeId: string): Promise<void> {
  const rest = { thinClone: false, warnings: [], allowNetworkLayers: false };
  await perform(world, () => lendDiskWorkflow(world.dependencies, { ...key, borrowerNodeId, ...rest }));
}

const keeping = (due: LoanAction) => reconcileLoansWorkflow(world.dependencies, [due], async () => [due]);

const RELEASE = { do: 'release', diskId: '', borrowerId: '' } as const;

/** Nothing tells any more for whom its instant is. */
const forgetLoan = async () =>
  writeMetadata(await world.scripted.libvirt.domainByUuid(key.ownerId), NO_METADATA);

test.each([
  ['whose borrower is gone', true, () => keeping({ do: 'end', ...key })],
  ['that another node gives back', true, () => returnDiskWorkflow(world.dependencies, { ...key, mark: '' })],
  ['that is forgotten', false, () => keeping({ ...RELEASE, ownerId: key.ownerId })],
])('the instant of a loan %s is merged when its pool is mounted', async (_, isNoted, workflow) => {
  const files = world.files();
  const before = await owner.view();
  await lend(newId());
  if (!isNoted) await forgetLoan();
  const away = `${world.pool}.away`;
  renameSync(world.pool, away);
  mkdirSync(world.pool);
  const definition = owner.machine.config;
  await expect(perform(world, workflow, undoEffect())).rejects.toMatchObject({ msgKey: 'clean_up_waits' });
  expect([owner.machine.config, owner.machine.states.size]).toEqual([definition, 1]);

  rmdirSync(world.pool);
  renameSync(away, world.pool);
  await perform(world, workflow, undoEffect());
  expect([world.files(), owner.machine.states.size]).toEqual([files, 0]);
  expect(await owner.view()).toEqual(before);
});

test('an instant that cannot be merged now keeps nobody from its VM', async () => {
  await lend(newId());
  await forgetLoan();
  owner.machine.saved = owner.machine.config;
  const workflow = keeping({ ...RELEASE, ownerId: key.ownerId });
  const left: string[] = [];
  const warnings: string[] = [];
  const keepingTrack: Workflow = context => {
    const begin: OperationContext['effects']['begin'] = (effect, when) => {
      left.push(effect.type);
      const handle = context.effects.begin(effect, when);
      const ended = async (signal: AbortSignal) => {
        await handle.undo(signal);
        left.pop();
      };
      return { ...handle, undo: ended };
    };
    return workflow({ ...context, effects: { ...context.effects, begin } });
  };
  const undo: UndoEffect = (effect, signal, _warn, amend) =>
    undoEffects(world.dependencies)(effect, signal, text => void warnings.push(text), amend);
  await perform(world, () => keepingTrack, undo);
  expect(warnings).toEqual([expect.stringContaining('its memory is saved')]);
  expect([left, owner.machine.states.size]).toEqual([[], 1]);
});
