/** The record of the VM's configuration that a backup would restore, for the REST contract; pure. */
import type {
  ArchiveSignature,
  BackupConfiguration,
  ForeignSystem,
  ShowBackupResponse,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import { type FileInformation, type FileRecord, informationOf } from '../backup-files/record.ts';

export interface ShownConfiguration {
  domain: string | null;
  verbose_name: string;
  description: string;
  memory_count: number;
  cpu_count: number;
  template: boolean;
  parent: string | null;
  os_type: string;
  machine: string;
  nvram: boolean;
  tpm: boolean;
  disks: FileInformation['disks'];
  images: FileInformation['images'];
  sizes: FileInformation['sizes'];
  luns: string[];
  snapshots: string[];
  macs: string[];
}

export interface ShownBackup {
  file: FileRecord;
  configuration: ShownConfiguration | null;
  /** What the archive holds, by the names that a download takes; empty for other files and while no node sees it. */
  members: { name: string; kind: string; size: number }[];
  warnings: { key: string; text: string }[];
  xml: string;
  signature: ShownSignature;
  /** Of an OVF or OVA: the certificate that signs it, when its node trusts who vouches for that. */
  signed_by: string | null;
  /** The VMs of an OVF or OVA; empty for other files. */
  systems: ShownSystem[];
  /** Those of the file that can be mapped; empty for archives. */
  networks: string[];
}

/** A VM that can be chosen. */
export interface ShownSystem {
  id: string;
  verbose_name: string;
  os_type: string;
  cpu_count: number;
  memory_count: number;
  disk_count: number;
  configurations: { id: string; label: string; description: string; default: boolean }[];
}

/** Who vouches for an archive. */
export interface ShownSignature {
  trust: 'own' | 'fleet' | 'foreign';
  /** Id of the node that signed it. */
  signer: string | null;
  /** Why it is foreign. */
  reason: string | null;
  /** It stands for the bytes of disks and images, too. */
  covers_content: boolean;
}

/** @param signature undefined from an agent of the version before */
export function shownSignature(signature: ArchiveSignature | undefined): ShownSignature {
  if (signature?.trust === 'own' || signature?.trust === 'fleet')
    return {
      trust: signature.trust,
      signer: signature.signer,
      reason: null,
      covers_content: signature.coversContent,
    };
  const reason = signature?.reason || 'its node does not tell who signed it';
  return { trust: 'foreign', signer: signature?.signer || null, reason, covers_content: false };
}

export function shownBackup(file: FileRecord, shown: ShowBackupResponse): ShownBackup {
  return {
    file,
    configuration: shown.configuration ? shownConfiguration(shown.configuration) : null,
    members: membersOf(shown.file?.manifestJson ?? ''),
    warnings: shown.warnings.map(({ key, text }) => ({ key, text })),
    xml: shown.xml,
    signature: shownSignature(shown.signature),
    signed_by: shown.signedBy ?? null,
    systems: shown.systems.map(shownSystem),
    networks: shown.networks,
  };
}

function shownSystem(system: ForeignSystem): ShownSystem {
  const { id, name, osType, cpuCount, memoryCount, diskCount, configurations } = system;
  return {
    id,
    verbose_name: name,
    os_type: osType,
    cpu_count: cpuCount,
    memory_count: Number(memoryCount),
    disk_count: diskCount,
    configurations: configurations.map(({ id: own, label, description, isDefault }) => ({
      ...{ id: own, label, description, default: isDefault },
    })),
  };
}

/** The newest manifest names every member but itself; it is a text of the node's, and may be of a later version. */
function membersOf(manifestJson: string): ShownBackup['members'] {
  if (manifestJson === '') return [];
  const { members } = JSON.parse(manifestJson) as { members?: Record<string, unknown>[] };
  return (members ?? []).map(({ name, kind, sizeBytes }) => ({
    name: String(name),
    kind: String(kind),
    size: Number(sizeBytes),
  }));
}

function shownConfiguration(configuration: BackupConfiguration): ShownConfiguration {
  const { disks, images, sizes, memory_count, cpu_count } = informationOf(configuration);
  return {
    domain: configuration.domainId || null,
    verbose_name: configuration.name,
    description: configuration.description,
    memory_count,
    cpu_count,
    template: configuration.template,
    parent: configuration.templateId || null,
    os_type: configuration.osType,
    machine: configuration.machine,
    nvram: configuration.nvram,
    tpm: configuration.tpm,
    disks,
    images,
    sizes,
    luns: configuration.luns,
    snapshots: configuration.snapshots,
    macs: configuration.macs,
  };
}
