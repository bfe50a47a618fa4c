import { VirtkeepError } from '@virtkeep/shared/errors';
import Type from 'typebox';
import { POWER_ACTIONS, type PowerActionName } from '../../services/domains/domains.ts';
import { isWhole } from '../../services/nodes/whole.ts';
import type { Services } from '../../services/services.ts';
import { LONG_ACTION, runTask, taskOfKey } from '../actions.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { DISK_WORK, DOMAIN_WORK, POOL_READ } from '../node-errors.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import {
  AsyncQuery,
  body,
  boolText,
  described,
  filterById,
  GivenUuid,
  IdParams,
  isTrue,
  listOf,
  listQuery,
  Name,
  ref,
  Text,
  tagFilter,
  truth,
  wholeFilters,
} from '../schemas/common.ts';
import { DEVICE_FIELDS, DomainSchema } from '../schemas/domain.ts';
import { ProtectionStateText } from '../schemas/protection.ts';
import { taskAnswers } from '../schemas/task.ts';

const tags = ['domains'];
const ORDERINGS = [
  'verbose_name',
  'created',
  'modified',
  'status',
  'user_power_state',
  'memory_count',
  'cpu_count',
] as const;

const POWER_ERRORS = [
  ...DOMAIN_WORK,
  'domain_memory_saved',
  'domain_transient',
  'template_not_startable',
  'lun_unavailable',
  'guest_agent_failed',
] as const;
const TEMPLATE_ERRORS = [
  ...DOMAIN_WORK,
  ...DISK_WORK,
  'domain_has_states',
  'domain_running',
  'not_template',
] as const;
const REMOVE_ERRORS = [
  ...DOMAIN_WORK,
  ...DISK_WORK,
  ...POOL_READ,
  'domain_has_states',
  'domain_running',
  'snapshot_in_use',
  'snapshot_remove_failed',
  'archive_damaged',
  'file_exists',
] as const;

/** Of a change that another name makes a task. */
const UPDATE_ERRORS = [
  ...DOMAIN_WORK,
  'conflicting_fields',
  'invalid_name',
  'name_in_use',
  'rename_with_states',
  'file_exists',
  'identity_in_use',
  'vdisk_encrypted',
  'domain_transient',
  'domain_memory_saved',
  'vdisk_attached_elsewhere',
  'template_has_clones',
  'tag_not_found',
  'too_many_tags',
] as const;

const SUMMARY: Record<PowerActionName, string> = {
  start: 'Start a VM',
  shutdown: 'Shut a VM down through its guest agent or ACPI; force pulls the plug',
  reboot: 'Reboot a VM through its guest agent or ACPI; force resets it',
  suspend: 'Pause a VM',
  resume: 'Let a paused VM go on',
  reset: 'Reset a VM as its button would',
};

export const domainRoutes: RouteModule = (app, services) => {
  readRoutes(app, services);
  for (const action of POWER_ACTIONS) powerRoute(app, services, action);
  changeRoutes(app, services);
};

function readRoutes(app: App, services: Services): void {
  app.get(
    '/api/domains/',
    {
      config: { access: 'domain.read' },
      schema: {
        tags,
        summary: 'List VMs of all nodes, in their short form unless all_content=1',
        querystring: listQuery({
          node: filterById('of this node'),
          datapool: filterById('with a disk in this data pool'),
          template: boolText('templates, or all others'),
          thin: boolText('thin clones, or all others'),
          parent: filterById('thin clones of this template'),
          with_vdisks: boolText('with disks of their own, or without'),
          user_power_state: Type.Optional(
            Type.Integer({ minimum: 0, maximum: 3, description: '0 undefined, 1 off, 2 suspended, 3 on' }),
          ),
          protection: Type.Optional(ProtectionStateText),
          ...wholeFilters,
          ...tagFilter,
        }),
        response: { 200: listOf(DomainSchema) },
      },
    },
    async request => {
      const { node, datapool, parent, user_power_state, protection, ...query } = request.query;
      const page = parsePage(query, DomainSchema, ORDERINGS);
      const full = page.allContent || DEVICE_FIELDS.some(field => page.fields?.includes(field));
      const filter = {
        node,
        datapool,
        parent,
        user_power_state,
        protection,
        template: isTrue(query.template),
        thin: isTrue(query.thin),
        with_vdisks: isTrue(query.with_vdisks),
      };
      if (!isWhole(query)) return pageAnswer(request, page, 0, []);
      const { count, records } = await services.domains.page(
        { ...page, filter, tagged: services.tags.bearersOf(query.tag) },
        principalOf(request),
        full,
      );
      return pageAnswer(request, page, count, records);
    },
  );

  app.get(
    '/api/domains/:id/',
    {
      config: { access: 'domain.read' },
      schema: { tags, summary: 'One VM', params: IdParams, response: { 200: ref(DomainSchema) } },
    },
    async request => services.domains.get(request.params.id, principalOf(request)),
  );
}

