/** What can be made of a file of others. Pure. */
import type { BackupFile } from '../api/client.ts';

const KINDS = ['vm', 'backup', 'config', 'disk'] as const;
export type Kind = (typeof KINDS)[number];

const ACTION: Record<Kind, string> = {
  vm: 'restore',
  backup: 'convert_backup',
  config: 'config_restore',
  disk: 'import_disk',
};

/** What may be made of it now. */
export function kindsOf({ permissions = [] }: Pick<BackupFile, 'permissions'>): Kind[] {
  return KINDS.filter(kind => permissions.includes(ACTION[kind]));
}
