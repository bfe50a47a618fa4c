/**
 * A file that describes a VM: a domain XML, an OVF descriptor, an OVA, an archive of Proxmox VE, a backup of virtnbdbackup's. Nobody vouches
 * for any.
 */
import { fromIoError } from '@virtkeep/shared/errors';
import { readForeign } from '@virtkeep/shared/foreign-file';
import { MiB } from '@virtkeep/shared/units';
import {
  type AppliancePackage,
  openAppliance,
  openVirtnbd,
  openVma,
  type SignedTexts,
} from '../../appliance/index.ts';
import { type Appliance, type Envelope, readOvf } from '../../ovf/index.ts';
import { backupTypeOf } from '../../pools/index.ts';
import { proxmoxVmOf } from '../../proxmox/index.ts';
import { filesThere, type PackageFiles } from './package-files.ts';
import { stateOf } from './virtnbd-state.ts';

export type DefinitionType = 'xml' | 'OVF' | 'OVA' | 'vma' | 'virtnbdbackup';
export type DefinitionFile =
  | { type: 'xml'; xml: string }
  | {
      type: 'OVF' | 'OVA';
      envelope: Envelope;
      /** What lies with the descriptor; null: it was not looked for. */
      beside: { files: PackageFiles; signed: SignedTexts } | null;
    }
  | { type: 'vma'; appliance: Appliance };

/** libvirt takes no larger definition; descriptors hold the texts of licences, too. */
const MAX_BYTES = { xml: 4 * MiB, OVF: 8 * MiB };

export interface ReadOptions {
  signal: AbortSignal;
  /** Which of the files that a descriptor names are there is looked for, too, and its manifest and certificate. */
  looksForFiles?: boolean;
  /** Restore point of a backup of virtnbdbackup's, by its number or name; empty: the newest. */
  state?: string;
  /** Told how many bytes of an OVA that is packed were unpacked. */
  onBytes?: (doneBytes: number) => void;
}

/** By its name alone; undefined: it is another file. */
export function definitionTypeOf(filename: string): DefinitionType | undefined {
  const type = backupTypeOf(filename);
  return type === 'tar' || type === 'disk' ? undefined : type;
}

/**
 * Of an OVA that is packed this unpacks everything once, to nowhere.
 * @param filename names it in errors
 * @throws VirtkeepError not_a_file, file_too_large, io_failed, ovf_invalid, ovf_version_unsupported, appliance_invalid, path_outside_pool,
 * state_not_found, canceled
 */
export async function readDefinitionFile(
  { path, filename }: { path: string; filename: string },
  type: DefinitionType,
  { signal, state = '', looksForFiles = false, onBytes }: ReadOptions,
): Promise<DefinitionFile> {
  if (type === 'vma') return { type, appliance: await readVma(path, filename, signal) };
  if (type === 'virtnbdbackup')
    return { type: 'xml', xml: await readVirtnbd({ path, filename }, state, signal) };
  if (type === 'OVA')
    return usedOnce(await openAppliance(path, signal, onBytes), async opened => {
      const envelope = readOvf(opened.descriptor.bytes, filename);
      return { type, envelope, beside: looksForFiles ? await besideOf(opened, envelope) : null };
    });
  const bytes = await readForeign(path, MAX_BYTES[type]).catch((error: unknown) => {
    throw fromIoError(error, 'reading', path);
  });
  if (type === 'xml') return { type, xml: bytes.toString('utf8') };
  const envelope = readOvf(bytes, filename);
  const beside = looksForFiles
    ? await usedOnce(await openAppliance(path, signal), opened => besideOf(opened, envelope))
    : null;
  return { type, envelope, beside };
}

async function besideOf(opened: AppliancePackage, envelope: Envelope) {
  const { path, manifest, certificate, descriptor } = opened;
  return { files: await filesThere(opened, envelope), signed: { path, manifest, certificate, descriptor } };
}

async function usedOnce<T>(
  opened: AppliancePackage,
  use: (opened: AppliancePackage) => Promise<T>,
): Promise<T> {
  try {
    return await use(opened);
  } finally {
    await opened.close();
  }
}

/** Its data are not read, only the header before them. */
async function readVma(path: string, filename: string, signal: AbortSignal): Promise<Appliance> {
  const { header, close } = await openVma(path, signal);
  try {
    return proxmoxVmOf(header, filename).appliance;
  } finally {
    await close();
  }
}

async function readVirtnbd(
  { path, filename }: { path: string; filename: string },
  state: string,
  signal: AbortSignal,
): Promise<string> {
  const backup = await openVirtnbd(path, signal);
  try {
    return await backup.readDefinition(stateOf(backup, state, filename));
  } finally {
    await backup.close();
  }
}
