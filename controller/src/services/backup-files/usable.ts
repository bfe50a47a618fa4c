/** What a backup file may be used for, by its status and type; pure. Calls are refused and `permissions` are offered by these rules. */
interface Usable {
  status: string;
  type: string;
}

export const BUSY_STATUSES: readonly string[] = ['CREATING', 'DELETING', 'UPDATING'];

/** An operation creates, changes or removes it. */
export const isBusy = ({ status }: Pick<Usable, 'status'>): boolean => BUSY_STATUSES.includes(status);

/** It is there, and no operation creates, changes or removes it. */
export const isIdle = (file: Pick<Usable, 'status'>): boolean => file.status !== 'MISSING' && !isBusy(file);

/** It lies on its pool and is not being created or removed: its content can be read. */
export const isPublished = (file: Pick<Usable, 'status'>): boolean =>
  file.status === 'UPDATING' || isIdle(file);

/** An archive, which can be verified, converted and restored. */
export const isArchive = ({ type }: Pick<Usable, 'type'>): boolean => type === 'tar';

/** What describes a VM that is restored without its disks. */
export const isDefinition = (file: Pick<Usable, 'type'>): boolean =>
  file.type === 'xml' || isConvertible(file);

/** What holds a VM with its disks, of which a backup can be made. */
export const isConvertible = (file: Pick<Usable, 'type'>): boolean =>
  file.type === 'virtnbdbackup' || isAppliance(file);

/** What can also be restored with its disks, without a backup in between. */
export const isAppliance = ({ type }: Pick<Usable, 'type'>): boolean =>
  type === 'OVA' || type === 'OVF' || type === 'vma';

/** A whole directory of files, which are its owner's to remove. */
export const isDirectory = ({ type }: Pick<Usable, 'type'>): boolean => type === 'virtnbdbackup';

/** A disk image that stands alone: it is imported as a disk, and no backup of any VM. */
export const isDiskImage = ({ type }: Pick<Usable, 'type'>): boolean => type === 'disk';
