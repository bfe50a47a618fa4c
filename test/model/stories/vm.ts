/** The VM of a story, and what holds of every one. */
import { existsSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { expect } from '@jest/globals';
import { newId } from '@virtkeep/shared/ids';
import {
  type DomainMetadata,
  isLent,
  NO_METADATA,
  parseDomain,
  setMetadata,
} from '../../../agent/src/domain-xml/index.ts';
import { savedStateId } from '../../../agent/src/snapshots/index.ts';
import type { Effect } from '../../../agent/src/workflows/effect.ts';
import type { Machine } from '../scripted-machine.ts';
import type { Random } from '../undo-model.ts';
import type { World } from '../world.ts';

export const TARGETS = ['vda', 'vdb'];

export interface Vm {
  machine: Machine;
  /** What each disk's guest reads now, by its live or next top. */
  view(): Promise<string[]>;
  /** Files that the guest writes to, or would. */
  tops(): string[];
  write(block: number, byte: number): Promise<void>;
}

interface VmOptions {
  name?: string;
  running: boolean;
  nvram?: string;
  /** libvirt chooses the firmware. */
  efi?: boolean;
  agent?: boolean;
  /** Its disks are devices, beside which nothing lies. */
  devices?: boolean;
  metadata?: Partial<DomainMetadata>;
}

const domainXml = (
  uuid: string,
  disks: string[],
  { name = 'vm', nvram = '', efi = false, agent = false, devices = false }: VmOptions,
) => `<domain type='kvm'>
  <name>${name}</name><uuid>${uuid}</uuid><memory unit='KiB'>1024</memory>
  <os${efi ? " firmware='efi'" : ''}><type arch='x86_64' machine='pc'>hvm</type>${nvram && `<loader readonly='yes' type='pflash'>/fw</loader><nvram>${nvram}</nvram>`}</os>
  <devices>${disks
    .map(
      (
        path,
        index,
      ) => `<disk type='${devices ? 'block' : 'file'}' device='disk'><driver name='qemu' type='qcow2'/><source ${devices ? 'dev' : 'file'}='${path}'/>
        <target dev='${TARGETS[index]}' bus='virtio'/></disk>`,
    )
    .join('\n')}
  ${agent ? `<channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0' state='connected'/></channel>` : ''}
  </devices></domain>`;

/** A VM with two disks. */
export async function makeVm(world: World, options: VmOptions): Promise<Vm> {
  const { name = 'vm', running, metadata, devices = false } = options;
  const prefix = name === 'vm' ? '' : `${name}-`;
  const paths = TARGETS.map(target => join(devices ? world.root : world.pool, `${prefix}${target}.qcow2`));
  for (const path of paths) await world.blank(path);
  const xml = domainXml(newId(), paths, options);
  const whole = metadata ? setMetadata(xml, { ...NO_METADATA, ...metadata }) : xml;
  return vmOf(world, world.scripted.add(whole, running));
}

/** A machine as its guest sees it. */
export function vmOf(world: World, machine: Machine): Vm {
  const tops = () => ownDisks(machine.live ?? machine.config!);
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

function ownDisks(xml: string): string[] {
  const { disks, metadata } = parseDomain(xml);
  return disks.filter(disk => !isLent(disk, metadata)).map(({ path }) => path!);
}

/** Somebody starts the guest by other means, and it writes something that must not be lost. */
export async function lives({ machine, write }: Vm, world: World, random: Random): Promise<void> {
  if (machine.live === null) await world.scripted.start(machine);
  await write(40 + random(20), 1 + random(250));
}

/** What holds after each kind of undo, whatever the workflow. */
export async function isUndone(world: World, effect: Effect): Promise<void> {
  const { machines } = world.scripted;
  switch (effect.type) {
    case 'file': {
      // the one with the claim is followed by the one that knows the file
      const path = effect.claim ?? effect.path;
      expect([path, existsSync(path)]).toEqual([path, false]);
      return;
    }
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

/** Id of a saved state. */
export const stateId = (machine: Machine, name: string): string => {
  const created = /<creationTime>(\d+)</.exec(machine.states.get(name)!)![1];
  return savedStateId(machine.uuid, { name, createdUnix: Number(created) });
};
