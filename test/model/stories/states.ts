/** Saved states: made, reverted to, deleted. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { RemoveSnapshotRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import {
  keepFirmwareOfState,
  keptFirmwarePaths,
} from '../../../agent/src/workflows/firmware/state-firmware.ts';
import { createSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/create.ts';
import { removeSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/remove.ts';
import { revertSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/revert.ts';
import { withChains } from '../scripted-machine.ts';
import type { BuildStory } from '../undo-model.ts';
import { makeState, perform } from './perform.ts';
import { isUndone, lives, makeVm, stateId, TARGETS } from './vm.ts';

export const revert: BuildStory = async (world, random) => {
  const nvram = join(world.nvram, 'vm_VARS.fd');
  writeFileSync(nvram, 'then');
  const vm = await makeVm(world, { running: random(3) > 0, nvram });
  const { machine } = vm;
  const wasRunning = machine.live !== null;
  await vm.write(0, 1);
  const then = await vm.view();
  const { libvirt } = world.scripted;
  const overlays = TARGETS.map(
    target => `<disk name='${target}' snapshot='external' type='file'>
    <source file='${join(world.pool, `${target}.top`)}'/></disk>`,
  );
  const domain = await libvirt.domainByUuid(machine.uuid);
  const memory =
    wasRunning && random(2) ? `snapshot='external' file='${join(world.pool, 's.memory')}'` : `snapshot='no'`;
  const xml = `<domainsnapshot><name>s</name><memory ${memory}/><disks>${overlays.join('')}</disks></domainsnapshot>`;
  await domain.createSnapshot(xml);
  await keepFirmwareOfState(world.dependencies, domain, 's');
  writeFileSync(nvram, 'now');
  await vm.write(1, 2);
  const formerTops = vm.tops();
  let now = await vm.view();
  const files = world.files();
  let operation = '';
  const isFormer = () => vm.tops().join() === formerTops.join();
  return {
    kind: 'revert_snapshot',
    points: 95,
    workflow: id => {
      operation = id;
      const request = { operationId: id, domainId: machine.uuid, snapshotId: stateId(machine, 's') };
      return revertSnapshotWorkflow(world.dependencies, request as never);
    },
    undone: (effect, committed) =>
      effect.type === 'unused_layers' && committed
        ? Promise.resolve(expect(formerTops.filter(path => existsSync(path))).toEqual([]))
        : isUndone(world, effect),
    async safe(committed) {
      if (committed) return;
      for (const [index, path] of formerTops.entries()) expect(await world.content(path)).toBe(now[index]);
      const kept = keptFirmwarePaths(world.dependencies, machine.uuid, operation).nvram;
      const variables = [nvram, kept]
        .filter(path => existsSync(path))
        .map(path => readFileSync(path, 'utf8'));
      expect(variables).toContain('now');
      if (isFormer()) expect(readFileSync(nvram, 'utf8')).toBe('now');
    },
    async settled(committed) {
      // one that cannot be started is told of, and holds up nothing
      if (world.warnings.length === 0) expect(machine.live !== null).toBe(wasRunning);
      if (!committed) {
        expect(isFormer()).toBe(true);
        expect(world.files()).toEqual(files);
        return;
      }
      expect(await vm.view()).toEqual(then);
      expect(readFileSync(nvram, 'utf8')).toBe('then');
      const gone = formerTops.map(path => path.slice(world.root.length + 1));
      expect(world.files().filter(path => gone.includes(path))).toEqual([]);
      expect(world.files()).toHaveLength(files.length);
    },
    async life() {
      // off because of the operation: that the guest is started belongs to its undo
      if (!wasRunning || machine.live === null || !isFormer()) return;
      await lives(vm, world, random);
      now = await vm.view();
    },
  };
};

export const createState: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: random(4) > 0, agent: true });
  const { machine } = vm;
  await vm.write(0, 1);
  let now = await vm.view();
  const files = world.files();
  const tops = vm.tops();
  const memory = machine.live !== null && random(2) === 1;
  return {
    kind: 'create_snapshot',
    points: 80,
    workflow: id =>
      createSnapshotWorkflow(world.dependencies, {
        ...{ operationId: id, domainId: machine.uuid, name: 's', description: '', memory },
        requireConsistency: false,
      } as never),
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(await vm.view()).toEqual(now);
    },
    async settled(committed) {
      expect(machine.frozen).toBe(false);
      expect(machine.states.has('s')).toBe(committed);
      if (committed) return;
      expect(world.files()).toEqual(files);
      expect(vm.tops()).toEqual(tops);
    },
    async life() {
      await lives(vm, world, random);
      now = await vm.view();
    },
  };
};

export const removeState: BuildStory = async (world, random) => {
  const running = random(3) > 0;
  const vm = await makeVm(world, { running, agent: true });
  const { machine } = vm;
  const names = ['one', 'two', 'three'];
  /** What each state keeps. */
  const kept = new Map<string, string[]>();
  for (const [index, name] of names.entries()) {
    await vm.write(index, 1 + index);
    kept.set(name, await vm.view());
    await makeState(world, machine.uuid, name);
  }
  await vm.write(3, 4);
  if (!running) machine.config = await withChains(machine.config!);
  let now = await vm.view();
  let wasPoweredOff = false;
  const files = world.files();
  const name = names[random(names.length)]!;
  const snapshotId = stateId(machine, name);
  const workflow = (operationId: string) =>
    removeSnapshotWorkflow(
      world.dependencies,
      RemoveSnapshotRequest.fromPartial({ operationId, domainId: machine.uuid, snapshotId }),
    );
  return {
    kind: 'remove_snapshot',
    points: 400,
    workflow,
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(await vm.view()).toEqual(now);
      for (const [state, xml] of machine.states) {
        const inside = /<domain[\s>][\s\S]*<\/domain>/.exec(xml)![0];
        const views = await Promise.all(parseDomain(inside).disks.map(({ path }) => world.content(path!)));
        expect([state, views]).toEqual([state, kept.get(state)]);
      }
    },
    async settled(committed) {
      // what failed or was cancelled goes on when it is asked for again
      const { looseLayers = [] } = parseDomain(machine.live ?? machine.config!).metadata;
      if (machine.states.has(name) || looseLayers.length > 0) {
        expect(committed).toBe(false);
        await perform(world, workflow);
      }
      expect([...machine.states.keys()]).toEqual(names.filter(other => other !== name));
      // which of two files has the newest bytes nobody knows when the guest stopped between the end of a merge and its note
      const unsure = wasPoweredOff ? parseDomain(machine.live ?? machine.config!).metadata.looseLayers : [];
      expect(world.files()).toHaveLength(files.length - 2 + (unsure?.length ?? 0));
      expect(await vm.view()).toEqual(now);
    },
    async life() {
      if (random(3) === 0 && machine.live !== null) {
        wasPoweredOff = true;
        world.scripted.powerOff(machine);
      } else await lives(vm, world, random);
      now = await vm.view();
    },
  };
};
