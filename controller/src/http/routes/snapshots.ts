import Type from 'typebox';
import type { Services } from '../../services/services.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { DISK_WORK, DOMAIN_WORK, POOL_WRITE, STATE_WORK } from '../node-errors.ts';
import { listFromArray, parsePage } from '../paging.ts';
import {
  AllowNetworkLayers,
  AsyncQuery,
  Bandwidth,
  body,
  described,
  GivenUuid,
  IdParams,
  listOf,
  listQuery,
  part,
  ref,
  StateName,
  Text,
} from '../schemas/common.ts';
import { DomainSchema } from '../schemas/domain.ts';
import { SnapshotSchema } from '../schemas/snapshot.ts';
import { taskAnswers } from '../schemas/task.ts';

const tags = ['snapshots'];
const ORDERINGS = ['created', 'verbose_name'] as const;
const StateParams = part({
  id: described(GivenUuid, 'id of the VM'),
  snapshot: described(GivenUuid, 'id of the saved state'),
});
const access = {
  access: 'snapshot.manage',
  ...LONG_ACTION,
  errors: [
    ...DOMAIN_WORK,
    ...DISK_WORK,
    ...STATE_WORK,
    ...POOL_WRITE,
    'snapshot_name_taken',
    'snapshot_not_found',
    'revert_failed',
  ],
} as const;

export const snapshotRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/domains/:id/snapshots/',
    {
      config: { access: 'domain.read' },
      schema: {
        tags,
        summary: 'List the saved states of a VM, oldest first',
        params: IdParams,
        querystring: listQuery({}),
        response: { 200: listOf(SnapshotSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, SnapshotSchema, ORDERINGS);
      const { id } = request.params;
      const free = services.domains.get(id, principalOf(request)).permissions.includes('snapshot');
      const permissions = free ? ['remove', 'revert'] : [];
      return listFromArray(request, page, services.snapshots.list(id), {
        render: state => ({ ...state, permissions }),
      });
    },
  );

  app.post(
    '/api/domains/:id/snapshots/',
    {
      config: access,
      schema: {
        tags,
        summary: 'Save the state of a VM: all disks at one instant, with memory or quiesced',
        params: IdParams,
        querystring: AsyncQuery,
        body: body(
          {
            verbose_name: described(
              StateName,
              'which no other state of the VM has; at most 247 bytes in UTF-8',
            ),
            memory: Type.Optional(Type.Boolean({ description: 'with the memory of the running VM' })),
            description: described(Type.Optional(Text), 'free text'),
            require_consistency: Type.Optional(
              Type.Boolean({ description: 'fail rather than save a running guest that was not quiesced' }),
            ),
            allow_network_layers: Type.Optional(AllowNetworkLayers),
          },
          { verbose_name: 'before the upgrade' },
        ),
        response: taskAnswers(ref(SnapshotSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId =>
          services.snapshots.create(request.params.id, request.body, principalOf(request), taskId),
      }),
  );

  removeRoute(app, services);
  revertRoute(app, services);
};

function removeRoute(app: App, services: Services): void {
  app.post(
    '/api/domains/:id/snapshots/:snapshot/remove/',
    {
      config: access,
      schema: {
        tags,
        summary: 'Delete a saved state; all backups of the VM stop being incremental',
        params: StateParams,
        querystring: AsyncQuery,
        body: body({ bandwidth: Type.Optional(Bandwidth) }, {}),
        response: taskAnswers(),
      },
    },
    (request, reply) => {
      const { id, snapshot } = request.params;
      const { bandwidth = 0 } = request.body;
      return runTask(services, request, reply, {
        start: taskId =>
          services.snapshots.remove(id, { id: snapshot, bandwidth }, principalOf(request), taskId),
      });
    },
  );
}

function revertRoute(app: App, services: Services): void {
  app.post(
    '/api/domains/:id/snapshots/:snapshot/revert/',
    {
      config: access,
      schema: {
        tags,
        summary: 'Bring a VM back to a saved state; what came after on its disks is lost',
        params: StateParams,
        querystring: AsyncQuery,
        body: body({}, {}),
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    (request, reply) => {
      const { id, snapshot } = request.params;
      const user = principalOf(request);
      return runTask(services, request, reply, {
        start: taskId => services.snapshots.revert(id, snapshot, user, taskId),
        result: async () => services.domains.find(id, user),
      });
    },
  );
}
