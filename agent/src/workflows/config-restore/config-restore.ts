/**
 * A VM from a domain XML or an OVF descriptor, without its disks (specification 2.3, rule 4).
 *
 * check → define. The domain is declared before it appears, so after a failure, a cancel or a crash nothing of it is left. It is a new VM
 * always: its uuid is new, its name the file's when that is free, and its MAC addresses are new unless they are to stay.
 */
import { DomainXml, type Libvirt } from '@virtkeep/node-libvirt';
import { throwIfAborted } from '@virtkeep/shared/abort';
import type { ShowBackupRequest, ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { StartConfigRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import {
  applyIdentity,
  type Identity,
  parseDomain,
  serializeXml,
  withoutSecrets,
} from '../../domain-xml/index.ts';
import { fromLibvirt, isNoDomain } from '../../libvirt/errors.ts';
import { type FoundFile, findBackupFile } from '../archives/source.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { defineOwnDomain } from '../domain/define-own.ts';
import { chooseIdentity } from '../domain/identity.ts';
import { readDefinitionFile } from './definition-file.ts';
import { readNetworks } from './networks.ts';
import { type NodeFacts, type PlanChoice, type PlannedVm, planVm } from './plan.ts';

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
  const file = await findBackupFile(await dependencies.pools(signal), request.file);
  const { root, config, warnings } = await planned(dependencies, file, request);
  const libvirt = dependencies.libvirt();
  const { domainId, name } = request;
  const made = await chooseIdentity(
    libvirt,
    { domainId, name, keepIdentity: false },
    config,
    dependencies.nodeName,
  );
  const kept = request.keepMacs ? await usedMacs(libvirt, signal) : undefined;
  const changed = [...(made.macs ?? [])].filter(([mac]) => kept === undefined || kept.has(mac));
  const identity = { ...made, macs: new Map(changed) };
  applyIdentity(root, identity);
  const taken = kept
    ? changed.map(([mac, next]) => `MAC address ${mac}: A VM has it; it is ${next} now.`)
    : [];
  return { identity, xml: serializeXml(root), warnings: [...warnings.map(({ text }) => text), ...taken] };
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

async function planned(
  { libvirt, nodeName }: WorkflowDependencies,
  file: FoundFile,
  choice: PlanChoice,
): Promise<PlannedVm> {
  const facts = await factsOf(libvirt(), nodeName);
  return planVm(await readDefinitionFile(file), choice, facts);
}

async function factsOf(libvirt: Libvirt, nodeName: string): Promise<NodeFacts> {
  const hasKvm = /<domain type=['"]kvm['"]/.test(await libvirt.capabilities());
  return { ...(await readNetworks(libvirt, nodeName)), hasKvm };
}

/**
 * The VM that such a file would give on this node (specification 2.3). Where the file lies and how large it is tells the inventory.
 * @throws VirtkeepError as `readDefinitionFile` and `planVm`
 */
export async function showDefinition(
  dependencies: WorkflowDependencies,
  file: FoundFile,
  { system = '', configuration = '' }: ShowBackupRequest,
): Promise<ShowBackupResponse> {
  const choice = { system, configuration, networks: {}, virtio: false };
  const { root, config, disks, images, warnings } = await planned(dependencies, file, choice).catch(error => {
    throw fromLibvirt(error, 'show_backup');
  });
  return {
    file: undefined,
    xml: withoutSecrets(serializeXml(root)),
    configuration: {
      domainId: config.uuid,
      name: config.name,
      memoryCount: BigInt(config.memoryMiB),
      cpuCount: config.vcpus,
      template: config.metadata.template,
      disks,
      images,
      luns: [],
      snapshots: [],
      macs: config.interfaces.map(({ mac }) => mac),
      osType: config.os.type,
      machine: config.machine,
      nvram: config.nvram !== undefined,
      tpm: config.tpm !== undefined,
      templateId: '',
      description: config.description,
    },
    warnings,
    signature: {
      trust: 'foreign',
      signer: '',
      reason: 'only archives are signed',
      coversContent: false,
    },
  };
}
