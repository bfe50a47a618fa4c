/** A file that describes a VM without its disks: a domain XML, or an OVF descriptor. Nobody vouches for either. */
import { fromIoError } from '@virtkeep/shared/errors';
import { readForeign } from '@virtkeep/shared/foreign-file';
import { MiB } from '@virtkeep/shared/units';
import { type Envelope, readOvf } from '../../ovf/index.ts';
import { backupTypeOf } from '../../pools/index.ts';

export type DefinitionType = 'xml' | 'OVF';
export type DefinitionFile = { type: 'xml'; xml: string } | { type: 'OVF'; envelope: Envelope };

/** libvirt takes no larger definition; descriptors hold the texts of licences, too. */
const MAX_BYTES = { xml: 4 * MiB, OVF: 8 * MiB };

/** By its name alone; undefined: it is another file. */
export function definitionTypeOf(filename: string): DefinitionType | undefined {
  const type = backupTypeOf(filename);
  return type === 'xml' || type === 'OVF' ? type : undefined;
}

/**
 * @param filename names it in errors
 * @throws VirtkeepError not_a_file, file_too_large, io_failed, ovf_invalid, ovf_version_unsupported
 */
export async function readDefinitionFile(
  { path, filename }: { path: string; filename: string },
  type: DefinitionType,
): Promise<DefinitionFile> {
  const bytes = await readForeign(path, MAX_BYTES[type]).catch((error: unknown) => {
    throw fromIoError(error, 'reading', path);
  });
  if (type === 'xml') return { type, xml: bytes.toString('utf8') };
  return { type, envelope: readOvf(bytes, filename) };
}
