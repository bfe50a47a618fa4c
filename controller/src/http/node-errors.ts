/**
 * The errors that work on a node may be refused or fail with, grouped by subject; routes combine their lists from these. A test
 * compares them with the errors that the agent's workflows throw.
 */
import type { ErrorKey } from '@virtkeep/shared/errors';

/** A call to a node. */
export const NODE_CALL = [
  'node_unreachable',
  'node_outdated',
  'libvirt_failed',
  'libvirt_unreachable',
  'io_failed',
  'timed_out',
  'draining',
  'canceled',
] as const satisfies readonly ErrorKey[];

/** A task on a node, whatever it does. */
export const NODE_WORK = [
  ...NODE_CALL,
  'node_in_service',
  'operation_conflict',
  'overloaded',
  'journal_failed',
  'interrupted',
  'disk_full',
  'outcome_unknown',
  'operation_unknown',
  'clean_up_waits',
] as const satisfies readonly ErrorKey[];

/** A VM of which there are copies on several nodes. */
export const DOMAIN_PLACE = [
  'domain_elsewhere',
  'domain_on_several_nodes',
  'domain_runs_twice',
] as const satisfies readonly ErrorKey[];

/** Work on a VM. */
export const DOMAIN_WORK = [
  ...DOMAIN_PLACE,
  'domain_not_found',
  'domain_busy',
  'domain_in_service',
  'domain_stopped',
  'power_state_conflict',
  'xml_invalid',
] as const satisfies readonly ErrorKey[];

/** Work that changes the disks of a VM. */
export const DISK_WORK = [
  'vdisk_attached_elsewhere',
  'vdisk_encrypted',
  'template_has_clones',
  'domain_transient',
  'domain_memory_saved',
  'image_in_use',
  'image_use_unknown',
  'qemu_img_failed',
  'zfs_failed',
  'zfs_clone_exists',
] as const satisfies readonly ErrorKey[];

/** Work that makes or removes saved states of a VM. */
export const STATE_WORK = [
  'snapshot_failed',
  'snapshot_name_taken',
  'snapshot_not_found',
  'archive_damaged',
  'file_exists',
  'snapshot_in_use',
  'snapshot_chain_unsupported',
  'snapshot_remove_failed',
  'merge_failed',
  'consistency_unavailable',
  'guest_frozen',
  'guest_thaw_failed',
  'layers_on_network',
  'mdev_running',
] as const satisfies readonly ErrorKey[];

/** What lies in a data pool is read. */
export const POOL_READ = [
  'pool_not_found',
  'pool_not_active',
  'pool_not_mounted',
  'pool_ownership',
  'pool_busy',
  'path_outside_pool',
  'not_a_file',
  'file_too_large',
] as const satisfies readonly ErrorKey[];

/** Something is put into a data pool. */
export const POOL_WRITE = [
  ...POOL_READ,
  'pool_kind_unsupported',
  'pool_read_only',
  'pool_outside',
  'pool_no_space',
  'file_exists',
] as const satisfies readonly ErrorKey[];

/** The mark of a data pool is changed on its nodes. */
export const POOL_MARKED = [...NODE_CALL, ...POOL_WRITE, 'disk_full'] as const satisfies readonly ErrorKey[];

/** An archive is read. */
export const ARCHIVE_READ = [
  'file_not_found',
  'file_busy',
  'file_not_backup',
  'archive_damaged',
  'archive_unsupported',
  'hash_mismatch',
  'member_not_found',
] as const satisfies readonly ErrorKey[];

/** What describes a VM without its disks is read. */
export const DEFINITION_READ = [
  'xml_invalid',
  'ovf_invalid',
  'ovf_version_unsupported',
  'ovf_system_ambiguous',
  'ovf_system_unknown',
  'ovf_configuration_unknown',
  'appliance_invalid',
  'state_not_found',
] as const satisfies readonly ErrorKey[];

/** A foreign file that holds VMs with their disks is read. */
export const FOREIGN_READ = [
  ...DEFINITION_READ,
  'file_not_convertible',
  'ovf_disk_unusable',
  'foreign_disk_invalid',
  'network_not_found',
  'network_not_in_file',
] as const satisfies readonly ErrorKey[];

/** A call to the agent of a guest. */
export const GUEST_CALL = [
  ...NODE_CALL,
  ...DOMAIN_PLACE,
  'guest_off',
  'guest_no_channel',
  'guest_agent_disconnected',
  'guest_agent_silent',
  'guest_agent_busy',
  'guest_agent_failed',
  'guest_frozen',
  'guest_command_unknown',
  'guest_command_disabled',
  'guest_command_timed_out',
  'guest_operation_failed',
  'guest_os_unsupported',
  'domain_busy',
  'overloaded',
] as const satisfies readonly ErrorKey[];
