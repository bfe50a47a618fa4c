/**
 * Internal states that somebody made in a layer, on a scripted libvirt with real images: whatever is merged around them, they read what they
 * did, and once they are gone the layers are merged.
 */
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { StartBackupRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import {
  RemoveSnapshotRequest,
  RevertSnapshotRequest,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/snapshot';
import { newId } from '@virtkeep/shared/ids';
import { readLayers } from '../../agent/src/disks/index.ts';
import { parseDomain } from '../../agent/src/domain-xml/index.ts';
import { mergeState } from '../../agent/src/snapshots/index.ts';
import { backupWorkflow } from '../../agent/src/workflows/backup/backup.ts';
import { removeSnapshotWorkflow } from '../../agent/src/workflows/snapshot/remove.ts';
import { revertSnapshotWorkflow } from '../../agent/src/workflows/snapshot/revert.ts';
import { run } from '../lab/run.ts';
import { skipPauses } from './pauses.ts';
import { type MadeBackup, makeBackup, makeState, perform } from './stories/perform.ts';
import { makeVm, stateId, TARGETS, type Vm } from './stories/vm.ts';
import { silent, World } from './world.ts';

skipPauses();

let world: World;
let vm: Vm;
beforeEach(() => {
  world = new World();
});
afterEach(() => world.remove());

/** An internal state of all disks. */
interface Inner {
  name: string;
  files: string[];
  /** What it reads. */
  content: string[];
}

async function makeInner(name: string, { isListed = true } = {}): Promise<Inner> {
  const { machine } = vm;
  const files = vm.tops();
  const content = await vm.view();
  for (const path of files) await run(['qemu-img', 'snapshot', '-c', name, path]);
  const disks = TARGETS.map(target => `<disk name='${target}' snapshot='internal'/>`).join('');
  const parent = machine.current === null ? '' : `<parent><name>${machine.current}</name></parent>`;
  const domain = machine.live ?? machine.config!;
  if (!isListed) return { name, files, content };
  machine.states.set(
    name,
    `<domainsnapshot><name>${name}</name><creationTime>1800000000</creationTime>${parent}<memory snapshot='no'/><disks>${disks}</disks>${domain}</domainsnapshot>`,
  );
  machine.current = name;
  return { name, files, content };
}

async function contentOf({ name, files }: Inner): Promise<string[]> {
  const found: string[] = [];
  for (const path of files) {
    const copy = join(world.root, 'inner-copy');
    copyFileSync(path, copy);
    await run(['qemu-img', 'snapshot', '-a', name, copy]);
    found.push(await world.content(copy));
    rmSync(copy);
  }
  return found;
}

/** As libvirt does with the VM off. */
async function removeInner({ name, files }: Inner): Promise<void> {
  const { machine } = vm;
  for (const path of files) await run(['qemu-img', 'snapshot', '-d', name, path]);
  const parent = /<parent><name>(.*?)</.exec(machine.states.get(name) ?? '')?.[1] ?? null;
  for (const [other, xml] of machine.states)
    machine.states.set(
      other,
      xml.replace(
        `<parent><name>${name}</name></parent>`,
        parent === null ? '' : `<parent><name>${parent}</name></parent>`,
      ),
    );
  machine.states.delete(name);
  if (machine.current === name) machine.current = parent;
}

/** Each into another cluster than the last three: of what an internal state has itself no merge changes anything. */
async function write(number: number): Promise<string[]> {
  await vm.write((number % 4) * 16 + Math.floor(number / 4), number + 1);
  return vm.view();
}

const removeByUser = (name: string) =>
  perform(world, operationId =>
    removeSnapshotWorkflow(
      world.dependencies,
      RemoveSnapshotRequest.fromPartial({
        ...{ operationId, domainId: vm.machine.uuid, snapshotId: stateId(vm.machine, name) },
      }),
    ),
  );

const revertTo = (name: string) =>
  perform(world, operationId =>
    revertSnapshotWorkflow(
      world.dependencies,
      RevertSnapshotRequest.fromPartial({
        ...{ operationId, domainId: vm.machine.uuid, snapshotId: stateId(vm.machine, name) },
      }),
    ),
  );

/** @returns what the user is told */
async function merge(name: string | null): Promise<string[]> {
  const told: string[] = [];
  const goal = { domainId: vm.machine.uuid, name, countsAsDeletion: false };
  const { signal } = new AbortController();
  await mergeState(world.dependencies, goal, { signal, log: silent, warn: text => void told.push(text) });
  return told;
}

const depth = async () => (await readLayers(vm.tops()[0]!, 'qcow2')).length;
const notes = () => parseDomain(vm.machine.live ?? vm.machine.config!).metadata.looseLayers ?? [];

describe.each([true, false])('a state below, of a VM that runs: %s', running => {
  beforeEach(async () => {
    vm = await makeVm(world, { running });
  });

  test.each([true, false])(
    'is not deleted while an internal one lies in the layer above; listed: %s',
    async isListed => {
      await write(0);
      await makeState(world, vm.machine.uuid, 'e1');
      await write(1);
      const inner = await makeInner('S', { isListed });
      await write(2);
      await makeState(world, vm.machine.uuid, 'e2');
      const now = await write(3);
      await expect(removeByUser('e1')).rejects.toMatchObject({
        msgKey: 'snapshot_in_use',
        params: { reason: expect.stringContaining(isListed ? '"S"' : 'does not list') },
      });
      expect([await contentOf(inner), await vm.view()]).toEqual([inner.content, now]);
      // what lies above goes into its file
      await removeByUser('e2');
      expect([await contentOf(inner), await vm.view()]).toEqual([inner.content, now]);
      await removeInner(inner);
      await removeByUser('e1');
      expect([await vm.view(), await depth(), notes()]).toEqual([now, 1, []]);
    },
  );

  test('is merged with others while the internal one lies further above', async () => {
    await makeState(world, vm.machine.uuid, 'e1');
    await write(1);
    await makeState(world, vm.machine.uuid, 'e2');
    await write(2);
    const inner = await makeInner('S');
    const now = await write(3);
    await removeByUser('e1');
    expect([await contentOf(inner), await vm.view(), await depth()]).toEqual([inner.content, now, 2]);
  });

  test('leaves its layer when it goes without being asked, and that is merged later', async () => {
    await makeState(world, vm.machine.uuid, 'lent');
    await write(1);
    const inner = await makeInner('S');
    const now = await write(2);
    expect(await merge('lent')).toEqual([expect.stringContaining('"S"'), expect.stringContaining('"S"')]);
    expect([...vm.machine.states.keys()]).toEqual(['S']);
    expect([await contentOf(inner), await vm.view(), await depth()]).toEqual([inner.content, now, 2]);
    await removeInner(inner);
    expect(await merge(null)).toEqual([]);
    expect([await vm.view(), await depth(), notes()]).toEqual([now, 1, []]);
  });

  test('keeps what an internal one reads that lies in a branch which the VM left', async () => {
    await write(0);
    await makeState(world, vm.machine.uuid, 'e1');
    await write(1);
    const inner = await makeInner('S');
    await write(2);
    await revertTo('e1');
    const now = await write(3);
    await removeByUser('e1');
    expect([await contentOf(inner), await vm.view()]).toEqual([inner.content, now]);
  });

  test.each(['kept by it', 'below a layer that waits'])(
    'is not overwritten by an internal one in its file: %s',
    async what => {
      await write(0);
      const inner = await makeInner('S');
      const later = await write(1);
      await makeState(world, vm.machine.uuid, 'ext');
      const now = await write(2);
      if (what !== 'kept by it') {
        await makeInner('T');
        await merge('ext');
      }
      await expect(revertTo('S')).rejects.toMatchObject({
        msgKey: 'snapshot_in_use',
        params: { reason: expect.stringContaining('delete the later states first') },
      });
      expect([await contentOf(inner), await vm.view()]).toEqual([inner.content, now]);
      expect(await Promise.all(inner.files.map(path => world.content(path)))).toEqual(later);
    },
  );
});

test('increments keep the chain short beside an internal state, and merge all when it is gone', async () => {
  vm = await makeVm(world, { running: true, agent: true });
  const archive = await makeBackup(world, vm.machine.uuid, { canBeIncremental: true });
  await write(1);
  const inner = await makeInner('S');
  const view: string[][] = [];
  for (let number = 2; number < 10; number += 1) {
    view.push(await write(number));
    const warnings = await extend(archive);
    expect(await contentOf(inner)).toEqual(inner.content);
    if (number > 4) expect(warnings).toEqual([expect.stringContaining('"S"')]);
    expect(await depth()).toBeLessThanOrEqual(5);
  }
  for (const [index, seen] of view.entries())
    expect(await world.archived(archive.path, index + 2)).toEqual(seen);
  await removeInner(inner);
  // a deletion ends the archive
  await makeBackup(world, vm.machine.uuid, { canBeIncremental: true, removedArchives: [archive.id] });
  expect([await vm.view(), await depth()]).toEqual([view.at(-1), 2]);
});

async function extend(archive: MadeBackup): Promise<string[]> {
  const warnings: string[] = [];
  await perform(world, operationId => context => {
    const warn = (text: string) => void warnings.push(text);
    return backupWorkflow(
      world.dependencies,
      StartBackupRequest.fromPartial({
        ...{ operationId, domainId: vm.machine.uuid, fileId: newId() },
        ...{ extend: archive.ref, extendFileId: archive.id },
      }),
    )({ ...context, warn });
  });
  return warnings;
}

describe('a backup during which somebody makes an internal state', () => {
  beforeEach(async () => {
    vm = await makeVm(world, { running: true, agent: true });
  });

  /** Once libvirt has been asked that often for the running VM's jobs on disks since the layer is there. */
  async function backupWith(point: string, times: number): Promise<Inner | undefined> {
    const originals = vm.tops();
    let inner: Inner | undefined;
    let left = times;
    world.scripted.reach = async at => {
      if (inner || at !== point || vm.tops().join() === originals.join()) return;
      left -= 1;
      // libvirt makes none while a job runs
      if (left > 0 || vm.machine.mirrors.size > 0) return;
      inner = { ...{ name: 'S', files: [], content: [] } };
      await write(1);
      inner = await makeInner('S');
      await write(2);
    };
    await makeBackup(world, vm.machine.uuid);
    world.scripted.reach = async () => {};
    return inner;
  }

  test.each([
    ['virDomainSnapshotCreateXML.after', 1],
    ['virDomainGetBlockJobInfo.before', 1],
    ['virDomainSetMetadata.before', 1],
    ['virDomainSetMetadata.after', 1],
    // it comes between the last look and the merge
    ['virDomainBlockCommit.before', 1],
  ])(
    'leaves the layer to it, and the next one after its deletion merges that: %s %i',
    async (point, times) => {
      const originals = vm.tops();
      await write(0);
      const inner = (await backupWith(point, times))!;
      const now = await vm.view();
      expect([await contentOf(inner), inner.files.every(path => existsSync(path))]).toEqual([
        inner.content,
        true,
      ]);
      expect(vm.tops()).toEqual(inner.files);
      // another one goes into that layer
      await makeBackup(world, vm.machine.uuid);
      expect([await contentOf(inner), await vm.view(), vm.tops()]).toEqual([inner.content, now, inner.files]);
      world.scripted.powerOff(vm.machine);
      await removeInner(inner);
      await world.scripted.start(vm.machine);
      await makeBackup(world, vm.machine.uuid);
      expect([await vm.view(), vm.tops(), notes()]).toEqual([now, originals, []]);
      expect(inner.files.filter(path => existsSync(path))).toEqual([]);
    },
  );
});

test('a merge that was given up is not gone on with once an internal state lies in its upper file', async () => {
  vm = await makeVm(world, { running: true });
  await write(0);
  await makeState(world, vm.machine.uuid, 's');
  await write(1);
  const ending = new AbortController();
  world.scripted.reach = async point => {
    if (point === 'virDomainBlockCommit.after') ending.abort();
  };
  const goal = { domainId: vm.machine.uuid, name: 's', countsAsDeletion: true };
  const options = { signal: ending.signal, log: silent, warn: () => {} };
  await expect(mergeState(world.dependencies, goal, options)).rejects.toThrow();
  world.scripted.reach = async () => {};
  const inner = await makeInner('S');
  const now = await write(2);
  for (const power of ['running', 'off']) {
    if (power === 'off') world.scripted.powerOff(vm.machine);
    expect(await merge(null)).toHaveLength(2);
    expect([await contentOf(inner), await vm.view()]).toEqual([inner.content, now]);
    expect(notes().map(({ stage }) => stage ?? 'none')).not.toContain('live');
  }
  await removeInner(inner);
  expect(await merge(null)).toEqual([]);
  expect([await vm.view(), await depth(), notes()]).toEqual([now, 1, []]);
});
