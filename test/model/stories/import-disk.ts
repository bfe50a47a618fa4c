/** A disk image that becomes a disk: of a new VM, and of one that others start and write with meanwhile. */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { ImportDiskRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import type { Effect } from '../../../agent/src/workflows/effect.ts';
import { importDiskWorkflow, planImportDisk } from '../../../agent/src/workflows/import-disk/import-disk.ts';
import type { Machine } from '../scripted-machine.ts';
import type { BuildStory } from '../undo-model.ts';
import type { World } from '../world.ts';
import { isUndone, lives, makeVm, TARGETS } from './vm.ts';

const FILENAME = 'foreign.vdi';

/** The image, and the work that imports it. */
function foreignImage(world: World) {
  mkdirSync(world.backups, { recursive: true });
  const path = join(world.backups, FILENAME);
  const raw = join(world.scratch, 'foreign.raw');
  mkdirSync(world.scratch, { recursive: true });
  const content = Buffer.alloc(256 * 1024, 'foreign');
  writeFileSync(raw, content);
  execFileSync('qemu-img', ['convert', '-f', 'raw', '-O', 'vdi', raw, path]);
  rmSync(raw);
  const bytes = readFileSync(path);
  const contentOf = (disk: string) => {
    const out = join(world.scratch, 'imported.raw');
    execFileSync('qemu-img', ['convert', '-U', '-f', 'qcow2', '-O', 'raw', disk, out]);
    const found = readFileSync(out);
    rmSync(out);
    return found;
  };
  return {
    isSame: () => readFileSync(path).equals(bytes),
    isImported: (disk: string) => contentOf(disk).equals(content),
    workflow: (operationId: string, request: Partial<ImportDiskRequest>) => {
      const file = { poolId: world.poolRecord.id, filename: FILENAME };
      const whole = ImportDiskRequest.fromPartial({ operationId, file, fileId: newId(), ...request });
      const source = { pool: world.poolRecord, path, filename: FILENAME };
      return importDiskWorkflow(
        world.dependencies,
        whole,
        planImportDisk(whole, source, [world.poolRecord], 'node'),
      );
    },
  };
}

const pathsOf = (xml: string | null): string[] =>
  xml === null ? [] : parseDomain(xml).disks.flatMap(({ path }) => path ?? []);
/** Disks that a machine has besides its own. */
const further = ({ live, config }: Machine, own: readonly string[]): string[] =>
  [...new Set([...pathsOf(live), ...pathsOf(config)])].filter(path => !own.includes(path));

export const importNew: BuildStory = async world => {
  const image = foreignImage(world);
  const files = world.files();
  const domainId = newId();
  const machine = () => world.scripted.machines.get(domainId);
  const newDomain = { name: 'made', memoryCount: 64n, cpuCount: 1 };
  return {
    kind: 'import_disk',
    points: 40,
    workflow: id => image.workflow(id, { domainId, newDomain: { ...newDomain, virtio: true } as never }),
    undone: effect => isUndone(world, effect),
    async safe() {
      expect(image.isSame()).toBe(true);
    },
    async settled(committed) {
      expect(machine() !== undefined).toBe(committed);
      expect(world.files()).toHaveLength(files.length + (committed ? 1 : 0));
      if (committed) expect(image.isImported(pathsOf(machine()!.config)[0]!)).toBe(true);
    },
  };
};

export const importFurther: BuildStory = async (world, random) => {
  const image = foreignImage(world);
  const vm = await makeVm(world, { running: random(2) === 1 });
  await vm.write(0, 1);
  const own = vm.tops();
  const ownView = async () => (await vm.view()).slice(0, TARGETS.length);
  const { machine } = vm;
  let now = await ownView();
  const files = world.files();
  const wasLeft = (path: string) =>
    world.warnings.some(text => text.startsWith('The disk ') && text.includes(`(${path}) was left`));
  return {
    kind: 'import_disk',
    points: 50,
    workflow: id => image.workflow(id, { domainId: machine.uuid }),
    async undone(effect: Effect) {
      // whoever has written to it keeps it
      if ((effect.type === 'file' || effect.type === 'attached_disk') && wasLeft(effect.path)) return;
      if (effect.type === 'attached_disk') expect(further(machine, own)).not.toContain(effect.path);
      else await isUndone(world, effect);
    },
    async safe() {
      expect(await ownView()).toEqual(now);
      expect(image.isSame()).toBe(true);
      // no VM has a disk that is not there
      for (const path of further(machine, own)) expect(existsSync(path)).toBe(true);
    },
    async settled(committed) {
      const disks = further(machine, own);
      expect(disks).toHaveLength(committed || disks.some(wasLeft) ? 1 : 0);
      expect(world.files()).toHaveLength(files.length + disks.length);
      // in whatever the VM has of a running form and a definition
      if (committed)
        for (const xml of [machine.live, machine.config])
          if (xml !== null) expect(pathsOf(xml)).toContain(disks[0]);
    },
    async life() {
      await lives(vm, world, random);
      now = await ownView();
    },
  };
};
