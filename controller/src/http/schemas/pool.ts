import Type from 'typebox';
import { FORECAST_BASES, FORECAST_STATES } from '../../services/pools/forecast.ts';
import { STORY } from '../document/story.ts';
import {
  BorneTags,
  Bytes,
  described,
  integer,
  named,
  nullable,
  oneOf,
  Permissions,
  part,
  record,
  text,
  truth,
  Uuid,
} from './common.ts';

export const EXAMPLE_FORECAST = {
  state: 'filling' as const,
  days: 40,
  growth_per_day: 21_990_232_555,
  basis: 'samples' as const,
};

export const ForecastSchema = part(
  {
    state: oneOf(FORECAST_STATES, {
      description:
        'steady: shrinking, or not full within two years; unknown: it was not watched for long enough',
    }),
    days: nullable(integer('in about how many days it is full, going on like this; null unless filling')),
    growth_per_day: nullable(integer('bytes a day; negative: it shrinks; null: not known')),
    basis: nullable(
      oneOf(FORECAST_BASES, {
        description:
          'samples: what was used on each day, of two weeks and more; backups: those of the last weeks, as if none were ever removed',
      }),
    ),
  },
  'in how many days it is full',
);

export const PoolSchema = record(
  'DataPool',
  {
    description: 'A data pool: where disks and backup files lie',
    example: {
      id: STORY.pool,
      verbose_name: 'backups',
      description: '',
      status: 'ACTIVE',
      type: 'nfs',
      path: '/srv/backups',
      size: 1_099_511_627_776,
      used_space: 219_902_325_555,
      free_space: 879_609_302_221,
      shared: true,
      shared_storage: { id: STORY.pool, verbose_name: 'backups' },
      nodes_connected: [{ id: STORY.node, verbose_name: 'n1', connection_status: 'ACTIVE' }],
      built_in: false,
      is_base: true,
      readonly: false,
      outside: false,
      backup_bandwidth: 0,
      latency_target: 0,
      ownership: '',
      vdisk_count: 3,
      file_count: 14,
      zfs_pool: null,
      forecast: EXAMPLE_FORECAST,
      tags: [],
      permissions: ['update', 'scan'],
    },
  },
  {
    id: described(Uuid, 'id of the pool, the same on all nodes that have it'),
    verbose_name: text('its name'),
    description: text('what people said of it'),
    status: oneOf(['ACTIVE', 'FAILED'] as const, { description: 'ACTIVE: usable on at least one node' }),
    type: text('local, nfs, zfs, lvm, thinlvm, lvm-shared, outside, …'),
    path: text('where it is on its nodes'),
    size: described(Bytes, 'bytes that it has'),
    used_space: described(Bytes, 'bytes that are taken'),
    free_space: described(Bytes, 'bytes that are free'),
    shared: truth('several nodes have it, or it lies on the network'),
    shared_storage: nullable(named('of a shared pool: the pool itself')),
    nodes_connected: Type.Array(
      part({
        id: described(Uuid, 'id of the node'),
        verbose_name: text('its name'),
        connection_status: oneOf(['ACTIVE', 'INACTIVE', 'FAILED'] as const, {
          description: 'INACTIVE: stopped or not mounted there; FAILED: the node is away',
        }),
      }),
      { description: 'the nodes that have it' },
    ),
    built_in: truth('the node has it without being told'),
    is_base: truth('base data pool of at least one node'),
    readonly: truth('it was marked so: nothing is changed in it'),
    outside: truth('it belongs to others: nothing is written to it'),
    backup_bandwidth: integer('bytes per second of all backups that go to it; 0: no limit'),
    latency_target: integer(
      'ms that running VMs may wait for its disks, on the average, before backups are slowed down; 0: no limit',
    ),
    ownership: text('who beside root may change what is in its directories; empty when nobody may'),
    vdisk_count: integer('disks of VMs'),
    file_count: integer('backup files'),
    zfs_pool: nullable(text('name of the zfs pool it is part of')),
    forecast: ForecastSchema,
    tags: BorneTags,
    permissions: Type.Optional(Permissions),
  },
);
