/** Disks of all VMs, and lending them to another VM (specification 4.1 to 4.3). */
import Type from 'typebox';
import type { Services } from '../../services/services.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { STORY } from '../document/story.ts';
import { DISK_WORK, DOMAIN_WORK, POOL_READ, POOL_WRITE, STATE_WORK } from '../node-errors.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import {
  AsyncQuery,
  AttachQuery,
  filterById,
  GivenUuid,
  IdParams,
  listOf,
  listQuery,
  nullable,
  ref,
  tagFilter,
} from '../schemas/common.ts';
import { taskAnswers } from '../schemas/task.ts';
import { AttachedVdiskSchema, DetachedVdiskSchema, VDISK_DETAILS, VdiskSchema } from '../schemas/vdisk.ts';

const tags = ['vdisks'];
const ORDERINGS = ['verbose_name', 'size', 'used', 'status', 'domain', 'datapool'] as const;

/** Open on purpose: every other parameter is ignored, whatever it holds (specification 4.1, rule 1). */
const LentDiskBody = Type.Object(
  {
    vdisk: Type.String({ ...GivenUuid, description: 'UUID of the ORIGINAL disk' }),
    thin_clone: Type.Optional(
      nullable(
        Type.String({
          ...GivenUuid,
          description: 'UUID of the first VM when it is a thin clone; without it its template is meant',
        }),
      ),
    ),
  },
  { additionalProperties: true, examples: [{ vdisk: STORY.disk }] },
);

const LENDING_ERRORS = [
  ...DOMAIN_WORK,
  ...DISK_WORK,
  ...STATE_WORK,
  ...POOL_READ,
  'attached_object_given',
  'invalid_thin_clone',
  'vdisk_not_attached',
] as const;
const ATTACH_ERRORS = [
  ...LENDING_ERRORS,
  ...POOL_WRITE,
  'vdisk_attached_already',
  'vdisk_unreachable',
  'no_free_slot',
  'not_thin_clone',
] as const;
const DETACH_ERRORS = [
  ...LENDING_ERRORS,
  'device_did_not_detach',
  'no_free_slot',
  'not_thin_clone',
  'loan_renewed',
  'loan_in_use',
] as const;

export const vdiskRoutes: RouteModule = (app, services) => {
  readRoutes(app, services);
  attachRoute(app, services);
  detachRoute(app, services);
};

function readRoutes(app: App, services: Services): void {
  app.get(
    '/api/vdisks/',
    {
      config: { access: 'vdisk.read' },
      schema: {
        tags,
        summary: 'List disks; another_domain: the originals of the disks that this VM has from other VMs',
        querystring: listQuery({
          another_domain: filterById('originals of what this VM has from other VMs'),
          domain: filterById('of this VM'),
          datapool: filterById('in this data pool'),
          node: filterById('of VMs of this node'),
          ...tagFilter,
        }),
        response: { 200: listOf(VdiskSchema) },
      },
    },
    async request => {
      const { another_domain, domain, datapool, node, tag, ...query } = request.query;
      const page = parsePage(query, VdiskSchema, ORDERINGS);
      const full = page.allContent || VDISK_DETAILS.some(field => page.fields?.includes(field));
      const filter = { another_domain, domain, datapool, node };
      const tagged = services.tags.bearersOf(tag);
      const { count, records } = await services.vdisks.page({ ...page, filter, tagged }, full);
      const viewer = principalOf(request);
      return pageAnswer(
        request,
        page,
        count,
        full ? records.map(disk => permitted('vdisk', disk, viewer)) : records,
      );
    },
  );

  app.get(
    '/api/vdisks/:id/',
    {
      config: { access: 'vdisk.read' },
      schema: { tags, summary: 'One disk', params: IdParams, response: { 200: ref(VdiskSchema) } },
    },
    async request => permitted('vdisk', services.vdisks.get(request.params.id), principalOf(request)),
  );
}

function attachRoute(app: App, services: Services): void {
  app.post(
    '/api/domains/:id/attach-vdisk/',
    {
      config: { access: 'vdisk.attach', ...LONG_ACTION, errors: ATTACH_ERRORS },
      schema: {
        tags,
        summary:
          'Attach a disk of another VM, read-only, as it was at one instant; other parameters are ignored',
        params: IdParams,
        querystring: AttachQuery,
        body: LentDiskBody,
        response: taskAnswers(ref(AttachedVdiskSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId =>
          services.lending.attach(
            request.params.id,
            { ...request.body, allowNetworkLayers: request.query.allow_network_layers === 1 },
            principalOf(request),
            taskId,
          ),
      }),
  );
}

function detachRoute(app: App, services: Services): void {
  app.post(
    '/api/domains/:id/detach-vdisk/',
    {
      config: { access: 'vdisk.attach', ...LONG_ACTION, errors: DETACH_ERRORS },
      schema: {
        tags,
        summary: 'Detach a disk of another VM by the UUID of the original; other parameters are ignored',
        params: IdParams,
        querystring: AsyncQuery,
        body: LentDiskBody,
        response: taskAnswers(ref(DetachedVdiskSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId =>
          services.lending.detach(request.params.id, request.body, principalOf(request), taskId),
      }),
  );
}
