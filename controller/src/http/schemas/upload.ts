import { STORY } from '../document/story.ts';
import { Bytes, described, nullable, oneOf, record, ref, Time, text, Uuid } from './common.ts';
import { FileSchema } from './file.ts';

export const UploadSchema = record(
  'Upload',
  {
    description: 'A file that is being sent into a data pool, or has been',
    example: {
      id: STORY.layer,
      datapool: STORY.pool,
      filename: 'shop/shop.vmdk',
      size: 659_554_304,
      offset: 67_108_864,
      sha256: '',
      status: 'UPLOADING',
      expires: STORY.created,
      task: STORY.layer,
      file: null,
    },
  },
  {
    id: described(Uuid, 'of the upload'),
    datapool: described(Uuid, 'where the file goes'),
    filename: text('relative to backups/ of the data pool'),
    size: nullable(described(Bytes, 'of the whole file; null: not known yet')),
    offset: described(Bytes, 'that have come and are on the disk'),
    sha256: text('of the whole file when it is done; before, what was announced, or empty'),
    status: oneOf(['UPLOADING', 'DONE'] as const, { description: 'DONE: the file has its name' }),
    expires: described(Time, 'when it is given up, should no byte come until then'),
    task: nullable(described(Uuid, 'its task; null: none runs')),
    file: nullable(ref(FileSchema), 'the backup file; null: it is not done, or no backup by its name'),
  },
);
