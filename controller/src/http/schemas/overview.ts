import Type from 'typebox';
import { DAY_RESULTS } from '../../services/overview/history.ts';
import { STORY } from '../document/story.ts';
import {
  Bytes,
  described,
  exampleOf,
  integer,
  named,
  nullable,
  oneOf,
  part,
  record,
  ref,
  Time,
  text,
  Uuid,
} from './common.ts';
import { EXAMPLE_FORECAST, ForecastSchema } from './pool.ts';
import { CountsBeside, ProtectionSchema, ProtectionStateText } from './protection.ts';
import { TaskRecordSchema } from './task.ts';

const GOOD_DAYS = Array.from({ length: 14 }, () => 'good' as const);
const EXAMPLE_DAYS = GOOD_DAYS.map((_, index) => `2026-02-${String(index + 15)}`);

export const OverviewSchema = record(
  'Overview',
  {
    description: 'What matters now, of each kind the most urgent',
    example: {
      domains: {
        counts: { ...CountsBeside.example.counts, failing: 1 },
        urgent: [exampleOf(ProtectionSchema)],
      },
      history: {
        days: EXAMPLE_DAYS,
        domains: [
          {
            domain: { id: STORY.domain, verbose_name: 'web-1' },
            state: 'protected',
            results: GOOD_DAYS,
          },
        ],
      },
      running: { count: 1, results: [exampleOf(TaskRecordSchema)] },
      pools: {
        count: 1,
        results: [
          {
            id: STORY.pool,
            verbose_name: 'backups',
            status: 'ACTIVE',
            size: 1_099_511_627_776,
            used_space: 219_902_325_555,
            free_space: 879_609_302_221,
            forecast: EXAMPLE_FORECAST,
          },
        ],
      },
      nodes: {
        count: 2,
        away_count: 1,
        away: [{ id: STORY.other_node, verbose_name: 'n2', status: 'FAILED', last_seen: STORY.changed }],
      },
      next_runs: [{ id: STORY.schedule, verbose_name: 'nightly', next_run: STORY.until }],
    },
  },
  {
    domains: part(
      {
        counts: CountsBeside.properties.counts,
        urgent: Type.Array(ref(ProtectionSchema), {
          description: 'VMs that are late, have no good backup or failed last, the most urgent first',
        }),
      },
      'how well VMs are protected',
    ),
    history: part(
      {
        days: Type.Array(text('a date'), { description: 'the last days, the present one last' }),
        domains: Type.Array(
          part({
            domain: named('the VM'),
            state: ProtectionStateText,
            results: Type.Array(oneOf(DAY_RESULTS), {
              description: 'of its backups that ended on each day; mixed: good ones and failed ones',
            }),
          }),
          { description: 'the most urgent first' },
        ),
      },
      'what became of backups, day by day',
    ),
    running: part(
      {
        count: integer('of all that run'),
        results: Type.Array(ref(TaskRecordSchema), { description: 'the newest first' }),
      },
      'tasks that run',
    ),
    pools: part(
      {
        count: integer('of all'),
        results: Type.Array(
          part({
            id: described(Uuid, 'id of the pool'),
            verbose_name: text('its name'),
            status: oneOf(['ACTIVE', 'FAILED'] as const, {
              description: 'ACTIVE: usable on at least one node',
            }),
            size: described(Bytes, 'bytes that it has'),
            used_space: described(Bytes, 'bytes that are taken'),
            free_space: described(Bytes, 'bytes that are free'),
            forecast: ForecastSchema,
          }),
          { description: 'the fullest first' },
        ),
      },
      'room in data pools',
    ),
    nodes: part(
      {
        count: integer('of all'),
        away_count: integer('of those that are not at work'),
        away: Type.Array(
          part({
            id: described(Uuid, 'id of the node'),
            verbose_name: text('its name'),
            status: oneOf(['ACTIVE', 'FAILED', 'SERVICE'] as const, {
              description: 'FAILED: not reachable; SERVICE: taken out on purpose',
            }),
            last_seen: nullable(described(Time, 'when it answered last; null: never')),
          }),
          { description: 'those that are not at work' },
        ),
      },
      'nodes',
    ),
    next_runs: Type.Array(
      part({
        id: described(Uuid, 'id of the scheduled task'),
        verbose_name: text('its name'),
        next_run: described(Time, 'when it is due'),
      }),
      { description: 'enabled scheduled tasks, the next one first' },
    ),
  },
);
