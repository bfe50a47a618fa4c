import { VirtkeepError } from '@virtkeep/shared/errors';
import { isUuid } from '@virtkeep/shared/ids';

const MAX_DESCRIPTION = 4_096;

/** Refuses a free text of more than 4096 characters. @throws VirtkeepError invalid_field */
export function requireDescription(description: string | undefined): void {
  if (description === undefined || description.length <= MAX_DESCRIPTION) return;
  const reason = `is longer than ${MAX_DESCRIPTION} characters`;
  throw new VirtkeepError('invalid_field', { field: 'description', reason });
}

/** Refuses what is not a lower-case UUID. @throws VirtkeepError invalid_uuid, naming the field */
export function requireUuid(field: string, value: string): void {
  if (!isUuid(value)) throw new VirtkeepError('invalid_uuid', { value: value.slice(0, 100), field });
}
