/** Targets of notifications, and the outbox. */
import Type from 'typebox';
import { ALL_EVENTS } from '../../services/notifications/events.ts';
import { NOTIFICATION_STATUSES } from '../../services/notifications/record.ts';
import type { TargetFields } from '../../services/notifications/targets.ts';
import type { Services } from '../../services/services.ts';
import type { App, RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { listFromArray, pageAnswer, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import { filterById, IdParams, listOf, listQuery, Nothing, oneOf, ref } from '../schemas/common.ts';
import {
  NewTargetBody,
  NotificationSchema,
  NotificationTargetSchema,
  NotificationTestSchema,
  TargetPatchBody,
} from '../schemas/notification.ts';

const tags = ['notifications'];
const access = 'notification.manage' as const;
/** What a record shows besides secrets, an address say, may be one too. */
const secretAnswer = true;

export const notificationRoutes: RouteModule = (app, services) => {
  readTargetRoutes(app, services);
  changeTargetRoutes(app, services);
  targetActionRoutes(app, services);
  outboxRoutes(app, services);
};

function readTargetRoutes(app: App, { notifications: { targets } }: Services): void {
  app.get(
    '/api/notification-targets/',
    {
      config: { access },
      schema: {
        tags,
        summary: 'List who is told of what',
        querystring: listQuery({}),
        response: { 200: listOf(NotificationTargetSchema) },
      },
    },
    async request => {
      const page = parsePage(request.query, NotificationTargetSchema, [
        'verbose_name',
        'kind',
        'created',
        'modified',
        'pending',
        'dead',
      ]);
      const viewer = principalOf(request);
      return listFromArray(request, page, await targets.list(), {
        render: target => permitted('notification_target', target, viewer),
      });
    },
  );

  app.get(
    '/api/notification-targets/:id/',
    {
      config: { access },
      schema: {
        tags,
        summary: 'One target, without its secrets',
        params: IdParams,
        response: { 200: ref(NotificationTargetSchema) },
      },
    },
    async request =>
      permitted('notification_target', await targets.get(request.params.id), principalOf(request)),
  );
}

function changeTargetRoutes(app: App, { notifications: { targets } }: Services): void {
  app.post(
    '/api/notification-targets/',
    {
      config: {
        access,
        secretAnswer,
        errors: ['name_taken', 'too_many_notification_targets', 'conflicting_fields'],
      },
      schema: {
        tags,
        summary: 'Add a target: an e-mail or a webhook',
        description: 'With either `mail` or `webhook`. Send it a test then.',
        body: NewTargetBody,
        response: { 200: ref(NotificationTargetSchema) },
      },
    },
    async request => {
      const target = await targets.create(
        request.body as TargetFields & { verbose_name: string },
        new Date(),
      );
      return permitted('notification_target', target, principalOf(request));
    },
  );

  app.put(
    '/api/notification-targets/:id/',
    {
      config: { access, secretAnswer, errors: ['name_taken', 'missing_field'] },
      schema: {
        tags,
        summary: 'Change a target; what is left out stays as it is, secrets too',
        params: IdParams,
        body: TargetPatchBody,
        response: { 200: ref(NotificationTargetSchema) },
      },
    },
    async request => {
      const target = await targets.update(request.params.id, request.body as TargetFields, new Date());
      return permitted('notification_target', target, principalOf(request));
    },
  );
}

function targetActionRoutes(app: App, { notifications }: Services): void {
  app.post(
    '/api/notification-targets/:id/remove/',
    {
      config: { access },
      schema: {
        tags,
        summary: 'Remove a target, with all that it was to be told',
        params: IdParams,
        response: { 200: Nothing },
      },
    },
    async request => {
      await notifications.targets.remove(request.params.id);
      return {};
    },
  );

  app.post(
    '/api/notification-targets/:id/test/',
    {
      config: { access },
      schema: {
        tags,
        summary: 'Send a test to a target now, once, and tell what came of it',
        params: IdParams,
        response: { 200: ref(NotificationTestSchema) },
      },
    },
    async request => {
      const { username } = principalOf(request);
      return notifications.test(request.params.id, username, new Date());
    },
  );
}

function outboxRoutes(app: App, { notifications: { outbox } }: Services): void {
  app.get(
    '/api/notifications/',
    {
      config: { access },
      schema: {
        tags,
        summary: 'List notifications, newest first; `name` looks into the event',
        description: 'Without the data of their events, unless `all_content` asks for it.',
        querystring: listQuery({
          status: Type.Optional(oneOf(NOTIFICATION_STATUSES, { description: 'in this state' })),
          target: filterById('for this target'),
          event: Type.Optional(oneOf(ALL_EVENTS, { description: 'of this event' })),
        }),
        response: { 200: listOf(NotificationSchema) },
      },
    },
    async request => {
      const { status, target, event, name } = request.query;
      const page = parsePage(request.query, NotificationSchema, ['-created']);
      const { limit, offset, allContent } = page;
      const { descending } = page.ordering;
      const { count, records } = await outbox.list({
        status,
        target,
        event,
        name,
        descending,
        limit,
        offset,
      });
      const viewer = principalOf(request);
      const shown = records.map(({ data, ...short }) => ({ ...short, ...(allContent ? { data } : {}) }));
      return pageAnswer(
        request,
        page,
        count,
        shown.map(one => permitted('notification', one, viewer)),
      );
    },
  );

  app.get(
    '/api/notifications/:id/',
    {
      config: { access },
      schema: {
        tags,
        summary: 'One notification, with the data of its event',
        params: IdParams,
        response: { 200: ref(NotificationSchema) },
      },
    },
    async request => permitted('notification', await outbox.get(request.params.id), principalOf(request)),
  );

  app.post(
    '/api/notifications/:id/remove/',
    {
      config: { access },
      schema: {
        tags,
        summary: 'Forget a notification, delivered or not',
        description: 'One that was given up counts in the metrics until it is tried again or forgotten.',
        params: IdParams,
        response: { 200: Nothing },
      },
    },
    async request => {
      await outbox.remove(request.params.id);
      return {};
    },
  );

  app.post(
    '/api/notifications/:id/retry/',
    {
      config: { access, errors: ['notification_sent'] },
      schema: {
        tags,
        summary: 'Try a notification again that was given up, or that waits',
        description: 'It is due at once, with as many attempts as a new one.',
        params: IdParams,
        response: { 200: ref(NotificationSchema) },
      },
    },
    async request =>
      permitted('notification', await outbox.retry(request.params.id, new Date()), principalOf(request)),
  );
}
