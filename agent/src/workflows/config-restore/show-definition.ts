import type { ShowBackupRequest, ShowBackupResponse } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { serializeXml, withoutSecrets } from '../../domain-xml/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import type { FoundFile } from '../archives/find-file.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { type DefinitionType, readDefinitionFile } from './definition-file.ts';
import { readFacts } from './node-facts.ts';
import { planVm } from './plan.ts';

/**
 * The VM that such a file would give on this node (specification 2.3). Where the file lies and how large it is tells the inventory.
 * @throws VirtkeepError as `readDefinitionFile` and `planVm`
 */
export async function showDefinition(
  { libvirt, signal }: Pick<WorkflowDependencies, 'libvirt'> & { signal: AbortSignal },
  file: FoundFile,
  type: DefinitionType,
  { system = '', configuration = '', state = '' }: Partial<ShowBackupRequest>,
): Promise<ShowBackupResponse> {
  const definition = await readDefinitionFile(file, type, signal, state);
  const facts = await readFacts(libvirt()).catch((error: unknown) => {
    throw fromLibvirt(error, 'show_backup');
  });
  const choice = { system, configuration, networks: {}, virtio: false };
  const { root, config, disks, images, warnings } = planVm(definition, choice, facts);
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
