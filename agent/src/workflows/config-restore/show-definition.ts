import { lstat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { fromIoError } from '@virtkeep/shared/errors';
import type {
  BackupConfiguration,
  BackupWarning,
  ForeignSystem,
  ShowBackupRequest,
  ShowBackupResponse,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { BackupFile } from '@virtkeep/shared/gen/virtkeep/agent/v1/pool';
import { uuidV5 } from '@virtkeep/shared/ids';
import { serializeXml, withoutSecrets } from '../../domain-xml/index.ts';
import { fromLibvirt } from '../../libvirt/errors.ts';
import { type ApplianceDisk, type SystemSummary, systemsOf } from '../../ovf/index.ts';
import type { FoundFile } from '../archives/find-file.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import { chosenNetworks, requireInFile } from './choose-networks.ts';
import { type DefinitionType, readDefinitionFile } from './definition-file.ts';
import { readFacts } from './node-facts.ts';
import { type PlannedVm, planVm } from './plan.ts';
import { lookAtSignature } from './signed-by.ts';

const SIGNATURE = { trust: 'foreign', signer: '', reason: 'only archives are signed', coversContent: false };

interface Reading extends Pick<WorkflowDependencies, 'libvirt' | 'nodeName' | 'trustedCaFile'> {
  signal: AbortSignal;
  /** Told how many bytes were unpacked. */
  onBytes?: (doneBytes: number) => void;
}

/**
 * The VM that such a file would give on this node (specification 2.3): of a domain XML without disks, of any other with them. Of several
 * VMs without a choice it is told which there are.
 * @throws VirtkeepError network_not_found, network_not_in_file, and as `readDefinitionFile` and `planVm`
 */
export async function showDefinition(
  { libvirt, nodeName, trustedCaFile, signal, onBytes }: Reading,
  file: FoundFile,
  type: DefinitionType,
  { system = '', configuration = '', state = '', target }: ShowBackupRequest,
): Promise<ShowBackupResponse> {
  const { virtio, networks: chosen } = target ?? { virtio: false, networks: {} };
  const definition = await readDefinitionFile(file, type, {
    ...{ signal, state, looksForFiles: true },
    ...(onBytes && { onBytes }),
  });
  const summaries = 'envelope' in definition ? systemsOf(definition.envelope) : [];
  const systems = summaries.map(systemMessage);
  const record = type === 'OVA' ? await recordOf(file, summaries) : undefined;
  const beside = 'envelope' in definition ? definition.beside : null;
  const { signedBy, warnings } = beside
    ? await lookAtSignature(beside.signed, { trustedCaFile })
    : { signedBy: undefined, warnings: [] };
  const told = { file: record, systems, signature: SIGNATURE, signedBy };
  if (system === '' && systems.length > 1) {
    const several = [severalVms(summaries), ...warnings];
    return { ...told, xml: '', configuration: undefined, networks: [], warnings: several };
  }
  const facts = await readFacts(libvirt()).catch((error: unknown) => {
    throw fromLibvirt(error, 'show_backup');
  });
  const networks = chosenNetworks(chosen, facts, nodeName);
  const vm = planVm(definition, { system, configuration, networks, virtio }, facts, {
    pathOf: (_, disk) => pathInFile(file, type, disk),
  });
  requireInFile(chosen, vm.networks, file.filename);
  return {
    ...told,
    xml: withoutSecrets(serializeXml(vm.root)),
    configuration: configurationOf(vm),
    networks: vm.networks,
    warnings: [...vm.warnings, ...warnings],
  };
}

const severalVms = (systems: readonly SystemSummary[]): BackupWarning => ({
  key: 'several_systems',
  text: `The file describes ${systems.length} VMs: one of them is to be chosen, or all.`,
});

/** Where a disk lies before it is restored: beside the descriptor, or as a member of the file. */
const pathInFile = ({ path }: FoundFile, type: DefinitionType, { file, diskId }: ApplianceDisk): string =>
  join(type === 'OVF' ? dirname(path) : path, file?.paths[0] ?? diskId.replaceAll('/', '_'));

function configurationOf({ config, disks, images }: PlannedVm): BackupConfiguration {
  return {
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
  };
}

const systemMessage = ({
  id,
  name,
  os,
  cpus,
  memoryMiB,
  disks,
  configurations,
}: SystemSummary): ForeignSystem => ({
  id,
  name,
  osType: os.type,
  cpuCount: cpus,
  memoryCount: BigInt(memoryMiB),
  diskCount: disks,
  configurations,
});

/** As the inventory has it; of an OVA that is packed only whoever unpacks it knows the name of its VM. */
async function recordOf(
  { pool, filename, path }: FoundFile,
  systems: readonly SystemSummary[],
): Promise<BackupFile> {
  const { size, mtime } = await lstat(path).catch((error: unknown) => {
    throw fromIoError(error, 'reading', path);
  });
  return BackupFile.fromPartial({
    ...{ id: uuidV5(pool.id, filename), poolId: pool.id, filename, path, type: 'OVA' },
    ...{ size: BigInt(size), created: mtime },
    domainName: systems.length === 1 ? systems[0]!.name : '',
  });
}
