/** Domains as the REST contract tells of them. Pure. */
import {
  AgentState,
  type Disk,
  type Domain,
  PowerState,
} from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type Permission, roleAllows } from '@virtkeep/shared/permissions';
import type { Principal } from '../../auth/principal.ts';
import type { DomainEntry } from '../inventory/kept-domain.ts';
import { powerNumber } from '../inventory/store.ts';
import type { ProtectionVerdict } from '../protection/rules.ts';
import type { BorneTag } from '../tags/record.ts';
import { type GuestInfoRecord, guestInfoRecord, guestOs, guestUtils } from './guest-record.ts';

export interface DomainContext {
  node: { id: string; verbose_name: string; connected: boolean; service: boolean };
  parentName: string | null;
  /** Thin clones stand on its disks. */
  hasClones: boolean;
  /** The tags that it bears. */
  tags: BorneTag[];
  viewer: Principal | null;
}

export interface DomainRecord {
  id: string;
  verbose_name: string;
  description: string;
  status: 'ACTIVE' | 'CREATING' | 'FAILED' | 'DELETING' | 'SERVICE';
  entity_type: 'domain';
  /** 0 undefined, 1 off, 2 suspended, 3 on. */
  user_power_state: number;
  node: { id: string; verbose_name: string };
  parent: { id: string; verbose_name: string } | null;
  template: boolean;
  thin: boolean;
  /** MiB. */
  memory_count: number;
  cpu_count: number;
  os_type: string;
  os_version: string;
  guest_utils: ReturnType<typeof guestUtils>;
  /** Only in the whole record. */
  guest_info?: GuestInfoRecord;
  vdisks?: { id: string; verbose_name: string; target_dev: string; target_bus: string; size: number }[];
  cdroms?: { target_dev: string; path: string; datapool: string | null }[];
  luns?: { target_dev: string; source: string }[];
  mdev_devices?: string[];
  vdisks_count: number;
  tags: BorneTag[];
  hints: number;
  created: string;
  modified: string;
  locked_by: string | null;
  /** The actions that the viewer may take now. */
  permissions: string[];
  protection: ProtectionVerdict;
  is_ova: boolean;
}

/** Without what is told of a page's records only. */
export type ListedDomain = Omit<DomainRecord, 'protection'>;

/** The whole record. What the node alone knows (power) is undefined while it is away. */
export function domainRecord(entry: DomainEntry, context: DomainContext): ListedDomain {
  const { domain } = entry;
  return {
    ...shortDomainRecord(entry, context),
    vdisks: domain.disks.map(vdiskOf),
    cdroms: domain.cdroms.map(cdrom => ({
      target_dev: cdrom.targetDev,
      path: cdrom.path,
      datapool: cdrom.poolId || null,
    })),
    luns: domain.luns.map(lun => ({ target_dev: lun.targetDev, source: lun.source })),
    mdev_devices: domain.mdevs,
    guest_info: guestInfoRecord(domain, domain.guestInfo, context.node.connected),
  };
}

/** The form of the lists: without devices. */
export function shortDomainRecord(entry: DomainEntry, context: DomainContext): ListedDomain {
  const { domain } = entry;
  const { node } = context;
  return {
    id: domain.id,
    verbose_name: domain.name,
    description: domain.description,
    status: statusTold(node),
    entity_type: 'domain',
    user_power_state: powerTold(domain, node.connected),
    node: { id: node.id, verbose_name: node.verbose_name },
    parent: domain.parentId === '' ? null : { id: domain.parentId, verbose_name: context.parentName ?? '' },
    template: domain.template,
    thin: domain.parentId !== '',
    memory_count: Number(domain.memoryCount),
    cpu_count: domain.cpuCount,
    ...guestOs(domain),
    guest_utils: guestUtils(domain, node.connected, domain.powerState === PowerState.RUNNING),
    vdisks_count: domain.disks.length,
    tags: context.tags,
    hints: 0,
    created: entry.firstSeen,
    modified: entry.modified,
    locked_by: domain.lockedBy || null,
    permissions: permissionsOf(entry, context),
    is_ova: false,
  };
}

export function statusTold({
  connected,
  service,
}: Pick<DomainContext['node'], 'connected' | 'service'>): DomainRecord['status'] {
  return connected ? (service ? 'SERVICE' : 'ACTIVE') : 'FAILED';
}

/** Of a node that is away it is not known. */
export const powerTold = ({ powerState }: Pick<Domain, 'powerState'>, isConnected: boolean): number =>
  isConnected ? powerNumber(powerState) : 0;

function vdiskOf(disk: Disk) {
  return {
    id: disk.id,
    verbose_name: disk.name,
    target_dev: disk.targetDev,
    target_bus: disk.targetBus,
    size: Number(disk.virtualSize),
  };
}

/**
 * What this user could do with the domain right now: his role, the node's presence and the domain's state allow it.
 * While its disks are attached to other domains, or thin clones stand on them, what would change them is refused
 * (specification 3.1, 4.7).
 */
export function domainPermissions(domain: Domain, context: DomainContext): Record<string, boolean> {
  const { node, viewer } = context;
  const ready = node.connected && !node.service;
  const may = (permission: Permission) => ready && viewer !== null && roleAllows(viewer.role, permission);
  const free = domain.lockedBy === '';
  const fixed = domain.loans.length > 0 || context.hasClones;
  const is = (...states: PowerState[]) => states.includes(domain.powerState);
  const { OFF, RUNNING, SUSPENDED } = PowerState;
  const power = may('domain.power') && free;
  const manage = may('domain.manage') && free;
  const answers = is(RUNNING) && domain.agentState === AgentState.CONNECTED;
  return {
    start: power && is(OFF) && !domain.template,
    shutdown: power && is(RUNNING, SUSPENDED),
    reboot: power && is(RUNNING),
    suspend: power && is(RUNNING),
    resume: power && is(SUSPENDED),
    reset: power && is(RUNNING, SUSPENDED),
    update: may('domain.manage'),
    rename: manage && is(OFF) && domain.loans.length === 0 && domain.savedStates.length === 0,
    template: manage && is(OFF) && !fixed,
    clone: manage && is(OFF),
    change_template: manage && is(OFF) && domain.parentId !== '' && !fixed,
    remove: manage && !fixed,
    snapshot: may('snapshot.manage') && free && !fixed,
    backup: may('backup.create') && free && isBackupPossible(domain),
    guest_command: may('guest.read') && answers,
    guest_operation: may('guest.execute') && free && (answers || (is(OFF) && !fixed)),
    attach_vdisk: may('vdisk.attach') && free,
    detach_vdisk: may('vdisk.attach') && free && domain.attachments.length > 0,
  };
}

/** A VM that no node can be said to have is left alone; one that runs twice may be switched off. */
function permissionsOf({ domain, conflict }: DomainEntry, context: DomainContext): string[] {
  const may = (action: string) => conflict === null || (action === 'shutdown' && conflict.kind === 'twice');
  return Object.entries(domainPermissions(domain, context))
    .filter(([action, on]) => on && may(action))
    .map(([action]) => action);
}

/** Mediated devices need it off; a running VM gets a new saved state, which must not be made while its disks are lent. */
function isBackupPossible(domain: Domain): boolean {
  return domain.powerState === PowerState.OFF || (domain.mdevs.length === 0 && domain.loans.length === 0);
}
