/**
 * Undefines a domain, with its disks when asked. The order makes a crash harmless: the list of files is journaled, the
 * domain is undefined, and only then files go; so there is never a domain with half of its disks, and what is left to be
 * removed is removed by the next run of the agent.
 */
import type { Domain, Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { removePath } from '@virtkeep/shared/files';
import { parseDomain } from '../domain-xml/index.ts';
import { findDomain, fromDomain } from '../libvirt/domains.ts';
import type { PoolRecord } from '../pools/index.ts';
import type { Workflow } from './context.ts';
import { refuseLent } from './lend/refuse.ts';
import { removableFiles, usedByOthers } from './removable-files.ts';
import { keptFirmwareFiles } from './state-firmware.ts';
import { refuseWithClones } from './template/family.ts';
import { destroyIfActive, undefineWholly } from './undefine.ts';

export interface RemoveRequest {
  domainId: string;
  /** With its disks. */
  full: boolean;
  /** Also when it runs. */
  force: boolean;
}

export interface RemoveDependencies {
  libvirt(): Libvirt;
  pools(signal: AbortSignal): Promise<PoolRecord[]>;
  /** As in `WorkflowDependencies`. */
  nvramDirectory: string;
}

/** The workflow. Result: `{"removed":["/path",…]}`. */
export function removeDomain(dependencies: RemoveDependencies, request: RemoveRequest): Workflow {
  return async context => {
    const { signal, effects, step, commit } = context;
    const libvirt = dependencies.libvirt();
    const domain = libvirt.domain(request.domainId);
    try {
      await step('check', () => check(libvirt, domain, request));
      const files = request.full
        ? await step('list', async () => [
            ...(await removableFiles(libvirt, domain, await dependencies.pools(signal))),
            ...(await keptFirmwareFiles(dependencies, request.domainId)),
          ])
        : [];
      if (files.length > 0) {
        effects.begin({ type: 'orphaned_files', domainId: request.domainId, paths: files }, 'always');
      }
      await step('stop', () => destroyIfActive(domain));
      await step('undefine', async () => {
        await undefineWholly(domain);
        // no place for a cancel between the two: the files go when the effect is undone
        commit({ removed: files });
      });
    } catch (error) {
      throw fromDomain(error, request.domainId, 'remove_domain');
    }
  };
}

/**
 * Removes files that a removed domain has left; undo of the effect `orphaned_files`. Nothing happens while the domain
 * exists, and a file that another domain refers to by now is left alone. Idempotent.
 * @throws VirtkeepError io_failed, LibvirtError: tried again
 */
export async function removeOrphanedFiles(
  dependencies: RemoveDependencies,
  effect: { domainId: string; paths: readonly string[] },
  signal: AbortSignal,
): Promise<void> {
  const libvirt = dependencies.libvirt();
  if (await findDomain(libvirt, effect.domainId)) return;
  const used = await usedByOthers(libvirt, effect.domainId, await dependencies.pools(signal));
  for (const path of effect.paths) {
    throwIfAborted(signal);
    if (!used.has(path)) await removePath(path);
  }
}

async function check(libvirt: Libvirt, domain: Domain, { full, force }: RemoveRequest): Promise<void> {
  const [active, snapshots, { name: xmlName, metadata }] = await Promise.all([
    domain.isActive(),
    domain.snapshots(),
    domain.xml().then(xml => parseDomain(xml, domain.uuid)),
  ]);
  await refuseLent(libvirt, metadata, xmlName, 'removed');
  if (!force) await refuseWithClones(libvirt, { uuid: domain.uuid, name: xmlName, metadata }, 'removed');
  if (active && !force) throw new VirtkeepError('domain_running', { domain: xmlName });
  if (snapshots.length > 0 && !full) throw new VirtkeepError('domain_has_states', { domain: xmlName });
}
