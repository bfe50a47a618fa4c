/** A file that describes a VM without its disks: a domain XML, an OVF descriptor, an archive of Proxmox VE. Nobody vouches for any. */
import { fromIoError } from '@virtkeep/shared/errors';
import { readForeign } from '@virtkeep/shared/foreign-file';
import { MiB } from '@virtkeep/shared/units';
import { openVma } from '../../appliance/index.ts';
import { type Appliance, type Envelope, readOvf } from '../../ovf/index.ts';
import { backupTypeOf } from '../../pools/index.ts';
import { proxmoxVmOf } from '../../proxmox/index.ts';

export type DefinitionType = 'xml' | 'OVF' | 'vma';
export type DefinitionFile =
  | { type: 'xml'; xml: string }
  | { type: 'OVF'; envelope: Envelope }
  | { type: 'vma'; appliance: Appliance };

/** libvirt takes no larger definition; descriptors hold the texts of licences, too. */
const MAX_BYTES = { xml: 4 * MiB, OVF: 8 * MiB };

/** By its name alone; undefined: it is another file. */
export function definitionTypeOf(filename: string): DefinitionType | undefined {
  const type = backupTypeOf(filename);
  return type === 'xml' || type === 'OVF' || type === 'vma' ? type : undefined;
}

/**
 * @param filename names it in errors
 * @throws VirtkeepError not_a_file, file_too_large, io_failed, ovf_invalid, ovf_version_unsupported, appliance_invalid, canceled
 */
export async function readDefinitionFile(
  { path, filename }: { path: string; filename: string },
  type: DefinitionType,
  signal: AbortSignal,
): Promise<DefinitionFile> {
  if (type === 'vma') return { type, appliance: await readVma(path, filename, signal) };
  const bytes = await readForeign(path, MAX_BYTES[type]).catch((error: unknown) => {
    throw fromIoError(error, 'reading', path);
  });
  if (type === 'xml') return { type, xml: bytes.toString('utf8') };
  return { type, envelope: readOvf(bytes, filename) };
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
