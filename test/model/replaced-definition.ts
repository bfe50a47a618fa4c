/**
 * Another manager (virsh, a cluster) puts the definition of before back while a layer of the VM is merged, and the guest stops: at
 * every call that the merge makes of libvirt, with the agent alive or killed there. What the guest wrote last must still be in a file.
 */
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import type { OtherNodes } from '../../agent/src/other-nodes.ts';
import { mergeState, removeAutomaticState } from '../../agent/src/snapshots/index.ts';
import { withSources } from '../../agent/src/snapshots/state-xml.ts';
import type { Machine } from './scripted-machine.ts';
import { expectedContent, silent, World } from './world.ts';

interface Vm {
  machine: Machine;
  lower: string;
  overlay: string;
}

/** Whether the file below the overlay is the disk's first one, or one that a deleted state kept. */
interface Case {
  running: boolean;
  /** A state of the user that is deleted, else one that an operation made for itself. */
  deleted: boolean;
}

const NAME = 'virtkeep-tmp-1';
/** `make soak` takes every point, `make test` some. */
const STRIDE = Number(process.env.VIRTKEEP_UNDO_HISTORIES ?? 5) >= 100 ? 1 : 13;
const FIRST_SEED = Number(process.env.VIRTKEEP_UNDO_SEED ?? 1);

/** @param upper the lower file is itself an overlay, of an older state */
async function makeVm(world: World, { running, deleted }: Case, upper = false): Promise<Vm> {
  const bottom = await world.disk('vda.qcow2');
  const lower = upper ? join(world.pool, 'vda.older') : bottom;
  const xml = `<domain type='kvm'><name>vm</name><uuid>${newId()}</uuid><memory>1024</memory><os><type>hvm</type></os>
    <devices><disk type='file' device='disk'><driver name='qemu' type='qcow2'/><source file='${bottom}'/>
    <target dev='vda' bus='virtio'/></disk></devices></domain>`;
  const machine = world.scripted.add(xml, running);
  await world.write(bottom, 0, 1);
  const snapshot = (
    name: string,
    path: string,
  ) => `<domainsnapshot><name>${name}</name><memory snapshot='no'/><disks>
    <disk name='vda' snapshot='external' type='file'><source file='${path}'/></disk></disks></domainsnapshot>`;
  if (upper) {
    await (await world.scripted.libvirt.domainByUuid(machine.uuid)).createSnapshot(snapshot('older', lower));
    await world.write(lower, 1, 2);
  }
  const overlay = join(world.pool, 'vda.top');
  const domain = await world.scripted.libvirt.domainByUuid(machine.uuid);
  await domain.createSnapshot(snapshot(deleted ? 's' : NAME, overlay));
  await world.write(overlay, ...((upper ? [2, 3] : [1, 2]) as [number, number]));
  return { machine, lower, overlay };
}

const UNUSED: OtherNodes = { whoUses: async things => things.map(() => ({ kind: 'unused' })) };

async function merge(
  world: World,
  { machine, overlay }: Vm,
  deleted: boolean,
  warn: (text: string) => void,
): Promise<void> {
  const options = { signal: AbortSignal.timeout(60_000), log: silent, warn };
  const domainId = machine.uuid;
  const dependencies = { ...world.dependencies, otherNodes: UNUSED };
  if (deleted) {
    const name = machine.states.has('s') ? 's' : null;
    return mergeState(dependencies, { domainId, name, countsAsDeletion: true }, options);
  }
  const overlays = [{ targetDev: 'vda', path: overlay }];
  return removeAutomaticState(dependencies, { domainId, name: NAME, overlays, noted: true }, options);
}

/** The guest is stopped, and its next start has the disk of before; what else the definition says stays. */
function replace(world: World, { machine, lower }: Vm): void {
  if (machine.live !== null) world.scripted.powerOff(machine);
  machine.config = withSources(machine.config!, { vda: { path: lower, format: 'qcow2', block: false } });
}

