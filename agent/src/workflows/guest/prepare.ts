/** Prepares a Linux that is off for being copied, by virt-sysprep on its disk (specification 4.6). */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Workflow } from '../context.ts';
import { type GuestOperations, inDomain, type OwnDisk, requireOff } from './domain.ts';
import { type GuestfsOptions, runGuestfs } from './guestfs.ts';
import { changeOffline } from './offline.ts';

export interface PrepareRequest {
  domainId: string;
  /** Id of the disk with the system; empty: the first one. */
  bootDiskId: string;
  /** Names of virt-sysprep; empty: those that it does by default. */
  operations: string[];
  /** Layers of a VM whose disks are all devices may lie on a network file system. */
  allowNetworkLayers: boolean;
}

interface Preparation {
  name: string;
  /** Done when the request names no operation. */
  default: boolean;
  description: string;
}

/** They take arguments that nobody can give here. */
const NEED_ARGUMENTS = new Set(['script', 'customize']);

/** The workflow. Result: `{"operations":[…]}`, what was done. */
export function prepare(operations: GuestOperations, request: PrepareRequest): Workflow {
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const action = 'prepared';
      const { name, disk, chosen } = await context.step('check', async () => {
        const { config, disks } = await requireOff(operations, domain, action, context.signal);
        const { forceTcg, log } = operations;
        const options = { domain: config.name, signal: context.signal, forceTcg, log };
        const available = await availablePreparations(options);
        const chosen = chosenOperations(request.operations, available);
        return { name: config.name, disk: bootDisk(disks, request.bootDiskId), chosen };
      });
      const { allowNetworkLayers } = request;
      const target = { domain, name, disks: [disk], action, allowNetworkLayers };
      await changeOffline(operations, context, target, async images => {
        await images.run('virt-sysprep', ['--operations', chosen.join(',')]);
        return { $case: 'prepare', value: { operations: chosen } };
      });
    });
}

/** The operations that this node offers. @throws VirtkeepError guestfs_failed, timed_out, or the signal's reason */
export async function availablePreparations(options: GuestfsOptions): Promise<Preparation[]> {
  return operationsIn(await runGuestfs('virt-sysprep', ['--list-operations'], options));
}

function bootDisk(disks: OwnDisk[], id: string): OwnDisk {
  const found = id === '' ? disks[0] : disks.find(disk => disk.id === id);
  if (found) return found;
  throw new VirtkeepError('vdisk_not_found', { id });
}

/** Reads `virt-sysprep --list-operations`: a name, an asterisk for those done by default, an explanation. */
export function operationsIn(text: string): Preparation[] {
  return text.split('\n').flatMap(line => {
    const [, name, mark, description = ''] = /^([a-z][a-z0-9-]*)\s+(\*)?\s*(.*)/.exec(line) ?? [];
    if (name === undefined || NEED_ARGUMENTS.has(name)) return [];
    return [{ name, default: mark === '*', description: description.trim() }];
  });
}

/** @throws VirtkeepError invalid_field that names an operation there is not */
export function chosenOperations(desired: readonly string[], available: readonly Preparation[]): string[] {
  if (desired.length === 0) return available.filter(operation => operation.default).map(({ name }) => name);
  const unknown = desired.find(name => !available.some(operation => operation.name === name));
  if (unknown !== undefined) {
    const names = available.map(({ name }) => name).join(', ');
    const reason = `names "${unknown.slice(0, 50)}", which is none of: ${names}`;
    throw new VirtkeepError('invalid_field', { field: 'operations', reason });
  }
  return [...new Set(desired)];
}
