import { cleanPath } from '@virtkeep/shared/clean-path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { z } from 'zod';
import { isContent, MEMBER_KINDS, type MemberKind } from './names.ts';

/**
 * Of a manifest that every reader takes. A higher one is written only where an older reader would go wrong, which then says that it
 * cannot read the archive; new optional fields do not raise it.
 */
const MANIFEST_VERSION = 1;
/** Of a manifest that continues an earlier one instead of repeating it. */
const CONTINUED_VERSION = 2;
/** Of one with a disk that is a raw image and encrypted: a reader that ignores this restores it as something that no VM can read. */
const RAW_ENCRYPTED_VERSION = 3;
/** The newest that this agent reads. */
const NEWEST_VERSION = RAW_ENCRYPTED_VERSION;

const size = z.number().int().nonnegative();
const text = z.string();
/** As the XML beside it is read: archives of before have it as it stands there. */
const filePath = text.transform(cleanPath);
const memberName = z.string().min(1).max(255);
const stateNumber = z.number().int().min(1).max(999_999);

const member = z.looseObject({
  name: memberName,
  kind: z.enum(MEMBER_KINDS).catch('other'),
  sizeBytes: size,
  /** Bytes of it that are not holes; absent when not known. */
  allocatedBytes: size.optional(),
  /** Where its data starts in the (uncompressed) tar. */
  dataOffset: size,
  /** Lower-case hex, or null when no hash was asked for. */
  sha256: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .nullable(),
  /** The same of a member of a signed archive where no hash was asked for: of all but disks, layers and images. */
  digest: z
    .string()
    .regex(/^[0-9a-f]{64}$/)
    .optional(),
  /** Its SHA-256 was asked for by a later increment, which read it then: it says nothing of changes before. */
  hashedLater: z.literal(true).optional(),
  formerPath: filePath.nullable().default(null),
});

const layer = z.looseObject({
  member: memberName,
  /** Number of the archive's state that brought this layer. */
  stateNumber,
  /** Saved state that froze this layer; null for the automatic one of the backup. */
  frozenBy: text.nullable(),
  formerPath: filePath.nullable(),
});

const disk = z.looseObject({
  id: text,
  target: text,
  bus: text.nullable(),
  virtualSizeBytes: size,
  /** Format inside the archive. */
  format: z.literal('qcow2'),
  /** What this image holds is, byte for byte, a raw image that is encrypted: it is restored as that. Since version 3. */
  encryption: z.literal('luks').optional(),
  /** Format the first layer had on the node. */
  formerFormat: text,
  /** The domain's active path before the backup, where the restored disk goes when no pool is given. Empty: it was on no node. */
  formerPath: filePath,
  poolId: text.nullable(),
  poolName: text.nullable(),
  /** Member names, first layer first. */
  layers: z.array(layer).min(1),
  /** Backing file outside the archive (a thin clone's template); null when the chain is complete. */
  base: z
    .looseObject({
      path: filePath,
      format: text,
      diskId: text.nullable(),
      /** Of its content when the backup was made: `sha256:` and hex digits. */
      fingerprint: text.optional(),
    })
    .nullable(),
});

const sideFile = z.looseObject({
  member: memberName,
  formerPath: filePath.nullable(),
  format: text.nullable(),
});

const savedState = z.looseObject({
  name: text,
  parent: text.nullable(),
  current: z.boolean(),
  created: text.nullable(),
  description: text.nullable(),
  xmlMember: memberName,
  /** Of that XML: an increment that finds the same does not carry it again. */
  xmlSha256: text.optional(),
  memoryMember: memberName.nullable(),
  formerMemoryPath: filePath.nullable(),
  nvram: sideFile.nullable(),
  tpm: sideFile.nullable(),
});

const state = z.looseObject({
  number: stateNumber,
  /** Name of the saved state that the backup made, or null when it needed none. */
  name: text.nullable(),
  consistency: z.enum(['quiesced', 'memory', 'crash', 'off']),
  created: z.iso.datetime(),
  xmlMember: memberName,
  memoryMember: memberName.nullable(),
  nvram: sideFile.nullable(),
  tpm: sideFile.nullable(),
  /** Targets of the disks that its request left out; absent: none, or it was made before this was noted. */
  leftOut: z.array(text).optional(),
});

