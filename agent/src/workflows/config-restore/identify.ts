/** Under which uuid, name and MAC addresses a planned VM comes to this node: it is a new one always. */
import { DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import type { StartConfigRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import type { Element } from '@xmldom/xmldom';
import {
  applyIdentity,
  applyNvram,
  attr,
  child,
  type DomainConfig,
  type Identity,
  parseDomain,
  serializeXml,
} from '../../domain-xml/index.ts';
import { isNoDomain } from '../../libvirt/errors.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { chooseIdentity } from '../domain/identity.ts';
import { freeVariables } from '../firmware/named-variables.ts';
import type { PlannedVm } from './plan.ts';

export interface IdentifiedVm {
  identity: Identity;
  /** What libvirt gets. */
  xml: string;
  warnings: string[];
}

/**
 * As things are now: what is defined with it is to be defined at once.
 * @throws VirtkeepError identity_in_use, name_in_use, invalid_name, invalid_uuid, file_exists, canceled; LibvirtError
 */
export async function identify(
  dependencies: Pick<WorkflowDependencies, 'libvirt' | 'nodeName' | 'nvramDirectory' | 'saveDirectory'>,
  { domainId, name, keepMacs }: Pick<StartConfigRestoreRequest, 'domainId' | 'name' | 'keepMacs'>,
  { root, config, warnings }: PlannedVm,
  signal: AbortSignal,
): Promise<IdentifiedVm> {
  const libvirt = dependencies.libvirt();
  const made = await chooseIdentity(dependencies, { domainId, name, keepIdentity: false }, config);
  const kept = keepMacs ? await usedMacs(libvirt, signal) : undefined;
  const changed = [...(made.macs ?? [])].filter(([mac]) => kept === undefined || kept.has(mac));
  const identity = { ...made, macs: new Map(changed) };
  applyIdentity(root, identity);
  const variables = hasVariables(root, config)
    ? await freeVariables(dependencies.nvramDirectory, identity)
    : null;
  if (variables !== null) applyNvram(root, variables);
  const taken = kept
    ? changed.map(([mac, next]) => `MAC address ${mac}: A VM has it; it is ${next} now.`)
    : [];
  return { identity, xml: serializeXml(root), warnings: [...warnings.map(({ text }) => text), ...taken] };
}

/** A firmware for UEFI has some whether the definition says so or not. */
function hasVariables(domain: Element, { nvram }: DomainConfig): boolean {
  const loader = child(domain, 'os/loader');
  return nvram !== undefined || (attr(loader, 'type') === 'pflash' && attr(loader, 'stateless') !== 'yes');
}

/** Of the domains of this node. */
async function usedMacs(libvirt: Libvirt, signal: AbortSignal): Promise<Set<string>> {
  const used = new Set<string>();
  for (const domain of await libvirt.domains()) {
    throwIfAborted(signal);
    try {
      for (const { mac } of parseDomain(await domain.xml(DomainXml.INACTIVE)).interfaces)
        used.add(mac.toLowerCase());
    } catch (error) {
      if (!isNoDomain(error)) throw error;
    }
  }
  return used;
}
