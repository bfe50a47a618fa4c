/** The workflows of the model, with what must hold of each. */
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { savedStateId } from '../../agent/src/snapshots/index.ts';
import { diskStates } from '../../agent/src/snapshots/state-xml.ts';
import type { Effect } from '../../agent/src/workflows/context.ts';
import { changeOffline } from '../../agent/src/workflows/guest/offline.ts';
import { createSnapshotWorkflow } from '../../agent/src/workflows/snapshot/create.ts';
import { revertSnapshotWorkflow } from '../../agent/src/workflows/snapshot/revert.ts';
import { keepFirmwareOfState, keptFirmwarePaths } from '../../agent/src/workflows/state-firmware.ts';
import type { Machine } from './scripted-libvirt.ts';
import type { BuildStory, Random, World } from './undo-model.ts';
import { expectedContent, silent } from './undo-model.ts';

const TARGETS = ['vda', 'vdb'];

interface Vm {
  machine: Machine;
  /** What each disk's guest reads now, by its live or next top. */
  view(): Promise<string[]>;
  /** Files that the guest writes to, or would. */
  tops(): string[];
  write(block: number, byte: number): Promise<void>;
}

const domainXml = (uuid: string, disks: string[], { nvram = '', agent = false } = {}) => `<domain type='kvm'>
  <name>vm</name><uuid>${uuid}</uuid><memory unit='KiB'>1024</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type>${nvram && `<loader readonly='yes' type='pflash'>/fw</loader><nvram>${nvram}</nvram>`}</os>
  <devices>${disks
    .map(
      (
        path,
        index,
      ) => `<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${path}'/>
        <target dev='${TARGETS[index]}' bus='virtio'/></disk>`,
    )
    .join('\n')}
  ${agent ? `<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>` : ''}
  </devices></domain>`;

async function makeVm(
  world: World,
  options: { running: boolean; nvram?: string; agent?: boolean },
): Promise<Vm> {
  const disks = await Promise.all(TARGETS.map(target => world.disk(`${target}.qcow2`)));
  const machine = world.scripted.add(domainXml(newId(), disks, options), options.running);
  const tops = () =>
    [...diskStates(machine.live ?? machine.config!).values()].map(({ sourcePath }) => sourcePath!);
  return {
    machine,
    tops,
    view: async () => {
      const seen: string[] = [];
      for (const path of tops()) seen.push(await world.content(path));
      return seen;
    },
    write: async (block, byte) => {
      for (const path of tops()) await world.write(path, block, byte);
    },
  };
}

/** Somebody starts the guest by other means, and it writes something that must not be lost. */
async function lives({ machine, write }: Vm, world: World, random: Random): Promise<void> {
  const { reach } = world.scripted;
  world.scripted.reach = async () => {};
  try {
    if (machine.live === null) await world.scripted.start(machine);
    await write(40 + random(20), 1 + random(250));
  } finally {
    world.scripted.reach = reach;
  }
}

/** What holds after each kind of undo, whatever the workflow. */
async function isUndone(world: World, effect: Effect): Promise<void> {
  const { machines } = world.scripted;
  switch (effect.type) {
    case 'file':
    case 'directory':
      expect([effect.path, existsSync(effect.path)]).toEqual([effect.path, false]);
      return;
    case 'domain':
      expect(machines.has(effect.domainId)).toBe(false);
      return;
    case 'frozen_guest':
      expect(machines.get(effect.domainId)?.frozen ?? false).toBe(false);
      return;
    case 'paused_guest':
      expect(machines.get(effect.domainId)?.suspended ?? false).toBe(false);
      return;
    case 'automatic_state':
      expect(machines.get(effect.domainId)?.states.has(effect.name) ?? false).toBe(false);
      expect(effect.overlays.filter(({ path }) => existsSync(path))).toEqual([]);
      return;
    case 'revert': {
      const machine = machines.get(effect.domainId)!;
      const former = parseDomain(effect.formerDefinition).disks.map(({ path }) => path);
      expect(parseDomain(machine.config!).disks.map(({ path }) => path)).toEqual(former);
      return;
    }
    case 'archive_access':
      expect(statSync(effect.path).mode & 0o777).toBe(effect.mode);
      return;
    case 'archive':
      expect([existsSync(effect.partialPath), existsSync(effect.finalPath)]).toEqual([false, false]);
      return;
    default:
      return;
  }
}

const stateId = (machine: Machine, name: string): string => {
  const created = /<creationTime>(\d+)</.exec(machine.states.get(name)!)![1];
  return savedStateId(machine.uuid, { name, createdUnix: Number(created) });
};

const revert: BuildStory = async (world, random) => {
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
  const xml = `<domainsnapshot><name>s</name><memory snapshot='no'/><disks>${overlays.join('')}</disks></domainsnapshot>`;
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
    points: 60,
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

const offline: BuildStory = async world => {
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
    points: 40,
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
          return {};
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

const createState: BuildStory = async (world, random) => {
  const vm = await makeVm(world, { running: random(4) > 0, agent: true });
  const { machine } = vm;
  await vm.write(0, 1);
  let now = await vm.view();
  const files = world.files();
  const tops = vm.tops();
  return {
    kind: 'create_snapshot',
    points: 40,
    workflow: id =>
      createSnapshotWorkflow(world.dependencies, {
        ...{ operationId: id, domainId: machine.uuid, name: 's', description: '', memory: false },
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

export const STORIES: Record<string, BuildStory> = { revert, offline, createState };
