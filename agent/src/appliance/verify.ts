import { createHash } from 'node:crypto';
import { throwIfAborted } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { AppliancePackage } from './appliance.ts';
import { shown } from './fault.ts';
import type { ManifestEntry } from './manifest.ts';

export interface VerifyOptions {
  signal: AbortSignal;
  /** What is used of the appliance; what of it the manifest leaves out is warned of. Default: all members that are known. */
  names?: readonly string[];
  onProgress?: (doneBytes: number, totalBytes: number) => void;
}

/**
 * Holds the members against the manifest.
 * @returns warnings: of what is not there, and what nothing vouches for
 * @throws VirtkeepError hash_mismatch that names the member; appliance_invalid, not_a_file, io_failed, canceled
 */
export async function verifyMembers(appliance: AppliancePackage, options: VerifyOptions): Promise<string[]> {
  const { manifest, certificate, descriptor, path } = appliance;
  if (manifest === null)
    return ['The appliance has no manifest: whether its files are whole cannot be told.'];
  const warnings = manifest.unread.map(line => `A line of the manifest is not understood: ${shown(line)}.`);
  const wanted = await expected(appliance, manifest.entries, warnings);
  const used = options.names ?? appliance.members.map(({ name }) => name);
  const unsigned = new Set([manifest.name, certificate?.name]);
  for (const name of new Set([descriptor.name, ...used]))
    if (!wanted.has(name) && !unsigned.has(name)) warnings.push(unvouched(name));
  await hashAll(appliance, wanted, options, path);
  return warnings;
}

/**
 * Holds the descriptor alone against the manifest, which a certificate may sign: whoever reads but it, believes no more.
 * @returns warnings: that nothing vouches for it
 * @throws VirtkeepError hash_mismatch
 */
export function verifyDescriptor({
  path,
  manifest,
  descriptor,
}: Pick<AppliancePackage, 'path' | 'manifest' | 'descriptor'>): string[] {
  const { name, bytes } = descriptor;
  const entries = manifest?.entries.filter(({ file }) => file === name) ?? [];
  if (entries.some(({ digest, value }) => createHash(digest).update(bytes).digest('hex') !== value))
    throw new VirtkeepError('hash_mismatch', { member: name, path });
  return manifest === null || entries.length > 0 ? [] : [unvouched(name)];
}

const unvouched = (name: string): string =>
  `The manifest says nothing of ${shown(name)}: whether it is whole cannot be told.`;

/** What the manifest says of the files that are there. */
async function expected(
  appliance: AppliancePackage,
  entries: readonly ManifestEntry[],
  warnings: string[],
): Promise<Map<string, ManifestEntry[]>> {
  const wanted = new Map<string, ManifestEntry[]>();
  for (const entry of entries) {
    const known = wanted.get(entry.file);
    if (known !== undefined) known.push(entry);
    else if (await appliance.find(entry.file)) wanted.set(entry.file, [entry]);
    else warnings.push(`The manifest names ${shown(entry.file)}, which is not there.`);
  }
  return wanted;
}

async function hashAll(
  appliance: AppliancePackage,
  wanted: ReadonlyMap<string, readonly ManifestEntry[]>,
  { signal, onProgress }: VerifyOptions,
  path: string,
): Promise<void> {
  const counted = appliance.members.filter(({ name }) => wanted.has(name));
  const totalBytes = counted.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  let doneBytes = 0;
  const take = async (member: { name: string }, pieces: AsyncIterable<Buffer>) => {
    const entries = wanted.get(member.name)!;
    const hashes = new Map(entries.map(({ digest }) => [digest, createHash(digest)]));
    for await (const piece of pieces) {
      throwIfAborted(signal);
      for (const hash of hashes.values()) hash.update(piece);
      doneBytes += piece.length;
      onProgress?.(doneBytes, totalBytes);
    }
    const found = new Map([...hashes].map(([digest, hash]) => [digest, hash.digest('hex')]));
    if (entries.some(({ digest, value }) => found.get(digest) !== value))
      throw new VirtkeepError('hash_mismatch', { member: member.name, path });
  };
  await appliance.read(new Set(wanted.keys()), take, signal);
}
