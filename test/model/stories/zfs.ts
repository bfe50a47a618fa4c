/** Disks on zfs, held at one instant: a snapshot, taken while the guest stands still. The program is a script. */
import { expect } from '@jest/globals';
import { zfsFreezer } from '../../../agent/src/workflows/lend/zfs-freezer.ts';
import { ZfsDriver } from '../../../agent/src/zfs/index.ts';
import { RunOfAgent } from '../run-of-agent.ts';
import type { BuildStory } from '../undo-model.ts';
import type { World } from '../world.ts';
import { isUndone, lives, makeVm } from './vm.ts';

const DATASET = 'tank/vm';

/** A pool of zfs that knows nothing but snapshots. */
function driverOf(world: World, snapshots: Map<string, string[]>): ZfsDriver {
  const answer = (stdout: string) => ({ code: 0, stdout, stderr: '' });
  return new ZfsDriver({
    mountInfo: async () => `22 1 0:1 / ${world.pool} rw - zfs ${DATASET} rw\n`,
    realPath: async path => path,
    zfs: async args => {
      await RunOfAgent.reach(`zfs ${args[0]}.before`);
      const names = args.filter(argument => argument.includes('@'));
      if (args[0] === 'snapshot')
        for (const name of names)
          snapshots.set(
            name,
            args.filter(one => one.startsWith('virtkeep:')),
          );
      if (args[0] === 'destroy') for (const name of names) snapshots.delete(name);
      await RunOfAgent.reach(`zfs ${args[0]}.after`);
      return answer('');
    },
  });
}

export const zfsInstant: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: random(4) > 0, agent: random(4) > 0 });
  const { machine } = vm;
  await vm.write(0, 1);
  let now = await vm.view();
  const files = world.files();
  const snapshots = new Map<string, string[]>();
  const disks = vm.tops().map((path, index) => ({
    ...{ id: machine.uuid, targetDev: `vd${'ab'[index]}`, path, format: 'qcow2', block: false },
    ...{ readonly: false, encrypted: false },
  }));
  return {
    kind: 'lend_disk',
    points: 20,
    workflow: () => async context => {
      const { libvirt } = world.dependencies;
      const freezer = zfsFreezer({ libvirt, zfs: driverOf(world, snapshots) });
      const active = machine.live !== null;
      const lender = { id: machine.uuid, name: 'vm', template: false, active, disks };
      await context.step('freeze', () => freezer.freeze(lender, context, false));
      context.commit();
    },
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(await vm.view()).toEqual(now);
    },
    async settled(committed) {
      expect([machine.frozen, machine.suspended]).toEqual([false, false]);
      expect(world.files()).toEqual(files);
      if (committed) expect(snapshots.size).toBe(1);
    },
    async life() {
      if (machine.live === null || machine.frozen || machine.suspended) return;
      await lives(vm, world, random);
      now = await vm.view();
    },
  };
};
