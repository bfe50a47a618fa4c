import Type from 'typebox';
import { requirePermission } from '../../auth/principal.ts';
import { shownBackup } from '../../services/backups/show-record.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { STORY } from '../document/story.ts';
import {
  ARCHIVE_READ,
  DEFINITION_READ,
  DISK_WORK,
  DOMAIN_WORK,
  FOREIGN_READ,
  NODE_CALL,
  POOL_READ,
  POOL_WRITE,
  STATE_WORK,
} from '../node-errors.ts';
import {
  AllowNetworkLayers,
  AsyncQuery,
  Bandwidth,
  body,
  described,
  flag,
  GivenUuid,
  Name,
  ref,
  Text,
} from '../schemas/common.ts';
import { DomainSchema } from '../schemas/domain.ts';
import { FileSchema, ShownBackupSchema } from '../schemas/file.ts';
import { All, Configuration, Networks, State, System } from '../schemas/foreign-vm.ts';
import { taskAnswers } from '../schemas/task.ts';

const tags = ['backups'];
const MAX_LUNS = 256;
const MAX_EXCLUDED = 256;

const BackupBody = body(
  {
    domain: described(GivenUuid, 'the VM'),
    exclude_iso: flag('leave ISO images out'),
    can_be_incremental: flag('it can be extended later: its saved state stays on the VM'),
    backup: Type.Optional(
      Type.String({
        ...GivenUuid,
        description: 'backup file to extend, in its pool; it is refused when that is not possible',
      }),
    ),
    increment: flag(
      'extend the newest backup that can be extended, else make a new one that can, with a fallback_reason',
    ),
    datapool: Type.Optional(
      Type.String({
        ...GivenUuid,
        description: "default: the node's base data pool; with increment: of any pool",
      }),
    ),
    hash_sum: flag(
      'record a SHA-256 of every member; of an extended file also of those that have none yet, which takes reading them. Absent: an ' +
        'extended file has hashes when it had them',
    ),
    compress: flag(
      'zstd. An extended file that has the other form is converted first, in the same task: true compresses, false unpacks it, and a ' +
        'failure leaves it as it was. Absent: a new file is plain, an extended one stays as it is',
    ),
    hold_states: flag(
      'with can_be_incremental, increment or backup: keep all states that increments made on the VM, not the latest only',
    ),
    exclude_vdisks: Type.Optional(
      Type.Array(GivenUuid, {
        maxItems: MAX_EXCLUDED,
        description: 'disks to leave out; such a backup does not count for the protection of the VM',
      }),
    ),
    description: described(Type.Optional(Text), 'free text, shown with the file'),
    protected: flag('it cannot be removed until unprotected; false leaves an extended file as it is'),
    require_consistency: flag('fail rather than back up a running guest that was not quiesced'),
    allow_network_layers: Type.Optional(AllowNetworkLayers),
    bandwidth: Type.Optional(
      Type.Integer({ ...Bandwidth, description: "most bytes per second that are read of the VM's disks" }),
    ),
  },
  { domain: STORY.domain, datapool: STORY.pool, can_be_incremental: true },
);

const RestoreBody = body(
  {
    file: described(GivenUuid, 'the backup file; or an OVA, an OVF with its disks, an archive of Proxmox VE'),
    node: described(GivenUuid, 'the node to restore to'),
    datapool: Type.Optional(
      Type.String({
        ...GivenUuid,
        description:
          'default: the former paths; of a foreign file, and of a backup that was converted from one, the pool where it lies, unless that ' +
          'is not written to',
      }),
    ),
    state: Type.Optional(State),
    verbose_name: described(Type.Optional(Name), 'name of the new VM'),
    keep_identity: flag('in place of a lost VM: its name, uuid and MACs'),
    start_on: flag('start it when it is restored'),
    flatten: flag("without the VM's saved states: every disk becomes one image"),
    instant: flag(
      'start it at once from a plain archive and bring the data over while it runs; implies start_on and flatten. ' +
        'The task ends when all data are there: with async=1 its phase "pull" tells early that the VM runs',
    ),
    bandwidth: Type.Optional(
      Type.Integer({ ...Bandwidth, description: 'most bytes per second and disk of an instant restore' }),
    ),
    allow_foreign: flag(
      'the archive may be one that nobody vouches for (show-backup: signature); what its definition could do to the node is ' +
        'left out. Needs the permission backup.restore_foreign',
    ),
    luns: Type.Optional(
      Type.Array(Type.String({ minLength: 1, maxLength: 64, description: 'target, as sdb' }), {
        maxItems: MAX_LUNS,
        uniqueItems: true,
        description:
          'LUNs and network disks to attach; refused unless they are there and no VM of any node uses them. A LUN that is not named is ' +
          'attached, too, when that is certain: by a name that tells which device it is (wwn in /dev/disk/by-id, iSCSI), any other one only in ' +
          'place of a lost VM on the node of the backup. A network disk is only in place of a lost VM, on the node of the backup. The task says what is left out, and why',
      }),
    ),
    system: Type.Optional(System),
    all: Type.Optional(All),
    configuration: Type.Optional(Configuration),
    networks: Type.Optional(Networks),
    virtio: flag(
      'disks and network adapters of a foreign file become virtio, for which the guest must have drivers',
    ),
    inject_drivers: flag(
      'virt-v2v, which must be installed on the node, puts the drivers of virtio into the new disks of a foreign file; with virtio only',
    ),
    exclude_iso: flag('leave out the images in drives of a foreign file'),
    keep_macs: flag(
      'MAC addresses of a foreign file stay but for those that a VM of the node has; else all are new',
    ),
  },
  { file: STORY.file, node: STORY.node, datapool: STORY.pool, verbose_name: 'web-1-restored' },
);

