import Type from 'typebox';
import { requirePermission } from '../../auth/principal.ts';
import { FILE_STATUSES, FILE_TYPES } from '../../services/backup-files/record.ts';
import type { Services } from '../../services/services.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { STORY } from '../document/story.ts';
import { ARCHIVE_READ, FOREIGN_READ, POOL_READ, POOL_WRITE } from '../node-errors.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import {
  AsyncQuery,
  body,
  boolText,
  described,
  filterById,
  flag,
  GivenUuid,
  IdParams,
  isTrue,
  listOf,
  listQuery,
  oneOf,
  ref,
  Text,
  tagFilter,
  truth,
} from '../schemas/common.ts';
import {
  ConvertedFileSchema,
  ExportedFileSchema,
  FileSchema,
  TrimmedFileSchema,
  VerifiedFileSchema,
} from '../schemas/file.ts';
import { All, Configuration, Networks, State, System } from '../schemas/foreign-vm.ts';
import { taskAnswers } from '../schemas/task.ts';

const tags = ['library'];
const ORDERINGS = ['-created', 'filename', 'verbose_name', 'size', 'status', 'type'] as const;

export const libraryRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/library/',
    {
      config: { access: 'library.read' },
      schema: {
        tags,
        summary: 'List backup files, newest first',
        querystring: listQuery({
          domain: filterById('of this VM'),
          datapool: filterById('in this data pool'),
          type: Type.Optional(oneOf(FILE_TYPES, { description: 'of this kind' })),
          can_be_incremental: boolText('that can be extended now, or cannot'),
          status: Type.Optional(oneOf(FILE_STATUSES, { description: 'with this status' })),
          ...tagFilter,
        }),
        response: { 200: listOf(FileSchema) },
      },
    },
    async request => {
      const { domain, datapool, type, status, tag } = request.query;
      const page = parsePage(request.query, FileSchema, ORDERINGS);
      const can_be_incremental = isTrue(request.query.can_be_incremental);
      const filter = { ...page, domain, datapool, type, status, tag, can_be_incremental };
      const { count, files } = await services.library.list(filter);
      const viewer = principalOf(request);
      return pageAnswer(
        request,
        page,
        count,
        files.map(file => permitted('file', file, viewer)),
      );
    },
  );

  app.get(
    '/api/library/:id/',
    {
      config: { access: 'library.read' },
      schema: { tags, summary: 'One backup file', params: IdParams, response: { 200: ref(FileSchema) } },
    },
    async request => permitted('file', await services.library.get(request.params.id), principalOf(request)),
  );

  app.put(
    '/api/library/:id/',
    {
      config: { access: 'library.manage', errors: ['file_busy'] },
      schema: {
        tags,
        summary: 'Change the description or the protection of a backup file',
        params: IdParams,
        body: body(
          {
            description: described(Type.Optional(Text), 'free text'),
            protected: Type.Optional(truth('true: it cannot be removed')),
          },
          { protected: true },
        ),
        response: { 200: ref(FileSchema) },
      },
    },
    async request =>
      permitted('file', await services.library.update(request.params.id, request.body), principalOf(request)),
  );

  fileTask(app, services, 'refresh', 'Read the information of a backup file anew');
  fileTask(app, services, 'verify', 'Compare a backup file with its checksums and hashes');
  fileTask(app, services, 'remove', 'Remove a backup file; a protected one is refused');
  conversion(app, services, 'compress');
  conversion(app, services, 'unpack');
  converting(app, services);
  exporting(app, services);
  trimming(app, services);
};