export const manifestSchema = z.looseObject({
  formatVersion: z.number().int().min(1),
  backupId: z.guid(),
  toolVersion: text,
  created: z.iso.datetime(),
  vm: z.looseObject({ uuid: z.guid(), name: text }),
  isTemplate: z.boolean(),
  /** Version of the template itself, for a template's backup. */
  templateVersion: text.nullable().default(null),
  /** The template a thin clone needs at restore; null for every other VM. */
  template: z
    .looseObject({ domainId: text.nullable(), name: text.nullable(), version: text.nullable() })
    .nullable(),
  /** True when made with the capability to be extended. */
  incremental: z.boolean(),
  /** Every state in the file, oldest first; the last is the current one. */
  states: z.array(state).min(1),
  disks: z.array(disk),
  isos: z.array(
    z.looseObject({
      target: text,
      /** Null when the image was left out. */
      member: memberName.nullable(),
      formerPath: filePath,
      sizeBytes: size,
      poolId: text.nullable(),
      poolName: text.nullable(),
    }),
  ),
  luns: z.array(z.looseObject({ target: text, formerPath: filePath, wwn: text.nullable() })),
  /** The VM's own saved states, parents before children. */
  snapshots: z.array(savedState),
  excludedDisks: z.array(
    z.looseObject({ target: text, id: text.nullable(), formerPath: filePath, reason: text }),
  ),
  /** Every member of the file in order, without this manifest itself. */
  members: z.array(member),
  options: z.record(z.string(), z.unknown()),
  warnings: z.array(text),
  /** Why a full backup was made although an increment was asked for. */
  fallbackReason: text.nullable(),
  /**
   * Whoever signed this manifest signed all those before it, too. Absent where none is before it, so that the archive is the signer's own,
   * and where another signed one of them, or nobody did, so that it is not.
   */
  sameSigner: z.literal(true).optional(),
  /** Signed by who did not make it: then it is not the signer's own, although none is before it. */
  adopted: z.literal(true).optional(),
});

/** Where the lists begin that a manifest does not repeat: in an earlier manifest of the same file. */
const continued = z.looseObject({
  manifest: memberName,
  stateNumber,
  dataOffset: size,
  sizeBytes: size,
  /** Of that manifest's bytes. */
  sha256: text,
  /** How many entries of its lists come before those here. */
  members: size,
  states: size,
  snapshots: size,
  /** Per disk that has some. */
  layers: z.array(z.looseObject({ disk: text, count: size })),
});

/** A manifest as it stands in the file; its lists may go on where those of an earlier one end. */
const partSchema = manifestSchema.extend({
  continues: continued.optional(),
  disks: z.array(disk.extend({ layers: z.array(layer) })),
});
export type ManifestPart = z.infer<typeof partSchema>;
export type Continued = z.infer<typeof continued>;

/** The newest manifest describes the whole file. Plain data; unknown fields are kept. */
export type Manifest = z.infer<typeof manifestSchema>;
export type MemberRecord = z.infer<typeof member>;
export type ManifestDisk = z.infer<typeof disk>;
export type ManifestLayer = z.infer<typeof layer>;
export type ManifestState = z.infer<typeof state>;
export type ManifestSavedState = z.infer<typeof savedState>;

/** The SHA-256 that a member must have; null where none is recorded. */
export const digestOf = ({
  sha256,
  digest,
}: Partial<Pick<MemberRecord, 'sha256' | 'digest'>>): string | null => sha256 ?? digest ?? null;

/** Whether an archive was asked for with hashes, or has got them since: all of its members have theirs. */
export const isHashed = ({ members }: Pick<Manifest, 'members'>): boolean =>
  members.length > 0 && members.every(({ sha256 }) => sha256 !== null);

/** Why a disk that the request names is in no backup. */
export const ON_REQUEST = 'excluded';

/**
 * Targets of the disks that the request of a state left out. Of the newest state that was made before states noted it the manifest says so,
 * of those before it nobody knows: none.
 */
export function leftOutOf(
  { states, excludedDisks }: Pick<Manifest, 'states' | 'excludedDisks'>,
  state: ManifestState,
): string[] {
  if (state.leftOut !== undefined || state !== states.at(-1)) return state.leftOut ?? [];
  return excludedDisks.filter(({ reason }) => reason === ON_REQUEST).map(({ target }) => target);
}