/** @returns whether the merge got to that point */
async function interfere(kind: Case, at: number, killed: boolean, starts: boolean): Promise<boolean> {
  const world = new World();
  const warnings: string[] = [];
  try {
    const vm = await makeVm(world, kind);
    let count = 0;
    let reached = '';
    let kill: (error: Error) => void = () => {};
    const died = new Promise<never>((_resolve, reject) => {
      kill = reject;
    });
    died.catch(() => {});
    world.scripted.reach = async point => {
      if (count++ !== at) return;
      reached = point;
      replace(world, vm);
      if (!killed) return;
      kill(new Error('killed'));
      await new Promise(() => {});
    };
    await Promise.race([merge(world, vm, kind.deleted, text => warnings.push(text)), died]).catch(() => {});
    world.scripted.reach = async () => {};
    if (reached === '') return false;
    if (starts && vm.machine.live === null) {
      await world.scripted.start(vm.machine);
      // what the guest of before writes is on the lower file
      await world.write(vm.lower, 2, 3);
    }
    await merge(world, vm, kind.deleted, text => warnings.push(text));
    await check(world, vm, starts, { at, reached, warnings });
    return true;
  } finally {
    world.remove();
  }
}

async function check(
  world: World,
  { machine, lower, overlay }: Vm,
  starts: boolean,
  where: object,
): Promise<void> {
  const written: [number, number][] = [[0, 1], [1, 2]]; // biome-ignore format: one line
  const newer: [number, number][] = [...written, [2, 3]];
  const files = readdirSync(world.pool).map(name => join(world.pool, name));
  const contents = await Promise.all(files.map(path => world.content(path)));
  const wanted = [expectedContent(written), ...(starts ? [expectedContent(newer)] : [])];
  expect({ ...where, found: contents.some(content => wanted.includes(content)) }).toMatchObject({
    found: true,
  });
  // what stays is told, and what the definition names is there
  const { disks } = parseDomain(machine.config!);
  expect({ ...where, there: existsSync(disks[0]!.path!) }).toMatchObject({ there: true });
  const { warnings } = where as { warnings: string[] };
  const isTop = disks[0]!.path === overlay;
  // of a state that was not yet noted as deleted nothing is merged, and so nothing told
  const isNoted = machine.config!.includes(`merging="${overlay}"`);
  const told = warnings.some(text => text.includes(overlay));
  if (existsSync(overlay) && !isTop && isNoted) expect({ ...where, told }).toMatchObject({ told: true });
  if (!existsSync(overlay)) expect({ ...where, disk: disks[0]!.path }).toMatchObject({ disk: lower });
}

/**
 * Somebody takes the definition in the middle of the merge and puts it back after its end, when the guest is off. The lower file is
 * no disk's first one.
 * @returns whether the merge got to that point
 */
async function putBackLater(kind: Case, at: number): Promise<boolean> {
  const world = new World();
  try {
    const vm = await makeVm(world, { ...kind, running: true }, true);
    let count = 0;
    let taken: string | null = null;
    world.scripted.reach = async () => {
      if (count++ === at) taken = vm.machine.config;
    };
    await merge(world, vm, kind.deleted, () => {});
    world.scripted.reach = async () => {};
    if (taken === null) return false;
    if (vm.machine.live !== null) world.scripted.powerOff(vm.machine);
    vm.machine.config = taken;
    const dependencies = { ...world.dependencies, otherNodes: UNUSED };
    const request = { domainId: vm.machine.uuid, name: null, countsAsDeletion: false };
    await mergeState(dependencies, request, { signal: AbortSignal.timeout(60_000), log: silent, warn() {} });
    const files = readdirSync(world.pool).map(name => join(world.pool, name));
    const contents = await Promise.all(files.map(path => world.content(path)));
    const found = contents.includes(expectedContent([[0, 1], [1, 2], [2, 3]])); // biome-ignore format: one line
    expect({ at, found }).toEqual({ at, found: true });
    return true;
  } finally {
    world.remove();
  }
}

/** @param running whether the guest runs when its layers are merged */
export function cases(running: boolean): [string, Case][] {
  return [
    ['the state of an operation', { running, deleted: false }],
    ['a deleted state', { running, deleted: true }],
  ];
}

/** The definition of the middle is put back after the end, whatever the middle is. */
export async function isPutBackAnywhere(kind: Case): Promise<void> {
  let at = FIRST_SEED % STRIDE;
  while (await putBackLater(kind, at)) at += STRIDE;
  expect(at).toBeGreaterThan(20);
}

/** The definition of before comes back at any point of a merge. */
export function replacedAnywhere(running: boolean): void {
  describe.each(cases(running))('%s', (_name, kind) => {
    test.each([
      ['goes on', false, false],
      ['is killed', true, false],
      ['is killed, and the guest is started', true, true],
    ])('the agent %s', async (_what, killed, starts) => {
      let at = FIRST_SEED % STRIDE;
      while (await interfere(kind, at, killed, starts)) at += STRIDE;
      expect(at).toBeGreaterThan(20);
    });
  });
}
