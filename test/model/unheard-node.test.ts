/**
 * Layers of a VM that is off, on a pool that other nodes have too, while one of these gives no answer. What was merged is merged: the
 * file that stays is asked about for a while, and what is said of it must not make anybody put it back on a disk that went on.
 */
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { CloneDomainRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/template';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { PendingAnswers } from '../../agent/src/images/index.ts';
import type { Answer } from '../../agent/src/other-nodes.ts';
import { removeAutomaticState } from '../../agent/src/snapshots/index.ts';
import { withSources } from '../../agent/src/snapshots/state-xml.ts';
import { withMarks } from '../../agent/src/workflows/domain/forgotten-layers.ts';
import { cloneWorkflow } from '../../agent/src/workflows/template/clone.ts';
import { perform } from './stories/perform.ts';
import { makeVm, TARGETS, type Vm } from './stories/vm.ts';
import { expectedContent, silent, World } from './world.ts';

const PATIENCE_MS = 100;
const UNHEARD: Answer = { kind: 'unknown', reason: 'n2 is away' };

let world: World;
let vm: Vm;
let images: string[];
let layers: { targetDev: string; path: string }[];
let answer: Answer;
let warnings: string[];

beforeEach(async () => {
  [world, answer, warnings] = [new World(), UNHEARD, []];
  vm = await makeVm(world, { running: false, metadata: { template: true, templateVersion: 1 } });
  images = vm.tops();
  await vm.write(0, 1);
  layers = await withMarks(
    TARGETS.map((targetDev, index) => {
      const path = join(world.pool, `${targetDev}.layer`);
      execFileSync('qemu-img', ['create', '-q', '-f', 'qcow2', '-F', 'qcow2', '-b', images[index]!, path]);
      return { targetDev, path };
    }),
    true,
  );
  for (const { path } of layers) await world.write(path, 1, 2);
});
afterEach(() => world.remove());

/** The VM has the layers as its disks. */
function use(): void {
  const { machine } = vm;
  const sources = layers.map(({ targetDev, path }) => [targetDev, { path, format: 'qcow2', block: false }]);
  machine.config = withSources(machine.config!, Object.fromEntries(sources));
}

function remove(pending: PendingAnswers, unusedIsNothing = false): Promise<void> {
  const { dependencies } = world;
  const shared = {
    ...dependencies,
    pools: async () => [{ ...world.poolRecord, shared: true }],
    otherNodes: { whoUses: async (things: readonly unknown[]) => things.map(() => answer) },
  };
  const warn = (text: string) => void warnings.push(text);
  const state = { domainId: vm.machine.uuid, name: 'virtkeep-tmp-1', overlays: layers, noted: true };
  return removeAutomaticState(
    shared,
    { ...state, unusedIsNothing },
    {
      ...{ signal: AbortSignal.timeout(60_000), log: silent, warn },
      settle: left => pending.settle(left, warn),
    },
  );
}

const there = () => layers.filter(({ path }) => existsSync(path)).length;
const noted = () => parseDomain(vm.machine.config!).metadata.looseLayers?.length ?? 0;

async function expectMerged(): Promise<void> {
  expect(vm.tops()).toEqual(images);
  const merged = expectedContent([[0, 1], [1, 2]]); // biome-ignore format: blocks
  expect(await vm.view()).toEqual([merged, merged]);
}

describe('layers that were merged', () => {
  test('wait for the answer, and go with it', async () => {
    use();
    const pending = new PendingAnswers(60_000);
    for (const _ of [1, 2])
      await expect(remove(pending)).rejects.toMatchObject({ msgKey: 'image_use_unknown' });
    await expectMerged();
    expect([there(), warnings]).toEqual([2, []]);
    answer = { kind: 'unused' };
    await remove(pending);
    expect([there(), noted(), warnings]).toEqual([0, 0, []]);
    await expectMerged();
  });

  test('stay without one after a while, and are not called the newest data of a disk', async () => {
    use();
    const pending = new PendingAnswers(PATIENCE_MS);
    await expect(remove(pending)).rejects.toMatchObject({ msgKey: 'image_use_unknown' });
    await new Promise(resolve => setTimeout(resolve, PATIENCE_MS));
    await remove(pending);
    await expectMerged();
    expect(there()).toBe(2);
    expect(warnings).toEqual(
      layers.map(({ path }) =>
        expect.stringMatching(new RegExp(`^${path} was left: .*n2 is away.*It was merged.*remove it`)),
      ),
    );
    // a thin clone may stand on what they were merged into
    await perform(world, () =>
      cloneWorkflow(
        world.dependencies,
        CloneDomainRequest.fromPartial({ domainId: vm.machine.uuid, newDomainId: newId(), thin: true }),
      ),
    );
    // whoever asks again removes them
    answer = { kind: 'unused' };
    await remove(new PendingAnswers(0));
    expect([there(), noted(), warnings.length]).toEqual([0, 0, 2]);
  });

  test('do not come over what was written to a detached disk meanwhile', async () => {
    const { machine } = vm;
    machine.config = machine.config!.replaceAll(/<disk.*?<\/disk>/gs, '');
    const pending = new PendingAnswers(60_000);
    await expect(remove(pending)).rejects.toMatchObject({ msgKey: 'image_use_unknown' });
    for (const path of images) await world.write(path, 1, 3);
    answer = { kind: 'unused' };
    await remove(pending);
    const written = expectedContent([[0, 1], [1, 3]]); // biome-ignore format: blocks
    for (const path of images) expect(await world.content(path)).toBe(written);
    expect([there(), noted(), warnings]).toEqual([0, 0, []]);
  });

  test('that another VM uses are not called the newest data of a disk either', async () => {
    use();
    answer = {
      kind: 'used',
      by: { nodeName: 'n2', domainId: vm.machine.uuid, domainName: 'vm', lastRanHere: true },
    };
    await remove(new PendingAnswers(60_000));
    await expectMerged();
    expect(warnings).toEqual(layers.map(() => expect.stringContaining('It was merged')));
  });
});

test('layers that no definition ever had go without an answer: no node can have heard of them', async () => {
  await remove(new PendingAnswers(60_000), true);
  expect([there(), warnings]).toEqual([0, []]);
});