/** The lowest format version whose readers understand this manifest. */
export function formatVersionOf({ continues, disks }: Pick<ManifestPart, 'continues' | 'disks'>): number {
  if (disks.some(({ encryption }) => encryption !== undefined)) return RAW_ENCRYPTED_VERSION;
  return continues === undefined ? MANIFEST_VERSION : CONTINUED_VERSION;
}

/**
 * Reads manifest bytes out of the archive at `path`: what stands there, without what it continues.
 * @param newest the newest format version that is read
 * @throws VirtkeepError archive_unsupported for a newer format, archive_damaged for anything else that is wrong
 */
export function parseManifest(bytes: Uint8Array, path: string, newest = NEWEST_VERSION): ManifestPart {
  const damaged = (reason: string) => new VirtkeepError('archive_damaged', { path, reason });
  let raw: unknown;
  try {
    raw = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw damaged('its manifest is not JSON');
  }
  const version = z.looseObject({ formatVersion: z.number() }).safeParse(raw);
  if (version.success && version.data.formatVersion > newest)
    throw new VirtkeepError('archive_unsupported', {
      path,
      reason: `its format version is ${version.data.formatVersion}, this agent reads up to ${newest}`,
    });
  const parsed = partSchema.safeParse(raw);
  if (!parsed.success)
    throw damaged(`its manifest is not valid: ${z.prettifyError(parsed.error).slice(0, 300)}`);
  const { signature: _, ...part } = parsed.data;
  return part as ManifestPart;
}

/** Manifest as it is stored: indented JSON, for people who open it by hand. */
export function encodeManifest(manifest: ManifestPart): Buffer {
  return Buffer.from(`${JSON.stringify(partSchema.parse(manifest), null, 1)}\n`);
}

/**
 * Looks at a manifest that a caller made: it must list exactly what was written.
 * @throws VirtkeepError internal
 */
export function checkManifest(manifest: Manifest, members: readonly MemberRecord[]): void {
  const same =
    manifest.members.length === members.length &&
    manifest.members.every((member, index) => member.name === members[index]!.name);
  const fault = same ? manifestFault(manifest) : 'the manifest does not list the members that were written';
  if (fault !== undefined)
    throw new VirtkeepError('internal', { request_id: '-' }, { cause: new Error(fault) });
}

/**
 * What is wrong with a whole manifest beyond its form: a disk of nothing, names listed twice or referred to and not listed, or what
 * defines the VM is to be read out of its disks, whose bytes a signature may say nothing of.
 */
export function manifestFault(manifest: Manifest): string | undefined {
  const empty = manifest.disks.find(({ layers }) => layers.length === 0);
  if (empty) return `its manifest has no layer of the disk ${empty.target}`;
  return referenceFault(manifest);
}

function referenceFault(manifest: Manifest): string | undefined {
  const listed = new Map<string, MemberKind>();
  for (const { name, kind } of manifest.members) {
    if (listed.has(name)) return `its manifest lists "${name}" twice`;
    listed.set(name, kind);
  }
  const defining = definingNames(manifest);
  const lacking = present([...defining, ...contentNames(manifest)]).find(name => !listed.has(name));
  if (lacking !== undefined) return `its manifest names "${lacking}" and does not list it`;
  const content = present(defining).find(name => isContent(listed.get(name)!));
  return content === undefined
    ? undefined
    : `its manifest takes "${content}", which is a disk, for something else`;
}

type Name = string | null | undefined;
const present = (names: Name[]): string[] => names.filter(name => name !== null && name !== undefined);

/** Members that define the VM: what they hold is used by the node itself. */
function definingNames({ states, snapshots }: Manifest): Name[] {
  return [...states, ...snapshots].flatMap(entry => [
    entry.xmlMember,
    entry.memoryMember,
    entry.nvram?.member,
    entry.tpm?.member,
  ]);
}

function contentNames({ disks, isos }: Manifest): Name[] {
  const layers = disks.flatMap(entry => entry.layers.map(({ member: name }) => name));
  return [...layers, ...isos.map(iso => iso.member)];
}
