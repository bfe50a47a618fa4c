/**
 * Gives a domain that is off another name. libvirt knows a domain by its name, too: its files bear it, and so does every definition
 * that is kept in a saved state or beside a saved memory. One whose name was changed since could not go back to those (libvirt refuses a
 * definition of the same id and another name), so a domain that has any keeps its name.
 */
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { parseDomain } from '../../domain-xml/index.ts';
import { findDomain, fromDomain, listSnapshots } from '../../libvirt/domains.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { Effect } from '../effect.ts';
import { kindOf, requireLasting } from './domain-kind.ts';
import { requireFreeName } from './identity.ts';
import { refuseLent } from './refuse-lent.ts';

export interface RenameRequest {
  domainId: string;
  name: string;
}

type Dependencies = Pick<WorkflowDependencies, 'libvirt'>;

/** The workflow. Result: `{"name","former_name"}`. */
export function renameDomain(dependencies: Dependencies, { domainId, name }: RenameRequest): Workflow {
  return async ({ effects, step, warn, commit }) => {
    const libvirt = dependencies.libvirt();
    try {
      const { domain, nvram } = await step('check', () => check(libvirt, domainId, name));
      const former = domain.name;
      if (former !== name) {
        effects.begin({ type: 'renamed_domain', domainId, from: former, to: name }, 'failure');
        await step('rename', () => rename(libvirt, domain, name));
      }
      if (former !== name && nvram !== undefined)
        warn(
          `The UEFI variables stay in ${nvram}: give a VM that is defined as "${former}" by hand another file.`,
        );
      commit({ name, former_name: former });
    } catch (error) {
      throw fromDomain(error, domainId, 'rename');
    }
  };
}

/**
 * @throws VirtkeepError domain_not_found, domain_transient, domain_memory_saved, power_state_conflict, rename_refused,
 *   vdisk_attached_elsewhere, name_in_use, invalid_name
 */
async function check(
  libvirt: Libvirt,
  domainId: string,
  name: string,
): Promise<{ domain: Domain; nvram: string | undefined }> {
  const domain = await libvirt.domainByUuid(domainId);
  requireLasting(await kindOf(domain), 'renamed');
  if (await domain.isActive())
    throw new VirtkeepError('power_state_conflict', {
      domain: domain.name,
      state: 'running',
      action: 'renamed',
    });
  const { metadata, nvram } = parseDomain(await domain.xml(DomainXml.INACTIVE), domainId);
  await refuseLent(libvirt, metadata, domain.name, 'renamed');
  if ((await listSnapshots(domain)).length > 0)
    throw new VirtkeepError('rename_with_states', { domain: domain.name });
  const others = (await libvirt.domains()).filter(other => other.uuid !== domainId);
  requireFreeName(others, name);
  return { domain, nvram: nvram?.path };
}

/** Somebody may have taken the name since it was looked at. */
async function rename(libvirt: Libvirt, domain: Domain, name: string): Promise<void> {
  try {
    await domain.rename(name);
  } catch (error) {
    requireFreeName(await libvirt.domains().catch(() => []), name);
    throw error;
  }
}

/**
 * Gives a domain its former name back; undo of the effect `renamed_domain`. What goes by the new name since keeps it and is named: one
 * that runs, has saved states or a saved memory, or whose former name was given away. Idempotent.
 * @throws LibvirtError: tried again
 */
export async function renameBack(
  { libvirt }: Dependencies,
  { domainId, from, to }: Extract<Effect, { type: 'renamed_domain' }>,
  warn: (text: string) => void,
): Promise<void> {
  const domain = await findDomain(libvirt(), domainId);
  if (domain?.name !== to) return;
  const others = await libvirt().domains();
  const keeps =
    others.some(({ name }) => name === from) ||
    (await domain.isActive()) ||
    !(await domain.isPersistent()) ||
    (await domain.hasManagedSave()) ||
    (await listSnapshots(domain)).length > 0;
  if (keeps) warn(`The domain ${from} is called ${to} by now, and keeps that name since it is in use.`);
  else await domain.rename(from);
}
