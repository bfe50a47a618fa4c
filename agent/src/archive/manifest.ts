import { VirtkeepError } from '@virtkeep/shared/errors';
import { z } from 'zod';
import { MEMBER_KINDS } from './names.ts';

/** Raised only when an older reader would misunderstand the archive; new optional fields do not raise it. */
export const MANIFEST_VERSION = 1;
/** Largest manifest that is written or read. */
export const MAX_MANIFEST_BYTES = 16 * 1024 * 1024;

const size = z.number().int().nonnegative();
const text = z.string();
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
  formerPath: text.nullable().default(null),
});

const layer = z.looseObject({
  member: memberName,
  /** Number of the archive's state that brought this layer. */
  stateNumber,
  /** Saved state that froze this layer; null for the automatic one of the backup. */
  frozenBy: text.nullable(),
  formerPath: text.nullable(),
});

const disk = z.looseObject({
  id: text,
  target: text,
  bus: text.nullable(),
  virtualSizeBytes: size,
  /** Format inside the archive. */
  format: z.literal('qcow2'),
  /** Format the first layer had on the node. */
  formerFormat: text,
  /** The domain's active path before the backup, where the restored disk goes when no pool is given. */
  formerPath: text,
  poolId: text.nullable(),
  poolName: text.nullable(),
  /** Member names, first layer first. */
  layers: z.array(layer).min(1),
  /** Backing file outside the archive (a thin clone's template); null when the chain is complete. */
  base: z
    .looseObject({
      path: text,
      format: text,
      diskId: text.nullable(),
      /** Of its content when the backup was made: `sha256:` and hex digits. */
      fingerprint: text.optional(),
    })
    .nullable(),
});

const sideFile = z.looseObject({ member: memberName, formerPath: text.nullable(), format: text.nullable() });

const savedState = z.looseObject({
  name: text,
  parent: text.nullable(),
  current: z.boolean(),
  created: text.nullable(),
  description: text.nullable(),
  xmlMember: memberName,
  memoryMember: memberName.nullable(),
  formerMemoryPath: text.nullable(),
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
      formerPath: text,
      sizeBytes: size,
      poolId: text.nullable(),
      poolName: text.nullable(),
    }),
  ),
  luns: z.array(z.looseObject({ target: text, formerPath: text, wwn: text.nullable() })),
  /** The VM's own saved states, parents before children. */
  snapshots: z.array(savedState),
  excludedDisks: z.array(
    z.looseObject({ target: text, id: text.nullable(), formerPath: text, reason: text }),
  ),
  /** Every member of the file in order, without this manifest itself. */
  members: z.array(member),
  options: z.record(z.string(), z.unknown()),
  warnings: z.array(text),
  /** Why a full backup was made although an increment was asked for. */
  fallbackReason: text.nullable(),
});

/** The newest manifest describes the whole file. Plain data; unknown fields are kept. */
export type Manifest = z.infer<typeof manifestSchema>;
export type MemberRecord = z.infer<typeof member>;
export type ManifestDisk = z.infer<typeof disk>;
export type ManifestLayer = z.infer<typeof layer>;
export type ManifestState = z.infer<typeof state>;
export type ManifestSavedState = z.infer<typeof savedState>;

/**
 * Reads manifest bytes out of the archive at `path`.
 * @throws VirtkeepError archive_unsupported for a newer format, archive_damaged for anything else that is wrong
 */
export function parseManifest(bytes: Uint8Array, path: string): Manifest {
  const damaged = (reason: string) => new VirtkeepError('archive_damaged', { path, reason });
  let raw: unknown;
  try {
    raw = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    throw damaged('its manifest is not JSON');
  }
  const version = z.looseObject({ formatVersion: z.number() }).safeParse(raw);
  if (version.success && version.data.formatVersion > MANIFEST_VERSION)
    throw new VirtkeepError('archive_unsupported', {
      path,
      reason: `its format version is ${version.data.formatVersion}, this agent reads up to ${MANIFEST_VERSION}`,
    });
  const parsed = manifestSchema.safeParse(raw);
  if (!parsed.success)
    throw damaged(`its manifest is not valid: ${z.prettifyError(parsed.error).slice(0, 300)}`);
  const fault = referenceFault(parsed.data);
  if (fault !== undefined) throw damaged(fault);
  return parsed.data;
}

/** Manifest as it is stored: indented JSON, for people who open it by hand. */
export function encodeManifest(manifest: Manifest): Buffer {
  return Buffer.from(`${JSON.stringify(manifestSchema.parse(manifest), null, 1)}\n`);
}

/**
 * The bytes of a manifest that a caller made, which must be valid and list exactly what was written.
 * @throws VirtkeepError internal
 */
export function checkedManifest(manifest: Manifest, members: readonly MemberRecord[]): Buffer {
  const internal = (cause: unknown) => new VirtkeepError('internal', { request_id: '-' }, { cause });
  const same =
    manifest.members.length === members.length &&
    manifest.members.every((member, index) => member.name === members[index]!.name);
  const fault = same ? referenceFault(manifest) : 'the manifest does not list the members that were written';
  if (fault !== undefined) throw internal(new Error(fault));
  try {
    return encodeManifest(manifest);
  } catch (error) {
    throw internal(error);
  }
}

/** Names listed twice or referred to and not listed. */
export function referenceFault(manifest: Manifest): string | undefined {
  const listed = new Set<string>();
  for (const { name } of manifest.members) {
    if (listed.has(name)) return `its manifest lists "${name}" twice`;
    listed.add(name);
  }
  const missing = referredNames(manifest).find(name => !listed.has(name));
  return missing === undefined ? undefined : `its manifest names "${missing}" and does not list it`;
}

function referredNames(manifest: Manifest): string[] {
  const withSides = [...manifest.states, ...manifest.snapshots].flatMap(entry => [
    entry.xmlMember,
    entry.memoryMember,
    entry.nvram?.member,
    entry.tpm?.member,
  ]);
  const layers = manifest.disks.flatMap(entry => entry.layers.map(({ member: name }) => name));
  const isos = manifest.isos.map(iso => iso.member);
  return [...withSides, ...layers, ...isos].filter(name => name !== null && name !== undefined);
}
