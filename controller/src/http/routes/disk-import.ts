import Type from 'typebox';
import { requirePermission } from '../../auth/principal.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { STORY } from '../document/story.ts';
import { DISK_WORK, DOMAIN_WORK, POOL_WRITE } from '../node-errors.ts';
import { AsyncQuery, body, described, flag, GivenUuid, Name, oneOf, ref } from '../schemas/common.ts';
import { DomainSchema } from '../schemas/domain.ts';
import { taskAnswers } from '../schemas/task.ts';

const MAX_MEMORY_MIB = 16 * 1024 * 1024;
const MAX_CPUS = 255;

const DiskImportBody = body(
  {
    file: described(GivenUuid, 'the disk image: a file of type disk'),
    node: described(GivenUuid, 'the node; with domain that of the VM'),
    datapool: Type.Optional(
      Type.String({
        ...GivenUuid,
        description: "pool of the disk; default: the file's, and required when nothing is written there",
      }),
    ),
    format: Type.Optional(
      oneOf(['qcow2', 'raw', 'vmdk', 'vhdx', 'vhd', 'vdi'] as const, {
        description:
          'what the image is; one that is something else is refused. Default: what its name ends with; then a raw one that begins like another ' +
          'format is refused',
      }),
    ),
    target_bus: Type.Optional(
      oneOf(['virtio', 'scsi', 'sata'] as const, {
        description:
          'bus of the disk; default: virtio, and sata for a new VM with virtio false. A VM that runs takes none on sata',
      }),
    ),
    domain: Type.Optional(
      Type.String({
        ...GivenUuid,
        description: 'the VM that gets it as a further disk, also while it runs; without, a new VM is made',
      }),
    ),
    verbose_name: described(Type.Optional(Name), 'name of the new VM'),
    memory_count: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MAX_MEMORY_MIB, description: 'MiB of the new VM' }),
    ),
    cpu_count: Type.Optional(
      Type.Integer({ minimum: 1, maximum: MAX_CPUS, description: 'virtual processors of the new VM' }),
    ),
    os_type: Type.Optional(
      oneOf(['Linux', 'Windows', 'Other'] as const, {
        description: 'what runs in the new VM: the clock of Windows runs in local time; default: Other',
      }),
    ),
    firmware: Type.Optional(
      oneOf(['bios', 'uefi'] as const, { description: 'of the new VM; default: bios' }),
    ),
    network: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 255,
        description: 'network or bridge of the node for an adapter of the new VM; without, it has none',
      }),
    ),
    virtio: flag(
      'disk and adapter of the new VM are virtio, for which the guest needs drivers; default: true',
    ),
  },
  { file: STORY.file, node: STORY.node, verbose_name: 'web-1', memory_count: 2048, cpu_count: 2 },
);

const DISK_IMPORT_ERRORS = [
  ...DOMAIN_WORK,
  ...DISK_WORK,
  ...POOL_WRITE,
  'file_not_found',
  'file_busy',
  'file_not_disk_image',
  'disk_format_contradicted',
  'foreign_disk_invalid',
  'missing_field',
  'conflicting_fields',
  'network_not_found',
  'network_not_in_file',
  'no_free_slot',
  'device_did_not_detach',
  'invalid_name',
  'name_in_use',
  'identity_in_use',
] as const;

export const diskImportRoutes: RouteModule = (app, services) => {
  app.post(
    '/api/domains/import-disk/',
    {
      config: { access: 'backup.restore_foreign', ...LONG_ACTION, errors: DISK_IMPORT_ERRORS },
      schema: {
        tags: ['backups'],
        summary:
          'Import a disk image, which nobody vouches for, as the disk of a new VM or as a further one of a VM',
        querystring: AsyncQuery,
        body: DiskImportBody,
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    (request, reply) => {
      const user = principalOf(request);
      const { body: options } = request;
      if (options.domain !== undefined) requirePermission(user, 'domain.manage');
      return runTask(services, request, reply, {
        start: taskId => services.diskImports.importDisk(options, user, taskId),
        result: async task => services.domains.find(task.entities[0]?.id ?? '', user),
      });
    },
  );
};
