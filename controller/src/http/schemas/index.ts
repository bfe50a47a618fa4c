/** Every named record of the API document. */
import type { App } from '../app.ts';
import { TaskResponse } from '../routes/tasks.ts';
import { ErrorBody } from './common.ts';
import { TaskAccepted, TaskRecordSchema } from './task.ts';

const SCHEMAS = [ErrorBody, TaskRecordSchema, TaskAccepted, TaskResponse];

export function registerSchemas(app: App): void {
  for (const schema of SCHEMAS) app.addSchema(schema);
}
