/**
 * Gives a domain that is off another name. libvirt knows a domain by its name, too: its files bear it, and so does every definition
 * that is kept in a saved state or beside a saved memory. One whose name was changed since could not go back to those (libvirt refuses a
 * definition of the same id and another name), so a domain that has any keeps its name.
 *
 * UEFI variables that libvirt finds by the name have both names while the definition changes (`firmware/named-variables.ts`).
 */
import { type Domain, DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { parseDomain } from '../../domain-xml/index.ts';
import { findDomain, fromDomain, listSnapshots } from '../../libvirt/domains.ts';
import { flushDefinitions } from '../../libvirt/durable.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { Effect } from '../effect.ts';
import { linkVariables, unlinkVariables, variablesOfName } from '../firmware/named-variables.ts';
import { kindOf, requireLasting } from './domain-kind.ts';
import { requireFreeName } from './identity.ts';
import { refuseLeftMemory } from './left-memory.ts';
import { refuseLent } from './refuse-lent.ts';

export interface RenameRequest {
  domainId: string;
  name: string;
}

export type RenameDependencies = Pick<WorkflowDependencies, 'libvirt' | 'nvramDirectory' | 'saveDirectory'>;
type Renamed = Extract<Effect, { type: 'renamed_domain' }>;

/** The workflow. Result: `{"name","former_name"}`. */
export function renameDomain(dependencies: RenameDependencies, { domainId, name }: RenameRequest): Workflow {
  return async ({ effects, step, warn, commit }) => {
    const libvirt = dependencies.libvirt();
    try {
      const { domain, nvram, variables } = await step('check', () => check(dependencies, domainId, name));
      const former = domain.name;
      if (former !== name) {
        effects.begin(
          { type: 'renamed_domain', domainId, from: former, to: name, ...(variables && { variables }) },
          'failure',
        );
        if (variables) await step('variables', () => nameVariables(variables));
        await step('rename', () => rename(libvirt, domain, name));
        // only when the definition is sure to have the new name
        if (variables) await step('clean', () => unlinkVariables(variables.from, variables.to));
      }
      if (former !== name && nvram !== undefined)
        warn(
          `The UEFI variables stay in ${nvram}: give a VM that is defined as "${former}" by hand another file.`,
        );
      commit({ $case: 'renameDomain', value: { name, formerName: former } });
    } catch (error) {
      throw fromDomain(error, domainId, 'rename');
    }
  };
}

/**
 * @throws VirtkeepError domain_not_found, domain_transient, domain_memory_saved, power_state_conflict, rename_refused,
 *   vdisk_attached_elsewhere, name_in_use, invalid_name, file_exists
 */
async function check(
  dependencies: RenameDependencies,
  domainId: string,
  name: string,
): Promise<{ domain: Domain; nvram: string | undefined; variables: Renamed['variables'] }> {
  const libvirt = dependencies.libvirt();
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
  if (domain.name !== name) await refuseLeftMemory(dependencies, name);
  const pathOf = (called: string) => variablesOfName(dependencies.nvramDirectory, called);
  const variables = nvram?.byName ? { from: pathOf(domain.name), to: pathOf(name) } : undefined;
  if (variables && domain.name !== name && (await exists(variables.to)))
    throw new VirtkeepError('file_exists', { path: variables.to });
  return { domain, nvram: nvram?.path, variables };
}

async function nameVariables({ from, to }: NonNullable<Renamed['variables']>): Promise<void> {
  if (!(await linkVariables(from, to))) throw new VirtkeepError('file_exists', { path: to });
}

/** Somebody may have taken the name since it was looked at. libvirt keeps a file for each name: after a power cut both might be there. */
async function rename(libvirt: Libvirt, domain: Domain, name: string): Promise<void> {
  try {
    await domain.rename(name);
    await flushDefinitions();
  } catch (error) {
    requireFreeName(await libvirt.domains().catch(() => []), name);
    throw error;
  }
}

/**
 * Gives a domain its former name back; undo of the effect `renamed_domain`. What goes by the new name since keeps it and is named: one
 * that runs, has saved states or a saved memory, or whose former name was given away, for itself or for its UEFI variables. Idempotent.
 * @throws LibvirtError, VirtkeepError io_failed: tried again
 */
export async function renameBack(
  { libvirt }: Pick<RenameDependencies, 'libvirt'>,
  effect: Renamed,
  warn: (text: string) => void,
): Promise<void> {
  const { from, to, variables } = effect;
  const domain = await findDomain(libvirt(), effect.domainId);
  let present = domain?.name;
  if (domain && present === to) {
    if (await mayGoBack(libvirt(), domain, effect)) {
      await domain.rename(from);
      await flushDefinitions();
      present = from;
    } else warn(`The domain ${from} is called ${to} by now, and keeps that name since it is in use.`);
  }
  if (variables && present === from) await unlinkVariables(variables.to, variables.from);
  if (variables && present === to) await unlinkVariables(variables.from, variables.to);
}

/** Then its variables bear the former name too. */
async function mayGoBack(libvirt: Libvirt, domain: Domain, { from, variables }: Renamed): Promise<boolean> {
  const others = await libvirt.domains();
  const keeps =
    others.some(({ name }) => name === from) ||
    (await domain.isActive()) ||
    !(await domain.isPersistent()) ||
    (await domain.hasManagedSave()) ||
    (await listSnapshots(domain)).length > 0;
  return !keeps && (variables === undefined || (await linkVariables(variables.to, variables.from)));
}
