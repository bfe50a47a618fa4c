/** Why the controller does not offer an action of a record now: `permissions` says that it does not, the rest of the record why. Pure. */
import type { BackupFile, Domain, Session, Task } from '../api/client.ts';
import type { Texts } from '../texts/en.ts';

interface Asked {
  texts: Texts;
  session: Session;
}

const OFF = 1;
const SUSPENDED = 2;
const RUNNING = 3;

const DOMAIN_RIGHTS: Readonly<Record<string, string>> = {
  backup: 'backup.create',
  snapshot: 'snapshot.manage',
  guest_command: 'guest.read',
  guest_operation: 'guest.execute',
  attach_vdisk: 'vdisk.attach',
  detach_vdisk: 'vdisk.attach',
  update: 'domain.manage',
  rename: 'domain.manage',
  template: 'domain.manage',
  clone: 'domain.manage',
  change_template: 'domain.manage',
  remove: 'domain.manage',
};
/** They work on the guest that answers, whatever else works on its VM. */
const MEANWHILE = ['guest_command', 'update'];

function lacks(right: string, { texts, session }: Asked): string | undefined {
  if (session.permissions.includes(right)) return undefined;
  return texts.reasons.role(texts.roles[session.role] ?? session.role);
}

/** @returns undefined when it may be taken */
export function domainReason(action: string, domain: Domain, asked: Asked): string | undefined {
  if (domain.permissions.includes(action)) return undefined;
  const words = asked.texts.reasons;
  const { user_power_state: power, locked_by: lockedBy } = domain;
  return (
    lacks(DOMAIN_RIGHTS[action] ?? 'domain.power', asked) ??
    (lockedBy === null || MEANWHILE.includes(action) ? undefined : words.locked) ??
    (domain.template && action === 'start' ? words.template : undefined) ??
    powerReason(action, power, asked.texts) ??
    words.unable
  );
}

function powerReason(action: string, power: number, { reasons }: Texts): string | undefined {
  switch (action) {
    case 'start':
      return power === OFF ? undefined : reasons.running;
    case 'shutdown':
    case 'reset':
      return power === OFF ? reasons.off : undefined;
    case 'reboot':
    case 'suspend':
      return power === RUNNING ? undefined : reasons.notRunning;
    case 'resume':
      return power === SUSPENDED ? undefined : reasons.notSuspended;
    case 'clone':
    case 'rename':
    case 'template':
    case 'change_template':
      return power === OFF ? undefined : reasons.running;
    case 'guest_command':
    case 'guest_operation':
      return power === RUNNING ? reasons.silent : reasons.notRunning;
    default:
      return undefined;
  }
}

const FILE_RIGHTS: Readonly<Record<string, string>> = {
  restore: 'backup.restore',
  download: 'library.download',
  export: 'library.download',
  import_disk: 'backup.restore_foreign',
};
const BUSY = ['CREATING', 'UPDATING', 'DELETING'];

/** @returns undefined when it may be taken */
export function fileReason(action: string, file: BackupFile, asked: Asked): string | undefined {
  if (file.permissions?.includes(action)) return undefined;
  const words = asked.texts.reasons;
  return (
    lacks(FILE_RIGHTS[action] ?? 'library.manage', asked) ??
    (BUSY.includes(file.status) ? words.busy : undefined) ??
    (action === 'remove' && file.protected ? words.protected : undefined) ??
    (action === 'compress' && file.compressed ? words.compressed : undefined) ??
    (action === 'unpack' && !file.compressed ? words.plain : undefined) ??
    (action === 'restore' && !file.additional_flags.can_be_domained ? words.notRestorable : undefined) ??
    words.state
  );
}

/** @returns undefined when it may be stopped */
export function cancelReason(task: Task, asked: Asked): string | undefined {
  if (task.permissions.includes('cancel')) return undefined;
  return lacks('task.cancel', asked) ?? asked.texts.reasons.notCancellable;
}

/** Of what only the role decides. */
export function rightReason(right: string, asked: Asked): string | undefined {
  return lacks(right, asked);
}
