import Type from 'typebox';
import { EVENT_TYPES } from '../../services/journal/events.ts';
import type { RouteModule } from '../app.ts';
import { principalOf } from '../app.ts';
import { STORY } from '../document/story.ts';
import { pageAnswer, parsePage } from '../paging.ts';
import { permitted } from '../permitted.ts';
import { filterById, IdParams, listOf, listQuery, oneOf, ref } from '../schemas/common.ts';
import { EventSchema } from '../schemas/event.ts';
import { EventStreams } from '../sse.ts';

const tags = ['events'];

const STREAM_TEXT = `Server-Sent Events. \`event:\` is the kind of thing (task, event, domain, node, data_pool, vdisk, file, scheduled_task),
\`data:\` is \`{"id","action","record"}\` with action created, changed or removed; the record is null where the thing is gone by then. Changes of
one thing that come close together, or while a client reads slowly, are told once. \`id:\` may be sent back as \`Last-Event-ID\`; when that is no longer known, or more was missed
than can be told, the event is \`reset\`: load the lists again. A client that reads nothing for a minute is cut off and may resume.
Comment lines keep the connection alive.`;

const STREAM_EXAMPLE = `id: mq1x2y3z-42\nevent: task\ndata: {"id":"${STORY.task}","action":"changed","record":{}}\n\n`;

export const eventRoutes: RouteModule = (app, services) => {
  const streams = new EventStreams(services);

  app.get(
    '/api/events/',
    {
      config: { access: 'event.read' },
      schema: {
        tags,
        summary: 'List events, newest first',
        querystring: listQuery({
          type: Type.Optional(oneOf(EVENT_TYPES, { description: 'of this kind' })),
          user: Type.Optional(Type.String({ maxLength: 255, description: 'name of who caused them' })),
          entity: filterById('about this thing'),
          task: filterById('of this task'),
        }),
        response: { 200: listOf(EventSchema) },
      },
    },
    async request => {
      const { type, user, entity, task } = request.query;
      const page = parsePage(request.query, EventSchema, ['-created', 'type', 'user']);
      const { count, events } = await services.events.list({ ...page, type, user, entity, task });
      const viewer = principalOf(request);
      return pageAnswer(
        request,
        page,
        count,
        events.map(event => permitted('event', event, viewer)),
      );
    },
  );

  app.get(
    '/api/events/:id/',
    {
      config: { access: 'event.read' },
      schema: { tags, summary: 'One event', params: IdParams, response: { 200: ref(EventSchema) } },
    },
    async request => permitted('event', await services.events.get(request.params.id), principalOf(request)),
  );

  app.get(
    '/api/events/stream/',
    {
      exposeHeadRoute: false,
      config: { access: 'event.read' },
      schema: {
        tags,
        summary: 'What changes, as it happens',
        description: STREAM_TEXT,
        produces: ['text/event-stream'],
        response: { 200: { type: 'string', description: 'text/event-stream', examples: [STREAM_EXAMPLE] } },
      },
    },
    (request, reply) => {
      streams.open(request, reply, principalOf(request));
    },
  );
};
