/**
 * Undefines a domain, with its disks when asked. The order makes a crash harmless: the list of files is journaled, the
 * domain is undefined, and only then files go; so there is never a domain with half of its disks, and what is left to be
 * removed is removed by the next run of the agent.
 */
import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { parseDomain } from '../../domain-xml/index.ts';
import { filesOfDomain, type ImageDependencies, imagesInUse, removeImages } from '../../images/index.ts';
import { findDomain, fromDomain } from '../../libvirt/domains.ts';
import { isStateOverlay } from '../../snapshots/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import { refuseWithClones } from '../family/family.ts';
import { keptFirmwareFiles } from '../firmware/state-firmware.ts';
import { isRestoredLayer } from '../restore/layer-name.ts';
import { refuseLent } from './refuse-lent.ts';
import { destroyIfActive, undefineWholly } from './undefine.ts';

export interface RemoveRequest {
  domainId: string;
  /** With its disks. */
  full: boolean;
  /** Also when it runs. */
  force: boolean;
}

export interface RemoveDependencies extends ImageDependencies {
  /** As in `WorkflowDependencies`. */
  nvramDirectory: string;
}

/** The workflow. Result: `{"removed":["/path",…]}`; a warning names each file that stays since others use it. */
export function removeDomain(dependencies: RemoveDependencies, request: RemoveRequest): Workflow {
  return async context => {
    const { effects, step, commit } = context;
    const libvirt = dependencies.libvirt();
    const domain = libvirt.domain(request.domainId);
    try {
      await step('check', () => check(dependencies, domain, request));
      // a VM that keeps its files has no saved states: copies of their firmware are nobody's
      const files = await step('list', async () => [
        ...(request.full ? await unusedFiles(dependencies, domain, context) : []),
        ...(await keptFirmwareFiles(dependencies, request.domainId)),
      ]);
      if (files.length > 0) {
        effects.begin({ type: 'orphaned_files', domainId: request.domainId, paths: files }, 'always');
      }
      await step('stop', () => destroyIfActive(domain));
      await step('undefine', async () => {
        await undefineWholly(domain);
        // no place for a cancel between the two: the files go when the effect is undone
        commit({ $case: 'removeDomain', value: { removed: files } });
      });
    } catch (error) {
      throw fromDomain(error, request.domainId, 'remove_domain');
    }
  };
}

/** The domain's files but for those that others use, or may use, and images that may be the base of others. */
async function unusedFiles(
  dependencies: RemoveDependencies,
  domain: Domain,
  { signal, warn }: Pick<OperationContext, 'signal' | 'warn'>,
): Promise<string[]> {
  const isOverlay = (path: string) => isStateOverlay(path) || isRestoredLayer(path);
  const { own: files, others } = await filesOfDomain(domain, await dependencies.pools(signal), isOverlay);
  for (const path of others)
    warn(
      `${path} was left: the VM names it, or a disk of it stands on it, but nothing says that it is this VM's alone.`,
    );
  const question = { ownerId: domain.uuid, leaving: [domain.uuid], signal };
  const left = await imagesInUse(dependencies, files, question);
  for (const { text } of left) warn(text);
  const used = new Set(left.map(({ path }) => path));
  return files.filter(path => !used.has(path));
}

/**
 * Removes files that a removed domain has left; undo of the effect `orphaned_files`. Nothing happens while the domain
 * exists, and a file that somebody else has or may have by now is left alone and named. Idempotent.
 * @throws VirtkeepError io_failed, LibvirtError: tried again
 */
export async function removeOrphanedFiles(
  dependencies: RemoveDependencies,
  effect: { domainId: string; paths: readonly string[] },
  signal: AbortSignal,
  warn: (text: string) => void,
): Promise<void> {
  const { domainId, paths } = effect;
  if (await findDomain(dependencies.libvirt(), domainId)) return;
  for (const { text } of await removeImages(dependencies, paths, { ownerId: domainId, signal })) warn(text);
}

async function check(
  dependencies: RemoveDependencies,
  domain: Domain,
  { full, force }: RemoveRequest,
): Promise<void> {
  const libvirt = dependencies.libvirt();
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
