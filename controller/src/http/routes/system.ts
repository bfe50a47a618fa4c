/** What the controller says of itself. Nothing here needs a node. */

import { VirtkeepError } from '@virtkeep/shared/errors';
import { sql } from 'kysely';
import type { RouteModule } from '../app.ts';
import { STORY } from '../document/story.ts';
import { VERSION } from '../openapi.ts';
import { body, described, Time, text } from '../schemas/common.ts';

const tags = ['system'];
const Status = body({ status: text('ok') }, { status: 'ok' });

export const systemRoutes: RouteModule = (app, services) => {
  app.get(
    '/api/openapi.json',
    {
      config: { access: 'public' },
      schema: {
        tags,
        summary: 'This document',
        response: { 200: { type: 'object', description: 'OpenAPI 3.1', examples: [{ openapi: '3.1.0' }] } },
      },
    },
    async () => app.swagger(),
  );

  app.get(
    '/api/controllers/check/',
    {
      config: { access: 'public' },
      schema: { tags, summary: 'The controller answers', response: { 200: Status } },
    },
    async () => ({ status: 'ok' }),
  );

  app.get(
    '/api/controllers/base-version/',
    {
      config: { access: 'login' },
      schema: {
        tags,
        summary: 'Version of the controller',
        response: { 200: body({ version: text('of the controller') }, { version: '0.1.0' }) },
      },
    },
    async () => ({ version: VERSION }),
  );

  app.get(
    '/api/controllers/system-time/',
    {
      config: { access: 'login' },
      schema: {
        tags,
        summary: 'Time and time zone of the controller',
        response: {
          200: body(
            {
              time_zone: text('by its IANA name'),
              local_time: text('RFC 3339 with its offset'),
              utc_time: described(Time, 'the same in UTC'),
            },
            {
              time_zone: 'Europe/Berlin',
              local_time: '2026-03-01T03:00:00.000+01:00',
              utc_time: STORY.created,
            },
          ),
        },
      },
    },
    async () => systemTime(new Date()),
  );

  app.get(
    '/healthz',
    {
      config: { access: 'public', rateLimit: false },
      schema: { tags, summary: 'The process lives', response: { 200: Status } },
    },
    async () => ({ status: 'ok' }),
  );

  app.get(
    '/readyz',
    {
      config: { access: 'public', rateLimit: false, errors: ['draining'] },
      schema: { tags, summary: 'The controller takes work', response: { 200: Status } },
    },
    async () => {
      if (services.draining.aborted) throw new VirtkeepError('draining');
      await sql`select 1`.execute(services.db);
      return { status: 'ok' };
    },
  );
};

/** Local time as RFC 3339 with its offset. */
function systemTime(now: Date): { time_zone: string; local_time: string; utc_time: string } {
  const offsetMinutes = -now.getTimezoneOffset();
  const sign = offsetMinutes < 0 ? '-' : '+';
  const two = (value: number) => String(Math.trunc(Math.abs(value))).padStart(2, '0');
  const local = new Date(now.getTime() + offsetMinutes * 60_000).toISOString().slice(0, -1);
  return {
    time_zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    local_time: `${local}${sign}${two(offsetMinutes / 60)}:${two(offsetMinutes % 60)}`,
    utc_time: now.toISOString(),
  };
}