const ConfigRestoreBody = body(
  {
    file: described(GivenUuid, 'the domain XML, OVF descriptor, OVA or archive of Proxmox VE'),
    node: described(GivenUuid, 'the node to restore to'),
    verbose_name: described(Type.Optional(Name), 'name of the new VM'),
    system: Type.Optional(System),
    configuration: Type.Optional(Configuration),
    networks: Type.Optional(Networks),
    virtio: flag('network adapters of an OVF or of Proxmox VE become virtio'),
    keep_macs: flag('MAC addresses stay but for those that a VM of the node has; else all are new'),
  },
  { file: STORY.file, node: STORY.node, verbose_name: 'web-1', networks: { 'VM Network': 'default' } },
);

const BACKUP_ERRORS = [
  'hook_failed',
  ...DOMAIN_WORK,
  ...DISK_WORK,
  ...STATE_WORK,
  ...POOL_WRITE,
  ...ARCHIVE_READ,
  'vdisk_not_found',
  'state_not_found',
  'not_extendable',
  'conflicting_fields',
  'archive_too_large',
  'invalid_name',
  'zfs_with_states',
  'zfs_incremental',
] as const;

const SHOW_ERRORS = [
  ...NODE_CALL,
  ...POOL_READ,
  ...ARCHIVE_READ,
  ...DEFINITION_READ,
  'network_not_found',
  'network_not_in_file',
  'pool_no_space',
  'disk_path_in_use',
  'foreign_disk_invalid',
  'disk_format_contradicted',
  'qemu_img_failed',
] as const;

const CONFIG_RESTORE_ERRORS = [
  ...POOL_READ,
  ...DEFINITION_READ,
  'file_not_found',
  'file_busy',
  'file_not_definition',
  'network_not_found',
  'network_not_in_file',
  'invalid_name',
  'name_in_use',
  'identity_in_use',
  'file_exists',
] as const;

const RESTORE_ERRORS = [
  'tool_missing',
  'driver_injection_failed',
  ...POOL_WRITE,
  ...ARCHIVE_READ,
  ...FOREIGN_READ,
  ...DISK_WORK,
  'conflicting_fields',
  'domain_not_found',
  'domain_busy',
  'domain_running',
  'invalid_name',
  'archive_foreign',
  'state_not_found',
  'template_missing',
  'template_mismatch',
  'template_not_startable',
  'identity_in_use',
  'name_in_use',
  'disk_path_in_use',
  'instant_restore_unsupported',
  'lun_unavailable',
  'permission_denied',
  'power_state_conflict',
] as const;

export const backupRoutes: RouteModule = (app, services) => {
  app.post(
    '/api/domains/backup/',
    {
      config: { access: 'backup.create', ...LONG_ACTION, errors: BACKUP_ERRORS },
      schema: {
        tags,
        summary: 'Back up a VM without stopping it: a new file, or an increment of one',
        querystring: AsyncQuery,
        body: BackupBody,
        response: taskAnswers(ref(FileSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId => services.backups.backup(request.body, principalOf(request), taskId),
      }),
  );

  app.post(
    '/api/domains/show-backup/',
    {
      config: { access: 'library.read', errors: SHOW_ERRORS },
      schema: {
        tags,
        summary: 'The configuration of the VM that a backup would restore, with warnings',
        querystring: AsyncQuery,
        body: body(
          {
            file: described(GivenUuid, 'the backup file'),
            state: Type.Optional(State),
            system: Type.Optional(System),
            configuration: Type.Optional(Configuration),
            networks: Type.Optional(Networks),
            virtio: flag('as with virtio at its restore'),
          },
          { file: STORY.file },
        ),
        response: { 200: ref(ShownBackupSchema) },
      },
    },
    async request => {
      const { file: id, ...what } = request.body;
      const { file, shown } = await services.library.show(id, what);
      return shownBackup(file, shown);
    },
  );

  app.post(
    '/api/domains/automated-restore/',
    {
      config: { access: 'backup.restore', ...LONG_ACTION, errors: RESTORE_ERRORS },
      schema: {
        tags,
        summary:
          'Restore a VM from a backup, as a new one or in place of a lost one; or VMs with their disks from a foreign file, which nobody vouches ' +
          'for: that needs the permission backup.restore_foreign. With all the first VM is answered, and the task names them all',
        querystring: AsyncQuery,
        body: RestoreBody,
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    async (request, reply) => {
      const user = principalOf(request);
      if (request.body.allow_foreign || (await services.library.isAppliance(request.body.file)))
        requirePermission(user, 'backup.restore_foreign');
      return runTask(services, request, reply, {
        start: taskId => services.backups.restore(request.body, user, taskId),
        result: async task => services.domains.find(task.entities[0]?.id ?? '', user),
      });
    },
  );

  app.post(
    '/api/domains/config-restore/',
    {
      config: { access: 'backup.restore_foreign', ...LONG_ACTION, errors: CONFIG_RESTORE_ERRORS },
      schema: {
        tags,
        summary:
          'Restore a VM without its disks from a domain XML, an OVF descriptor, an OVA or an archive of Proxmox VE, which nobody vouches for',
        querystring: AsyncQuery,
        body: ConfigRestoreBody,
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    (request, reply) => {
      const user = principalOf(request);
      return runTask(services, request, reply, {
        start: taskId => services.backups.configRestore(request.body, user, taskId),
        result: async task => services.domains.find(task.entities[0]?.id ?? '', user),
      });
    },
  );
};
