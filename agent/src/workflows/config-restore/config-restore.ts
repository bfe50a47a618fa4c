/**
 * A VM from a domain XML, an OVF descriptor, an OVA or an archive of Proxmox VE, without its disks (specification 2.3, rule 4).
 *
 * check → define. The domain is declared before it appears, so after a failure, a cancel or a crash nothing of it is left. It is a new VM
 * always: its uuid is new, its name the file's when that is free, and its MAC addresses are new unless they are to stay.
 */
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { StartConfigRestoreRequest } from '@virtkeep/shared/gen/virtkeep/agent/v1/restore';
import { fromLibvirt } from '../../libvirt/errors.ts';
import { backupTypeOf } from '../../pools/index.ts';
import { findBackupFile } from '../archives/find-file.ts';
import type { Workflow } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { defineOwnDomain } from '../domain/define-own.ts';
import { chosenNetworks, requireInFile } from './choose-networks.ts';
import { definitionTypeOf, readDefinitionFile } from './definition-file.ts';
import { type IdentifiedVm, identify } from './identify.ts';
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
): Promise<IdentifiedVm> {
  return identify(dependencies, request, await planned(dependencies, request, signal), signal);
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
  const definition = await readDefinitionFile(file, type, { signal });
  const facts = await readFacts(dependencies.libvirt());
  const networks = chosenNetworks(request.networks, facts, dependencies.nodeName);
  const vm = planVm(definition, { ...request, networks }, facts);
  requireInFile(request.networks, vm.networks, filename);
  return vm;
}
