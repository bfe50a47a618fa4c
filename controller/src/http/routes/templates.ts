/** Clones of VMs and templates, and the change of a template by a thin clone (specification 4.7). */
import Type from 'typebox';
import { LONG_ACTION, runTask } from '../actions.ts';
import { principalOf, type RouteModule } from '../app.ts';
import { DISK_WORK, DOMAIN_WORK, POOL_WRITE } from '../node-errors.ts';
import { AsyncQuery, body, described, GivenUuid, IdParams, Name, ref, Text } from '../schemas/common.ts';
import { DomainSchema } from '../schemas/domain.ts';
import { taskAnswers } from '../schemas/task.ts';
import { ChangedTemplateSchema } from '../schemas/vdisk.ts';

const tags = ['templates'];

const CLONE_ERRORS = [
  ...DOMAIN_WORK,
  ...DISK_WORK,
  ...POOL_WRITE,
  'clone_refused',
  'archive_damaged',
  'disk_path_in_use',
  'invalid_name',
  'domain_running',
  'identity_in_use',
  'name_in_use',
  'not_template',
  'template_missing',
] as const;
const CHANGE_ERRORS = [
  ...DOMAIN_WORK,
  ...DISK_WORK,
  ...POOL_WRITE,
  'not_template',
  'not_thin_clone',
  'template_change_refused',
  'domain_running',
  'template_mismatch',
  'template_missing',
] as const;

export const templateRoutes: RouteModule = (app, services) => {
  app.post(
    '/api/domains/:id/clone/',
    {
      config: { access: 'domain.manage', ...LONG_ACTION, errors: CLONE_ERRORS },
      schema: {
        tags,
        summary: 'Clone a VM that is off; thin: the disks stand on those of a template',
        params: IdParams,
        querystring: AsyncQuery,
        body: body(
          {
            verbose_name: described(Type.Optional(Name), 'name of the clone'),
            thin: Type.Optional(Type.Boolean({ description: 'only from a template' })),
            datapool: Type.Optional(
              Type.String({ ...GivenUuid, description: 'of the new disks; without it beside the old ones' }),
            ),
            description: described(Type.Optional(Text), 'free text'),
          },
          { verbose_name: 'web-2', thin: true },
        ),
        response: taskAnswers(ref(DomainSchema)),
      },
    },
    (request, reply) => {
      const user = principalOf(request);
      return runTask(services, request, reply, {
        start: taskId => services.templates.clone(request.params.id, request.body, user, taskId),
        result: async task => services.domains.find(task.entities[0]?.id ?? '', user),
      });
    },
  );

  app.post(
    '/api/domains/:id/change-template/',
    {
      config: { access: 'domain.manage', ...LONG_ACTION, errors: CHANGE_ERRORS },
      schema: {
        tags,
        summary:
          'Take the changes of a thin clone into its template; all its thin clones begin anew from that',
        params: IdParams,
        querystring: AsyncQuery,
        body: body({}, {}),
        response: taskAnswers(ref(ChangedTemplateSchema)),
      },
    },
    (request, reply) =>
      runTask(services, request, reply, {
        start: taskId => services.templates.change(request.params.id, principalOf(request), taskId),
      }),
  );
};
