/**
 * A VM from a domain XML, an OVF descriptor or an archive of Proxmox VE, without its disks (specification 2.3, rule 4).
 *
 * check → define. The domain is declared before it appears, so after a failure, a cancel or a crash nothing of it is left. It is a new VM
 * always: its uuid is new, its name the file's when that is free, and its MAC addresses are new unless they are to stay.
 */
import { DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
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
import { fromLibvirt, isNoDomain } from '../../libvirt/errors.ts';
import { backupTypeOf } from '../../pools/index.ts';
import { findBackupFile } from '../archives/find-file.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { defineOwnDomain } from '../domain/define-own.ts';
import { chooseIdentity } from '../domain/identity.ts';
import { freeVariables } from '../firmware/named-variables.ts';
import { chosenNetworks, requireInFile } from './choose-networks.ts';
import { definitionTypeOf, readDefinitionFile } from './definition-file.ts';
import { readFacts } from './node-facts.ts';
import { type PlannedVm, planVm } from './plan.ts';

/** The steps in order, for the tests that kill the agent at each of them. */
export const CONFIG_RESTORE_STEPS = ['check', 'define'] as const;

/** The workflow. Result: as `RestoreService.StartConfig` tells. */
export function configRestoreWorkflow(
  dependencies: WorkflowDependencies,
  request: StartConfigRestoreRequest,
): Workflow {
  return async context => {
    try {
      const { identity, xml, warnings } = await context.step('check', () =>
        check(dependencies, request, context.signal),
      );
      for (const text of warnings) context.warn(text);
      const { uuid: domainId, name } = identity;
      await context.step('define', () =>
        defineOwnDomain(dependencies, context, { domainId, files: [] }, xml),
      );
      context.commit({ $case: 'configRestore', value: { domainId, name, warnings } });
    } catch (error) {
      throwIfAborted(context.signal);
      throw fromLibvirt(error, 'config_restore');
    }
  };
}

async function check(
  dependencies: WorkflowDependencies,
  request: StartConfigRestoreRequest,
  signal: AbortSignal,
): Promise<{ identity: Identity; xml: string; warnings: string[] }> {
  const { root, config, warnings } = await planned(dependencies, request, signal);
  const { nodeName, nvramDirectory } = dependencies;
  const libvirt = dependencies.libvirt();
  const { domainId, name } = request;
  const made = await chooseIdentity(libvirt, { domainId, name, keepIdentity: false }, config, nodeName);
  const kept = request.keepMacs ? await usedMacs(libvirt, signal) : undefined;
  const changed = [...(made.macs ?? [])].filter(([mac]) => kept === undefined || kept.has(mac));
  const identity = { ...made, macs: new Map(changed) };
  applyIdentity(root, identity);
  const variables = hasVariables(root, config) ? await freeVariables(nvramDirectory, identity) : null;
  if (variables !== null) applyNvram(root, variables);
  const taken = kept
    ? changed.map(([mac, next]) => `MAC address ${mac}: A VM has it; it is ${next} now.`)
    : [];
  return { identity, xml: serializeXml(root), warnings: [...warnings.map(({ text }) => text), ...taken] };
}

/** @throws VirtkeepError file_not_definition, network_not_found, network_not_in_file, and what `readDefinitionFile` and `planVm` throw */
async function planned(
  dependencies: WorkflowDependencies,
  request: StartConfigRestoreRequest,
  signal: AbortSignal,
): Promise<PlannedVm> {
  const file = await findBackupFile(await dependencies.pools(signal), request.file);
  const { filename } = file;
  const type = definitionTypeOf(filename);
  if (!type)
    throw new VirtkeepError('file_not_definition', {
      file: filename,
      type: backupTypeOf(filename) ?? 'unknown',
    });
  const definition = await readDefinitionFile(file, type, signal);
  const facts = await readFacts(dependencies.libvirt());
  const networks = chosenNetworks(request.networks, facts, dependencies.nodeName);
  const vm = planVm(definition, { ...request, networks }, facts);
  requireInFile(request.networks, vm.networks, filename);
  return vm;
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
