/** Files that are sent into `backups/` of a data pool, in one go or in parts, over stops of the agent. */
export { UPLOAD_STEPS } from './upload-file.ts';
export { type NewUpload, Uploads } from './uploads.ts';
export type { Part } from './receiver.ts';
export type { UploadRecord } from './record.ts';
