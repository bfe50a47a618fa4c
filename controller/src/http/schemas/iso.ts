import Type from 'typebox';
import { Bytes, oneOf, Permissions, record, Time, Uuid } from './common.ts';

const closed = { additionalProperties: false } as const;

export const IsoSchema = record('IsoImage', {
  id: Type.String({ ...Uuid, description: 'of data pool and name: the same on each node' }),
  filename: Type.String({ description: 'relative to the directory of its data pool' }),
  verbose_name: Type.String({ description: 'as filename' }),
  description: Type.String(),
  entity_type: oneOf(['iso'] as const),
  status: oneOf(['ACTIVE', 'CREATING'] as const, {
    description: 'CREATING: it was announced and not yet uploaded',
  }),
  size: Bytes,
  path: Type.String({ description: 'on a node; empty before it is uploaded' }),
  datapool: Type.Object({ id: Uuid, verbose_name: Type.String(), type: Type.String() }, closed),
  domains: Type.Array(Type.Object({ id: Uuid, verbose_name: Type.String() }, closed), {
    description: 'the VMs that have it in a drive',
  }),
  created: Time,
  modified: Time,
  locked_by: Type.Null(),
  upload_url: Type.Optional(Type.String({ description: 'where an announced image is sent to' })),
  download_url: Type.Optional(
    Type.String({ description: 'gives its bytes without a login; begun within a minute' }),
  ),
  permissions: Type.Optional(Permissions),
});
