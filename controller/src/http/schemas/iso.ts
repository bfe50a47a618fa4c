import Type from 'typebox';
import { STORY } from '../document/story.ts';
import { Bytes, described, named, oneOf, Permissions, part, record, Time, text, Uuid } from './common.ts';

export const IsoSchema = record(
  'IsoImage',
  {
    description: 'An ISO image of a data pool',
    example: {
      id: STORY.layer,
      filename: 'debian-12.iso',
      verbose_name: 'debian-12.iso',
      description: '',
      entity_type: 'iso',
      status: 'ACTIVE',
      size: 659_554_304,
      path: '/srv/backups/debian-12.iso',
      datapool: { id: STORY.pool, verbose_name: 'backups', type: 'nfs' },
      domains: [],
      created: STORY.created,
      modified: STORY.created,
      locked_by: null,
      permissions: ['download'],
    },
  },
  {
    id: described(Uuid, 'of data pool and name: the same on each node'),
    filename: text('relative to the directory of its data pool'),
    verbose_name: text('as filename'),
    description: text('always empty'),
    entity_type: oneOf(['iso'] as const, { description: 'always iso' }),
    status: oneOf(['ACTIVE', 'CREATING'] as const, {
      description: 'CREATING: it was announced and not yet uploaded',
    }),
    size: described(Bytes, 'its bytes'),
    path: text('on a node; empty before it is uploaded'),
    datapool: part(
      {
        id: described(Uuid, 'id of the pool'),
        verbose_name: text('its name'),
        type: text('as in its record'),
      },
      'where it lies',
    ),
    domains: Type.Array(named('a VM'), { description: 'the VMs that have it in a drive' }),
    created: described(Time, 'when it was made'),
    modified: described(Time, 'when it was changed last'),
    locked_by: described(Type.Null(), 'always null'),
    upload_url: Type.Optional(text('where an announced image is sent to')),
    download_url: Type.Optional(text('gives its bytes without a login; begun within a minute')),
    permissions: Type.Optional(Permissions),
  },
);
