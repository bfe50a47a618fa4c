/** A file that describes a VM without its disks: a domain XML, or an OVF descriptor. Nobody vouches for either. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { readForeign } from '@virtkeep/shared/foreign-file';
import { MiB } from '@virtkeep/shared/units';
import { type Envelope, readOvf } from '../../ovf/index.ts';
import { backupTypeOf } from '../../pools/index.ts';
import type { FoundFile } from '../archives/source.ts';

export type DefinitionFile = { type: 'xml'; xml: string } | { type: 'OVF'; envelope: Envelope };

/** libvirt takes no larger definition; descriptors hold the texts of licences, too. */
const MAX_BYTES = { xml: 4 * MiB, OVF: 8 * MiB };

/** By its name alone. */
export function isDefinitionName(filename: string): boolean {
  const type = backupTypeOf(filename);
  return type === 'xml' || type === 'OVF';
}

/** @throws VirtkeepError file_not_definition, not_a_file, file_too_large, io_failed, ovf_invalid, ovf_version_unsupported */
export async function readDefinitionFile({
  path,
  filename,
}: Pick<FoundFile, 'path' | 'filename'>): Promise<DefinitionFile> {
  const type = backupTypeOf(filename);
  if (type !== 'xml' && type !== 'OVF')
    throw new VirtkeepError('file_not_definition', { file: filename, type: type ?? 'unknown' });
  const bytes = await readForeign(path, MAX_BYTES[type]);
  if (type === 'xml') return { type, xml: bytes.toString('utf8') };
  return { type, envelope: readOvf(bytes, filename) };
}
