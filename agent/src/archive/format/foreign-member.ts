import type { MemberKind } from './names.ts';
import type { WalkedMember } from './tar-format.ts';
import type { ArchiveMember } from './types.ts';

/** A member of an archive without manifest: its kind is told from its name. */
export function foreignMember(walked: WalkedMember): ArchiveMember {
  const { name, sizeBytes, dataOffset, isFile } = walked;
  return {
    name,
    kind: isFile ? kindOf(name) : 'other',
    sizeBytes,
    dataOffset,
    sha256: null,
    formerPath: null,
    ...(isFile ? {} : { isSpecial: true as const }),
  };
}

/** What is said of a member that is wanted and is none whose bytes stand in the tar as they are. */
export const NO_PLAIN_FILE = 'is no plain file in the tar: a link, or one that was packed with --sparse';

const KIND_BY_ENDING: [RegExp, MemberKind][] = [
  [/^\d{4,6}_manifest\.json$/, 'manifest'],
  [/\.qcow2$/i, 'disk'],
  [/\.snapshot$/, 'layer'],
  [/\.memory$/, 'memory'],
  [/\.iso$/i, 'iso'],
  [/[._]nvram\.fd$/, 'nvram'],
  [/[._]tpm\.tar$/, 'tpm'],
  [/\.snapshot\.xml$/, 'state_xml'],
  [/\.xml$/i, 'domain_xml'],
];

const kindOf = (name: string): MemberKind =>
  KIND_BY_ENDING.find(([pattern]) => pattern.test(name))?.[1] ?? 'other';