const Target = Type.Optional(
  Type.String({
    ...GivenUuid,
    description:
      'pool of the new file; default: in place of the old one. Mandatory where the old one lies on a read-only or outside pool, ' +
      'where it stays',
  }),
);
const KeepSource = Type.Optional(
  Type.Boolean({
    description:
      'true: the old file stays; the new one is a file of its own. false: it goes, and the request is refused where it cannot. Absent: it ' +
      'goes, unless it lies on a read-only or outside pool',
  }),
);
const Level = Type.Optional(Type.Integer({ minimum: 1, maximum: 9, description: 'of zstd; default 3' }));
const Sign = Type.Optional(
  Type.Boolean({
    description:
      'have the node sign the new file when nobody vouches for the old one: for backups made before there were signatures. It is ' +
      'restored like one of another node then; it needs the permission backup.sign',
  }),
);
const CONVERSIONS = {
  compress: {
    summary: 'Compress a plain backup with zstd',
    body: body({ datapool: Target, keep_source: KeepSource, level: Level, sign: Sign }, { level: 9 }),
  },
  unpack: {
    summary: 'Make a plain backup of a compressed one',
    body: body({ datapool: Target, keep_source: KeepSource, sign: Sign }, { keep_source: true }),
  },
};
const CONVERSION_ERRORS = [
  ...POOL_WRITE,
  ...ARCHIVE_READ,
  'compression_same',
  'power_state_conflict',
  'archive_too_large',
  'invalid_name',
  'permission_denied',
] as const;
const CONVERT_ERRORS = [
  ...POOL_WRITE,
  ...ARCHIVE_READ,
  ...FOREIGN_READ,
  'tool_missing',
  'driver_injection_failed',
  'conflicting_fields',
  'archive_too_large',
  'invalid_name',
] as const;
const EXPORT_ERRORS = [
  ...POOL_WRITE,
  ...ARCHIVE_READ,
  'archive_foreign',
  'state_not_found',
  'template_missing',
  'template_mismatch',
  'power_state_conflict',
  'template_has_clones',
  'export_unsupported',
  'xml_invalid',
  'qemu_img_failed',
  'image_in_use',
  'invalid_name',
  'permission_denied',
] as const;
const TRIM_ERRORS = [
  ...POOL_WRITE,
  ...ARCHIVE_READ,
  'nothing_to_trim',
  'file_protected',
  'power_state_conflict',
  'archive_too_large',
  'invalid_name',
] as const;
const READ_ERRORS = [...POOL_READ, ...ARCHIVE_READ] as const;
const TASK_ERRORS = {
  refresh: [
    ...READ_ERRORS,
    ...(['xml_invalid', 'ovf_invalid', 'ovf_version_unsupported', 'appliance_invalid'] as const),
    ...(['foreign_disk_invalid', 'disk_format_contradicted', 'qemu_img_failed'] as const),
    'file_not_definition',
  ],
  verify: [...READ_ERRORS, 'missing_field', 'state_not_found'],
  remove: [
    ...READ_ERRORS,
    ...(['file_protected', 'file_not_removable', 'pool_read_only', 'pool_outside'] as const),
    'image_in_use',
    'image_use_unknown',
  ],
} as const;
const ANSWERS = { refresh: ref(FileSchema), verify: ref(VerifiedFileSchema), remove: undefined };

function conversion(app: App, services: Services, action: 'compress' | 'unpack'): void {
  app.post(
    `/api/library/:id/${action}/`,
    {
      config: { access: 'library.manage', ...LONG_ACTION, errors: CONVERSION_ERRORS },
      schema: {
        tags,
        ...CONVERSIONS[action],
        params: IdParams,
        querystring: AsyncQuery,
        response: taskAnswers(ref(FileSchema)),
      },
    },
    (request, reply) => {
      const { id } = request.params as { id: string };
      const options = request.body as {
        datapool?: string;
        level?: number;
        sign?: boolean;
        keep_source?: boolean;
      };
      const user = principalOf(request);
      if (options.sign) requirePermission(user, 'backup.sign');
      return runTask(services, request, reply, {
        start: taskId =>
          services.fileActions.recompress(id, { ...options, compress: action === 'compress' }, user, taskId),
      });
    },
  );
}

