import { basename, dirname, join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';

/**
 * What a member is; recorded in the manifest, so that a reader need not guess from the name. In the order in which a state brings them
 * (docs/archive-format.md).
 */
export const MEMBER_KINDS = [
  'disk',
  'layer',
  'memory',
  'iso',
  'nvram',
  'tpm',
  'domain_xml',
  'state_xml',
  'manifest',
  'other',
] as const;
export type MemberKind = (typeof MEMBER_KINDS)[number];

/** Whether a member is what a guest wrote or was given to read; all others define the VM. */
export const isContent = (kind: MemberKind): boolean => kind === 'disk' || kind === 'layer' || kind === 'iso';

/** What a signature must stand for, whatever kind a manifest gives it: else nothing that is read of it is bound to the signature. */
export const needsDigest = ({ name, kind }: { name: string; kind: MemberKind }): boolean =>
  !isContent(kind) || isManifestName(name);

/** Longest member name in bytes; what every file system can extract. */
export const MAX_NAME_BYTES = 255;

/** The zero-padded prefix of a state's number (1..999999): "0001". */
export const statePrefix = (stateNumber: number): string => String(stateNumber).padStart(4, '0');

/** Names of the members; the free text in them (VM, state and image names) is made safe first. */
export const memberNames = {
  /** First layer of a disk that is not a thin clone's. */
  disk: (diskId: string): string => `${safePart(diskId)}.qcow2`,
  /** A further layer of a disk: what was written since `state` was frozen below it. */
  layer: (diskId: string, state: string): string => `${safePart(diskId)}_${safePart(state)}.snapshot`,
  memory: (state: string): string => `${safePart(state)}.memory`,
  /** `image` is the file name of the image, with or without `.iso`. */
  iso: (image: string): string => `${safePart(basename(image).replace(/\.iso$/i, ''))}.iso`,
  /** NVRAM of the VM, or of one of its saved states. */
  nvram: (stateNumber: number, savedState?: string): string => numbered(stateNumber, savedState, 'nvram.fd'),
  /** Software-TPM state, itself a small tar, of the VM or of one of its saved states. */
  tpm: (stateNumber: number, savedState?: string): string => numbered(stateNumber, savedState, 'tpm.tar'),
  domainXml: (stateNumber: number, vmName: string): string =>
    `${statePrefix(stateNumber)}_${safePart(vmName)}.xml`,
  /**
   * XML of one of the VM's saved states. Of all `<n>_*.xml` the one with the largest number is the VM's current configuration
   * (specification 2.1), so this is none; archives of before have them as `<n>_<state>.snapshot.xml`.
   */
  stateXml: (stateNumber: number, savedState: string): string =>
    `state_${numbered(stateNumber, savedState, 'snapshot.xml')}`,
  manifest: (stateNumber: number): string => `${statePrefix(stateNumber)}_manifest.json`,
};

function numbered(stateNumber: number, savedState: string | undefined, ending: string): string {
  const prefix = statePrefix(stateNumber);
  return savedState === undefined ? `${prefix}_${ending}` : `${prefix}_${safePart(savedState)}.${ending}`;
}

const MANIFEST_NAME = /^\d{4,6}_manifest\.json$/;
export const isManifestName = (name: string): boolean => MANIFEST_NAME.test(name);

/**
 * Free text made fit for a member name: no slash, backslash or control character, no leading dot, at most 180
 * bytes (cut between characters), so that with prefix and ending it stays below MAX_NAME_BYTES.
 */
export function safePart(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is removed
  const clean = text.replace(/[\u0000-\u001f\u007f/\\]/g, '_').replace(/^\./, '_');
  let cut = '';
  for (const character of clean) {
    if (Buffer.byteLength(cut) + Buffer.byteLength(character) > 180) break;
    cut += character;
  }
  return cut === '' ? '_' : cut;
}

/** Why a name may not be a member's, or undefined when it may. A member is a plain file in no directory. */
export function nameFault(name: string): string | undefined {
  if (name === '' || name === '.' || name === '..') return 'empty or a directory';
  if (name.includes('/')) return 'it holds a slash';
  // biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what is refused
  if (/[\u0000-\u001f\u007f\\]/.test(name)) return 'it holds a control character or a backslash';
  if (Buffer.byteLength(name) > MAX_NAME_BYTES) return `it is longer than ${MAX_NAME_BYTES} bytes`;
  return undefined;
}

/** Refuses what {@link nameFault} finds. @throws VirtkeepError invalid_name */
export function checkName(name: string): void {
  const reason = nameFault(name);
  if (reason !== undefined) throw new VirtkeepError('invalid_name', { value: name, reason });
}

/** Room within the 255 bytes of a file name for the longest that an operation puts beside an archive: `.NAME.<id>.partial.sha256`. */
const MAX_ARCHIVE_NAME_BYTES = 202;

/** Whether an archive of this name can be written and extended: where not, each try would fail, and its undo with it. */
export const isNameTooLong = (path: string): boolean =>
  Buffer.byteLength(basename(path)) > MAX_ARCHIVE_NAME_BYTES;

/** The temporary name beside the target that an archive has until it is published. */
export function partialPathOf(path: string, backupId: string): string {
  return join(dirname(path), `.${basename(path)}.${backupId}.partial`);
}

/** All files that a writer has beside its partial one, which comes first. */
export const partialPathsOf = (partialPath: string): string[] => [
  partialPath,
  `${partialPath}.qcow2`,
  sha256PathOf(partialPath),
];

/** The sidecar with the members' SHA-256 in `sha256sum -c` form. */
export const sha256PathOf = (path: string): string => `${path}.sha256`;
