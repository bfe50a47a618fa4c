/** What a backup file may be used for, by its status and type. The calls refuse by it, and `permissions` offer by it. Pure. */
interface Usable {
  status: string;
  type: string;
}

export const BUSY_STATUSES: readonly string[] = ['CREATING', 'DELETING', 'UPDATING'];

/** Something makes, changes or removes it. */
export const isBusy = ({ status }: Pick<Usable, 'status'>): boolean => BUSY_STATUSES.includes(status);

/** It is there, and nothing makes, changes or removes it. */
export const isIdle = (file: Pick<Usable, 'status'>): boolean => file.status !== 'MISSING' && !isBusy(file);

/** It lies on its pool and is not being made or removed: what it says can be read. */
export const isPublished = (file: Pick<Usable, 'status'>): boolean =>
  file.status === 'UPDATING' || isIdle(file);

/** An archive, which can be verified, converted and restored; anything else can only be kept. */
export const isArchive = ({ type }: Pick<Usable, 'type'>): boolean => type === 'tar';