function converting(app: App, services: Services): void {
  const Pool = Type.Optional(
    Type.String({ ...GivenUuid, description: 'pool of the backup; default: that of the file' }),
  );
  const fields = {
    node: Type.Optional(
      Type.String({
        ...GivenUuid,
        description:
          'the node that does it, which can use the pool of the file; default: one that can use both pools',
      }),
    ),
    datapool: Pool,
    compress: flag('compress with zstd'),
    level: Level,
    hash_sum: flag('SHA-256 of every member'),
    virtio: flag('disks and network adapters become virtio, for which the guest must have drivers'),
    inject_drivers: flag(
      'virt-v2v, which must be installed on the node, puts the drivers of virtio into a copy of the disks; with virtio only',
    ),
    exclude_iso: flag('leave out the images in drives'),
    system: Type.Optional(System),
    all: Type.Optional(All),
    configuration: Type.Optional(Configuration),
    state: described(Type.Optional(State), 'restore point of a backup of virtnbdbackup; default: the newest'),
    networks: Type.Optional(Networks),
  };
  const config = { access: 'library.manage', ...LONG_ACTION, errors: CONVERT_ERRORS } as const;
  const summary =
    'Make a backup of an OVA, an OVF with its disks, an archive of Proxmox VE or a directory of virtnbdbackup, which stays; nobody ' +
    'vouches for it';
  const querystring = AsyncQuery;
  const response = taskAnswers(ref(ConvertedFileSchema));
  app.post(
    '/api/library/:id/convert-backup/',
    {
      config,
      schema: {
        ...{ tags, summary, params: IdParams, querystring, response },
        body: body(fields, { compress: true }),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId =>
          services.fileActions.convert(request.params.id, request.body, principalOf(request), taskId),
      }),
  );
  const example = { file: STORY.file, node: STORY.node, datapool: STORY.pool, compress: true };
  app.post(
    '/api/domains/convert-backup/',
    {
      config,
      schema: {
        ...{ tags: ['backups'], summary, querystring, response },
        body: body({ file: described(GivenUuid, 'the file'), ...fields }, example),
      },
    },
    (request, reply) => {
      const { file, ...options } = request.body;
      return runTask(services, request, reply, {
        start: taskId => services.fileActions.convert(file, options, principalOf(request), taskId),
      });
    },
  );
}

function exporting(app: App, services: Services): void {
  const fields = {
    format: oneOf(['ova', 'ovf', 'qcow2'], {
      description:
        'an OVA; a directory with an OVF descriptor, its manifest and disks; or a directory with qcow2 images and the domain XML',
    }),
    state: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 1000,
        description: 'number or name of the restore point; default: the newest',
      }),
    ),
    datapool: Type.Optional(
      Type.String({ ...GivenUuid, description: 'pool of the export; default: that of the backup' }),
    ),
    filename: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 120,
        description:
          'name of the OVA or of the directory; one that is taken is refused. Default: the name of the VM with the time of the restore point',
      }),
    ),
    compress: flag('compress the clusters of qcow2 images; the disks of the other formats always are'),
    allow_foreign: flag(
      'the backup may be one that nobody vouches for. Needs the permission backup.restore_foreign',
    ),
  };
  app.post(
    '/api/library/:id/export/',
    {
      config: { access: 'library.download', ...LONG_ACTION, errors: EXPORT_ERRORS },
      schema: {
        tags,
        summary:
          'Write a restore point of a backup for other hypervisors, into a data pool; the backup stays',
        params: IdParams,
        querystring: AsyncQuery,
        body: body(fields, { format: 'ova' }),
        response: taskAnswers(ref(ExportedFileSchema)),
      },
    },
    (request, reply) => {
      const user = principalOf(request);
      // what the guest had is shown to whoever reads the pool, and something is put there
      requirePermission(user, 'library.manage');
      if (request.body.allow_foreign) requirePermission(user, 'backup.restore_foreign');
      return runTask(services, request, reply, {
        start: taskId => services.fileActions.export(request.params.id, request.body, user, taskId),
      });
    },
  );
}

function trimming(app: App, services: Services): void {
  const KeepStates = Type.Integer({
    minimum: 1,
    maximum: 999_999,
    description: 'so many of the newest restore points stay',
  });
  app.post(
    '/api/library/:id/trim/',
    {
      config: { access: 'library.manage', ...LONG_ACTION, errors: TRIM_ERRORS },
      schema: {
        tags,
        summary:
          'Drop the oldest restore points of a backup that grows; it stays the same file, which can be extended',
        params: IdParams,
        querystring: AsyncQuery,
        body: body({ keep_states: KeepStates }, { keep_states: 14 }),
        response: taskAnswers(ref(TrimmedFileSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId =>
          services.fileActions.trim(request.params.id, request.body, principalOf(request), taskId),
      }),
  );
}

function fileTask(
  app: App,
  services: Services,
  action: 'refresh' | 'verify' | 'remove',
  summary: string,
): void {
  app.post(
    `/api/library/:id/${action}/`,
    {
      config: { access: 'library.manage', ...LONG_ACTION, errors: TASK_ERRORS[action] },
      schema: {
        tags,
        summary,
        params: IdParams,
        querystring: AsyncQuery,
        body: body({}, {}),
        response: taskAnswers(ANSWERS[action]),
      },
    },
    (request, reply) => {
      const { id } = request.params as { id: string };
      return runTask(services, request, reply, {
        start: taskId => services.fileActions[action](id, principalOf(request), taskId),
      });
    },
  );
}
