/** What an administrator looks at first, in one answer. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import Type from 'typebox';
import { MAX_HISTORIES, overview } from '../../services/overview/overview.ts';
import { principalOf, type RouteModule } from '../app.ts';
import { part, ref } from '../schemas/common.ts';
import { OverviewSchema } from '../schemas/overview.ts';

const DEFAULT_HISTORIES = 20;

const Query = part({
  time_zone: Type.Optional(
    Type.String({
      maxLength: 64,
      description: 'IANA name of the time zone whose days are meant; without it that of the controller',
    }),
  ),
  histories: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: MAX_HISTORIES,
      default: DEFAULT_HISTORIES,
      description: 'so many VMs are told day by day',
    }),
  ),
});

export const overviewRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/overview/',
    {
      config: { access: 'system.read' },
      schema: {
        tags: ['system'],
        summary: 'What matters now',
        querystring: Query,
        response: { 200: ref(OverviewSchema) },
      },
    },
    async request => {
      const viewer = principalOf(request);
      const { time_zone, histories = DEFAULT_HISTORIES } = request.query;
      const timeZone = knownTimeZone(time_zone);
      const { domains, running, ...rest } = await overview(services, {
        timeZone,
        histories,
        now: new Date(),
      });
      return {
        ...rest,
        domains: {
          counts: domains.counts,
          urgent: domains.urgent.map(row => services.protection.record(row)),
        },
        running: {
          count: running.count,
          results: running.tasks.map(task => services.tasks.record(task, viewer)),
        },
      };
    },
  );
};

/** @throws invalid_field */
function knownTimeZone(name: string | undefined): string {
  try {
    return Intl.DateTimeFormat('en', name === undefined ? {} : { timeZone: name }).resolvedOptions().timeZone;
  } catch {
    throw new VirtkeepError('invalid_field', { field: 'time_zone', reason: 'it is no time zone' });
  }
}
