/**
 * The class of each command of guest agents: what a caller must be allowed to run it, over REST and over gRPC. The one table; what is not in it
 * (a newer agent's command) counts as the execution of a program.
 */
import type { Permission } from './permissions.ts';

export type GuestPermission = Extract<Permission, `guest.${string}`>;

/** What ends in `*` stands for all that begin so. */
const CLASSES: Record<Exclude<GuestPermission, 'guest.execute'>, readonly string[]> = {
  'guest.read': [
    'guest-get-*',
    'guest-info',
    'guest-ping',
    'guest-sync',
    'guest-sync-delimited',
    'guest-network-get-interfaces',
    'guest-fsfreeze-status',
  ],
  'guest.file': ['guest-file-*'],
  'guest.power': [
    'guest-shutdown',
    'guest-suspend-*',
    'guest-fsfreeze-freeze',
    'guest-fsfreeze-freeze-list',
    'guest-fsfreeze-thaw',
    'guest-fstrim',
    'guest-set-time',
    'guest-set-vcpus',
    'guest-set-memory-blocks',
  ],
};

/** What a caller must be allowed to run this command. */
export function guestPermission(command: string): GuestPermission {
  for (const [permission, patterns] of Object.entries(CLASSES))
    if (patterns.some(pattern => covers(pattern, command))) return permission as GuestPermission;
  return 'guest.execute';
}

function covers(pattern: string, command: string): boolean {
  return pattern.endsWith('*') ? command.startsWith(pattern.slice(0, -1)) : command === pattern;
}
