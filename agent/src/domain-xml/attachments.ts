/** What of other domains a domain has, from its definition alone: the XML is the truth, the metadata only explains it. */
import { uuidV5 } from '@virtkeep/shared/ids';
import type { DiskConfig, DomainConfig } from './config.ts';
import { isLent, lentDiskIdOf } from './lent-disk.ts';
import type { Attachment } from './metadata.ts';

/**
 * The disks of other domains in this definition, each once. One that the metadata does not know (it was lost) is known by its alias;
 * its owner then is unknown, an empty text, unless `ownerOf` knows it.
 * @param ownerOf the domain that lends the disk, from the loans of the others
 */
export function attachmentsOf(
  { disks, metadata }: Pick<DomainConfig, 'disks' | 'metadata'>,
  ownerOf: (diskId: string) => string | undefined = () => undefined,
): Attachment[] {
  const found = disks
    .filter(disk => isLent(disk, metadata))
    .flatMap((disk): Attachment[] => {
      const record = recordOf(disk, metadata.attachments);
      if (record) return [{ ...record, targetDev: disk.targetDev, path: disk.path ?? record.path }];
      const diskId = lentDiskIdOf(disk.alias);
      if (diskId === undefined || disk.path === undefined) return [];
      const { targetDev, path } = disk;
      const ownerId = ownerOf(diskId) ?? '';
      const attachedId = attachedIdOf(diskId, undefined, path);
      return [{ diskId, ownerId, attachedId, targetDev, path, thinClone: false }];
    });
  return found.filter(({ diskId }, index) => found.findIndex(other => other.diskId === diskId) === index);
}

/** What the metadata says of a disk: by the original's id in its alias, else by its path. */
function recordOf({ alias, path }: DiskConfig, records: readonly Attachment[]): Attachment | undefined {
  const diskId = lentDiskIdOf(alias);
  return records.find(record => (diskId === undefined ? record.path === path : record.diskId === diskId));
}

/**
 * Id of what is attached: that of its file, when it is another than the original's; else one made of both.
 * @param fileId id of a disk that begins with that file
 */
export function attachedIdOf(diskId: string, fileId: string | undefined, path: string): string {
  return fileId !== undefined && fileId !== diskId ? fileId : uuidV5(diskId, path);
}