function powerRoute(app: App, services: Services, action: PowerActionName): void {
  app.post(
    `/api/domains/:id/${action}/`,
    {
      config: { access: 'domain.power', ...LONG_ACTION, errors: POWER_ERRORS },
      schema: {
        tags,
        summary: SUMMARY[action],
        params: IdParams,
        querystring: AsyncQuery,
        body: body({ force: Type.Optional(truth('do not ask the guest')) }, {}),
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    (request, reply) => {
      const { id } = request.params as { id: string };
      const { force = false } = request.body as { force?: boolean };
      const user = principalOf(request);
      return runTask(services, request, reply, {
        start: taskId => services.domains.power(id, { action, force }, user, taskId),
        result: async () => services.domains.find(id, user),
      });
    },
  );
}

function changeRoutes(app: App, services: Services): void {
  app.put(
    '/api/domains/:id/',
    {
      config: { access: 'domain.manage', ...LONG_ACTION, errors: UPDATE_ERRORS },
      schema: {
        tags,
        summary: 'Change the name, the description or the tags of a VM, or exclude it from protection',
        description:
          'Another name is given by a task, to a VM that is off and has no saved states: with async=1 the answer is 202 then, and always 200 without a name.',
        params: IdParams,
        querystring: AsyncQuery,
        body: body(
          {
            verbose_name: described(Type.Optional(Name), 'which no other VM of the node has'),
            name: described(Type.Optional(Name), 'as verbose_name'),
            description: described(Type.Optional(Text), 'free text'),
            tags: Type.Optional(
              Type.Array(Type.Union([GivenUuid, Name]), {
                maxItems: 100,
                description:
                  'ids or names of its tags from now on; a name that no tag has makes one, an id never',
              }),
            ),
            protection_excluded: Type.Optional(
              truth('true: it needs no backups, and its protection is excluded'),
            ),
          },
          { description: 'web server', tags: ['nightly'] },
        ),
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    async (request, reply) => {
      const { id } = request.params;
      const { verbose_name, name = verbose_name, description, tags: tagNames } = request.body;
      const { protection_excluded: isExcluded } = request.body;
      if (verbose_name !== undefined && name !== verbose_name)
        throw new VirtkeepError('conflicting_fields', { first: 'name', second: 'verbose_name' });
      const user = principalOf(request);
      const rename = (to: string) =>
        runTask(services, request, reply, {
          start: taskId => services.domains.rename(id, to, user, taskId),
          result: async () => services.domains.find(id, user),
        });
      if (name !== undefined && (await taskOfKey(services, request))) return rename(name);
      const isRenamed = services.domains.isOtherName(id, name);
      if (isRenamed) services.domains.checkRename(id, name);
      if (tagNames !== undefined) services.tags.assertKnown(tagNames);
      await services.domains.update(id, { description });
      if (tagNames !== undefined) await services.tags.set(id, tagNames);
      if (isExcluded !== undefined) await services.protection.setExcluded(id, isExcluded);
      return isRenamed ? rename(name) : services.domains.get(id, user);
    },
  );

  app.put(
    '/api/domains/:id/template/',
    {
      config: { access: 'domain.manage', ...LONG_ACTION, errors: TEMPLATE_ERRORS },
      schema: {
        tags,
        summary: 'Make a template of a VM, or a VM of a template',
        params: IdParams,
        querystring: AsyncQuery,
        body: body({ template: truth('true: a template') }, { template: true }),
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    (request, reply) => {
      const { id } = request.params;
      const user = principalOf(request);
      return runTask(services, request, reply, {
        start: taskId => services.domains.setTemplate(id, request.body.template, user, taskId),
        result: async () => services.domains.find(id, user),
      });
    },
  );

  app.post(
    '/api/domains/:id/remove/',
    {
      config: { access: 'domain.manage', ...LONG_ACTION, errors: REMOVE_ERRORS },
      schema: {
        tags,
        summary: 'Remove a VM with its saved states; full: with its disks',
        params: IdParams,
        querystring: AsyncQuery,
        body: body(
          {
            full: Type.Optional(
              Type.Boolean({
                description: 'also its disks inside data pools, not images on which they were made',
              }),
            ),
            force: Type.Optional(Type.Boolean({ description: 'also when it runs' })),
          },
          { full: true },
        ),
        response: taskAnswers(),
      },
    },
    (request, reply) => {
      const { full = false, force = false } = request.body;
      return runTask(services, request, reply, {
        start: taskId =>
          services.domains.remove(request.params.id, { full, force }, principalOf(request), taskId),
      });
    },
  );
}
