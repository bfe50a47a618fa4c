/** Which of the files that an OVF descriptor names are there, and what that means for one of its VMs. */
import { hasKey } from '@virtkeep/shared/errors';
import { type AppliancePackage, chunksOf } from '../../appliance/index.ts';
import { type Appliance, type Envelope, type OvfFile, quoted, type Warning } from '../../ovf/index.ts';

/** Bytes of the files that are there, as they stand in the package, by their ids in the descriptor. */
export type PackageFiles = ReadonlyMap<string, number>;

/** @throws VirtkeepError io_failed */
export async function filesThere(
  opened: Pick<AppliancePackage, 'find' | 'members' | 'path'>,
  { files }: Envelope,
): Promise<PackageFiles> {
  const found = new Map<string, number>();
  for (const file of files.values()) {
    const sizeBytes = file.fault === null ? await sizeOf(opened as AppliancePackage, file) : undefined;
    if (sizeBytes !== undefined) found.set(file.id, sizeBytes);
  }
  return found;
}

/** Undefined: it is not there, or is none that is read. */
async function sizeOf(
  opened: AppliancePackage,
  { paths, chunkSizeBytes }: OvfFile,
): Promise<number | undefined> {
  try {
    for (const name of paths) {
      const member = await opened.find(name);
      if (member !== undefined) return member.sizeBytes;
    }
    if (chunkSizeBytes === null) return undefined;
    const chunks = await chunksOf(opened, paths[0]!);
    return chunks.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  } catch (error) {
    if (hasKey(error, 'foreign_disk_invalid', 'not_a_file')) return undefined;
    throw error;
  }
}

/** The same VM without what is not there: disks have a fault, drives are empty, and each file is named once. */
export function withoutMissing(
  appliance: Appliance,
  files: PackageFiles,
): { appliance: Appliance; warnings: Warning[] } {
  const missing = new Map<string, OvfFile>();
  const isMissing = (file: OvfFile | null): file is OvfFile => {
    if (file === null || files.has(file.id)) return false;
    missing.set(file.id, file);
    return true;
  };
  const disks = appliance.disks.map(disk =>
    isMissing(disk.file)
      ? { ...disk, file: null, fault: `its file ${quoted(disk.file.href)} is not there` }
      : disk,
  );
  const drives = appliance.drives.map(drive => (isMissing(drive.file) ? { ...drive, file: null } : drive));
  const warnings = [...missing.values()].map(
    ({ id, href }): Warning => ({
      element: `File ${quoted(id)}`,
      key: 'missing',
      text: `${quoted(href)} is not there: what it holds does not come along until it is.`,
    }),
  );
  return { appliance: { ...appliance, disks, drives }, warnings };
}
