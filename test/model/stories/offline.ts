/** A change of what is on the disks of a VM that is off. */
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { changeOffline, commitOverlays } from '../../../agent/src/workflows/guest/offline.ts';
import { run } from '../../lab/run.ts';
import type { BuildStory } from '../undo-model.ts';
import { expectedContent, silent } from '../world.ts';
import { isUndone, makeVm, TARGETS } from './vm.ts';

export const offline: BuildStory = async world => {
  const vm = await makeVm(world, { running: false });
  const { machine } = vm;
  await vm.write(0, 1);
  const before = await vm.view();
  const files = world.files();
  const disks = TARGETS.map((targetDev, index) => ({
    id: targetDev,
    targetDev,
    path: vm.tops()[index]!,
    format: 'qcow2',
    block: false,
  }));
  /** Blocks that the guest wrote since, by others' means. */
  const written: [number, number][] = [];
  const views = () =>
    [[], [[1, 2] as const]].map(change =>
      TARGETS.map(() => expectedContent([[0, 1], ...change, ...written])),
    );
  expect(views()[0]).toEqual(before);
  return {
    kind: 'guest_hostname',
    points: 215,
    workflow: () => async context => {
      const domain = await world.scripted.libvirt.domainByUuid(machine.uuid);
      const operations = {
        ...{
          libvirt: () => world.scripted.libvirt,
          pools: async () => [world.poolRecord],
          scratchDirectory: world.scratch,
          forceTcg: false,
          log: silent,
        },
      };
      await changeOffline(
        operations as never,
        context,
        { domain, name: 'vm', disks, action: 'changed', allowNetworkLayers: false },
        async ({ overlays }) => {
          for (const path of overlays) await world.write(path, 1, 2);
          return { $case: 'prepare', value: { operations: [] } };
        },
      );
    },
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(views()).toContainEqual(await vm.view());
    },
    async settled(committed) {
      const [old, changed] = views();
      if (committed) expect(await vm.view()).toEqual(changed);
      else expect([old, changed]).toContainEqual(await vm.view());
      expect(world.files()).toEqual(files);
      expect(vm.tops()).toEqual(disks.map(({ path }) => path));
    },
    async life(random) {
      const [block, byte] = [10 + random(20), 1 + random(250)];
      if (machine.live === null) await world.scripted.start(machine);
      await vm.write(block, byte);
      written.push([block, byte]);
      if (random(2)) world.scripted.powerOff(machine);
    },
  };
};

/** As agents of before did it, whose journals are still read: the overlays go straight into the images. */
export const offlineOfBefore: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: false });
  const { machine } = vm;
  await vm.write(0, 1);
  const files = world.files();
  const overlays = TARGETS.map(target => join(world.pool, `${target}.overlay`));
  const images = vm.tops();
  /** Blocks that the guest wrote since: then what was changed may be there in part. */
  let started = false;
  return {
    kind: 'set_hostname',
    points: 15,
    workflow: () => async context => {
      await context.step('change', async () => {
        context.effects.begin({ type: 'changed_disks', domainId: machine.uuid, paths: overlays }, 'always');
        for (const [index, path] of overlays.entries()) {
          await run(['qemu-img', 'create', '-q', '-f', 'qcow2', '-F', 'qcow2', '-b', images[index]!, path]);
          await world.write(path, 1, 2);
        }
      });
      context.commit();
      await context.step('apply', () => commitOverlays(overlays, context.signal));
    },
    undone: effect => isUndone(world, effect),
    async safe() {
      for (const path of images) expect(await world.content(path)).not.toBe(expectedContent([]));
    },
    async settled(committed) {
      expect(world.files()).toEqual(files);
      const changed = TARGETS.map(() =>
        expectedContent([
          [0, 1],
          [1, 2],
        ]),
      );
      if (committed && !started) expect(await vm.view()).toEqual(changed);
    },
    async life() {
      if (random(3) > 0 || started) return;
      started = true;
      await world.scripted.start(machine);
    },
  };
};
