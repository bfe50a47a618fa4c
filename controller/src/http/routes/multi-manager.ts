/** One action for many VMs, as one task with a part for each. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Permission } from '@virtkeep/shared/permissions';
import Type, { type Static } from 'typebox';
import type { Actor } from '../../auth/principal.ts';
import { requirePermission } from '../../auth/principal.ts';
import { POWER_ACTIONS, type PowerActionName } from '../../services/domains/domains.ts';
import type { Services } from '../../services/services.ts';
import { LONG_ACTION, runTask } from '../actions.ts';
import { principalOf, type RouteModule } from '../app.ts';
import { STORY } from '../document/story.ts';
import {
  AsyncQuery,
  body,
  described,
  flag,
  GivenUuid,
  oneOf,
  ref,
  StateName,
  Text,
} from '../schemas/common.ts';
import { MultiResultSchema, taskAnswers } from '../schemas/task.ts';

const MAX_DOMAINS = 200;

const Options = Type.Object(
  {
    force: flag('do not ask the guest; remove VMs that run'),
    full: flag('also disks inside data pools'),
    verbose_name: described(Type.Optional(StateName), 'name of the saved states; at most 247 bytes in UTF-8'),
    description: described(Type.Optional(Text), 'free text'),
    memory: flag('with the memory of running VMs'),
    require_consistency: flag('fail rather than save a running guest that was not quiesced'),
    exclude_iso: flag('leave ISO images out'),
    can_be_incremental: flag('they can be extended later'),
    increment: flag('extend the newest backup of each VM that can be extended'),
    datapool: described(Type.Optional(GivenUuid), 'where backups go'),
    hash_sum: flag('record a SHA-256 of every member'),
    compress: flag('zstd'),
    hold_states: flag('keep all states that increments made on the VM'),
    protected: flag('they cannot be removed until unprotected'),
  },
  {
    additionalProperties: false,
    description:
      'as in the body of the action for one VM. Power actions take force; remove force and full; snapshot verbose_name, description, ' +
      'memory, require_consistency; backup the others and description, require_consistency',
  },
);
type MultiOptions = Static<typeof Options>;

interface Begun {
  user: Actor;
  taskId: string;
}

interface Kind {
  words: string;
  permission: Permission;
  takes: readonly (keyof MultiOptions)[];
  needs?: keyof MultiOptions;
  begin: (services: Services, domain: string, options: MultiOptions, by: Begun) => Promise<unknown>;
}

const power = (action: PowerActionName): Kind => ({
  words: `${action} VMs`,
  permission: 'domain.power',
  takes: ['force'],
  begin: (services, id, { force = false }, { user, taskId }) =>
    services.domains.power(id, { action, force }, user, taskId),
});

const remove: Kind = {
  words: 'remove VMs',
  permission: 'domain.manage',
  takes: ['full', 'force'],
  begin: (services, id, { full = false, force = false }, { user, taskId }) =>
    services.domains.remove(id, { full, force }, user, taskId),
};

const KINDS: Readonly<Record<string, Kind>> = {
  ...Object.fromEntries(POWER_ACTIONS.map(action => [action, power(action)])),
  remove,
  delete: remove,
  snapshot: {
    words: 'save the state of VMs',
    permission: 'snapshot.manage',
    takes: ['verbose_name', 'description', 'memory', 'require_consistency'],
    needs: 'verbose_name',
    begin: (services, id, { verbose_name = '', ...options }, { user, taskId }) =>
      services.snapshots.create(id, { verbose_name, ...options }, user, taskId),
  },
  backup: {
    words: 'back up VMs',
    permission: 'backup.create',
    takes: [
      'exclude_iso',
      'can_be_incremental',
      'increment',
      'datapool',
      'hash_sum',
      'compress',
      'hold_states',
      'protected',
      'description',
      'require_consistency',
    ],
    begin: (services, domain, options, { user, taskId }) =>
      services.backups.backup({ ...options, domain }, user, taskId),
  },
};

const Body = body(
  {
    action: oneOf(Object.keys(KINDS), { description: 'what is done with each' }),
    entity_ids: Type.Array(GivenUuid, { minItems: 1, maxItems: MAX_DOMAINS, description: 'the VMs' }),
    options: Type.Optional(Options),
    full: flag('as in options; ignored where the action takes none'),
    force: flag('as in options; ignored where the action takes none'),
  },
  { action: 'shutdown', entity_ids: [STORY.domain, STORY.borrower] },
);

export const multiManagerRoutes: RouteModule = (app, services) => {
  app.post(
    '/api/domains/multi-manager/',
    {
      config: {
        access: 'domain.read',
        ...LONG_ACTION,
        auditEach: 'entity_ids',
        errors: ['permission_denied', 'parts_failed'],
      },
      schema: {
        tags: ['domains'],
        summary: 'Do the same with many VMs, as one task with a part for each',
        description:
          'It needs the permission of the action. The task is PARTIAL when some parts did not succeed, and FAILED when none did; cancelling it ' +
          'cancels its parts. `GET /api/tasks/?parent=` lists them.',
        querystring: AsyncQuery,
        body: Body,
        response: taskAnswers(ref(MultiResultSchema)),
      },
    },
    (request, reply) => {
      const { action, entity_ids: ids } = request.body;
      const kind = KINDS[action]!;
      const user = principalOf(request);
      requirePermission(user, kind.permission);
      const options = { ...flagsOf(kind, request.body), ...optionsOf(kind, request.body.options ?? {}) };
      const { id, username } = user;
      return runTask(services, request, reply, {
        start: taskId =>
          services.multiTasks.start({
            taskId,
            name: `multi_${action}`,
            verboseName: `${kind.words[0]!.toUpperCase()}${kind.words.slice(1)}`,
            user: { id, username },
            parts: [...new Set(ids)].map(domain => ({
              entity: { id: domain, class: 'domain' },
              begin: (actor, partId) =>
                kind.begin(services, domain, options, { user: actor, taskId: partId }),
            })),
          }),
      });
    },
  );
};

/** Clients send both with every action. */
function flagsOf({ takes }: Kind, given: Pick<MultiOptions, 'full' | 'force'>): MultiOptions {
  const names = (['full', 'force'] as const).filter(
    name => takes.includes(name) && given[name] !== undefined,
  );
  return Object.fromEntries(names.map(name => [name, given[name]]));
}

/** @throws unknown_field for an option of another action; missing_field. */
function optionsOf({ takes, needs }: Kind, given: MultiOptions): MultiOptions {
  const foreign = Object.keys(given).find(name => !takes.includes(name as keyof MultiOptions));
  if (foreign !== undefined) throw new VirtkeepError('unknown_field', { field: `options.${foreign}` });
  if (needs !== undefined && given[needs] === undefined)
    throw new VirtkeepError('missing_field', { field: `options.${needs}` });
  return given;
}
