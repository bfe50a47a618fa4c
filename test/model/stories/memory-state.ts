/** A VM whose disks are LUNs: its saved state is its memory alone, and what a revert does shows in its definition only. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import { parseDomain } from '../../../agent/src/domain-xml/index.ts';
import {
  keepFirmwareOfState,
  keptFirmwarePaths,
} from '../../../agent/src/workflows/firmware/state-firmware.ts';
import { revertSnapshotWorkflow } from '../../../agent/src/workflows/snapshot/revert.ts';
import type { Machine } from '../scripted-machine.ts';
import type { BuildStory } from '../undo-model.ts';
import type { World } from '../world.ts';
import { isUndone, stateId } from './vm.ts';

export interface MemoryState {
  machine: Machine;
  /** Its UEFI variables: `then` when the state was made, `now` since. */
  nvram: string;
}

const [THEN_MIB, NOW_MIB] = [1, 2];

const domainXml = (lun: string, nvram: string) => `<domain type='kvm'>
  <name>vm</name><uuid>${newId()}</uuid><memory unit='MiB'>${THEN_MIB}</memory>
  <os><type arch='x86_64' machine='pc'>hvm</type><loader readonly='yes' type='pflash'>/fw</loader><nvram>${nvram}</nvram></os>
  <devices><disk type='block' device='lun'><driver name='qemu' type='raw'/><source dev='${lun}'/>
    <target dev='sda' bus='scsi'/></disk></devices></domain>`;

/** A VM with a state "s" of its memory, which has got more memory since. */
export async function makeMemoryState(world: World, isRunning: boolean): Promise<MemoryState> {
  const [lun, nvram] = [join(world.root, 'lun'), join(world.nvram, 'vm_VARS.fd')];
  writeFileSync(lun, Buffer.alloc(4096));
  writeFileSync(nvram, 'then');
  const { scripted } = world;
  const machine = scripted.add(domainXml(lun, nvram), true);
  const domain = await scripted.libvirt.domainByUuid(machine.uuid);
  const memory = join(world.pool, 's.memory');
  await domain.createSnapshot(
    `<domainsnapshot><name>s</name><memory snapshot='external' file='${memory}'/><disks><disk name='sda' snapshot='no'/></disks></domainsnapshot>`,
  );
  await keepFirmwareOfState(world.dependencies, domain, 's');
  writeFileSync(nvram, 'now');
  scripted.powerOff(machine);
  machine.config = machine.config!.replace(`>${THEN_MIB}</memory>`, `>${NOW_MIB}</memory>`);
  if (isRunning) await scripted.start(machine);
  return { machine, nvram };
}

const memoryMiB = (xml: string | null): number | null => (xml === null ? null : parseDomain(xml).memoryMiB);

export const revertMemory: BuildStory = async (world, random) => {
  const wasRunning = random(3) > 0;
  const { machine, nvram } = await makeMemoryState(world, wasRunning);
  const [former, files] = [machine.config, world.files()];
  const read = (path: string) => readFileSync(path, 'utf8');
  let operation = '';
  return {
    kind: 'revert_snapshot',
    points: 70,
    workflow: id => {
      operation = id;
      const request = { operationId: id, domainId: machine.uuid, snapshotId: stateId(machine, 's') };
      return revertSnapshotWorkflow(world.dependencies, request as never);
    },
    async undone(effect, committed) {
      await isUndone(world, effect);
      if (effect.type !== 'revert' || committed) return;
      expect([machine.config, read(nvram)]).toEqual([former, 'now']);
      expect(memoryMiB(machine.live) ?? NOW_MIB).toBe(NOW_MIB);
    },
    async safe(committed) {
      if (committed) return;
      const kept = keptFirmwarePaths(world.dependencies, machine.uuid, operation).nvram;
      expect([nvram, kept].filter(path => existsSync(path)).map(read)).toContain('now');
      if (machine.config === former) expect(read(nvram)).toBe('now');
    },
    async settled(committed) {
      expect(world.files()).toEqual(files);
      expect(memoryMiB(machine.config)).toBe(committed ? THEN_MIB : NOW_MIB);
      expect(read(nvram)).toBe(committed ? 'then' : 'now');
      // one that cannot be started is told of, and holds up nothing
      if (world.warnings.length > 0) return;
      const runs = committed ? THEN_MIB : wasRunning ? NOW_MIB : null;
      expect(memoryMiB(machine.live)).toBe(runs);
    },
  };
};
