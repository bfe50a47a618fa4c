/**
 * A file that describes a VM without its disks: a domain XML, an OVF descriptor, an archive of Proxmox VE, a backup of virtnbdbackup's. Nobody
 * vouches for any.
 */
import { fromIoError } from '@virtkeep/shared/errors';
import { readForeign } from '@virtkeep/shared/foreign-file';
import { MiB } from '@virtkeep/shared/units';
import { openVirtnbd, openVma } from '../../appliance/index.ts';
import { type Appliance, type Envelope, readOvf } from '../../ovf/index.ts';
import { backupTypeOf } from '../../pools/index.ts';
import { proxmoxVmOf } from '../../proxmox/index.ts';
import { stateOf } from './virtnbd-state.ts';

export type DefinitionType = 'xml' | 'OVF' | 'vma' | 'virtnbdbackup';
export type DefinitionFile =
  | { type: 'xml'; xml: string }
  | { type: 'OVF'; envelope: Envelope }
  | { type: 'vma'; appliance: Appliance };

/** libvirt takes no larger definition; descriptors hold the texts of licences, too. */
const MAX_BYTES = { xml: 4 * MiB, OVF: 8 * MiB };

/** By its name alone; undefined: it is another file. */
export function definitionTypeOf(filename: string): DefinitionType | undefined {
  const type = backupTypeOf(filename);
  return type === 'tar' || type === 'OVA' ? undefined : type;
}

/**
 * @param filename names it in errors
 * @param state of a backup of virtnbdbackup's, by its number or name; empty: the newest
 * @throws VirtkeepError not_a_file, file_too_large, io_failed, ovf_invalid, ovf_version_unsupported, appliance_invalid, state_not_found,
 * canceled
 */
export async function readDefinitionFile(
  { path, filename }: { path: string; filename: string },
  type: DefinitionType,
  signal: AbortSignal,
  state = '',
): Promise<DefinitionFile> {
  if (type === 'vma') return { type, appliance: await readVma(path, filename, signal) };
  if (type === 'virtnbdbackup')
    return { type: 'xml', xml: await readVirtnbd({ path, filename }, state, signal) };
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
