/** Files that are sent into `backups/` of a data pool, in one go or in parts, over stops of the agent. */

export type { Part } from './receiver.ts';
export type { UploadRecord } from './record.ts';
export { UPLOAD_STEPS } from './upload-file.ts';
export { type NewUpload, Uploads } from './uploads.ts';
