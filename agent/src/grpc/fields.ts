import { VirtkeepError } from '@virtkeep/shared/errors';
import { isUuid } from '@virtkeep/shared/ids';

/** Refuses what is not a lower-case UUID. @throws VirtkeepError invalid_uuid, naming the field */
export function requireUuid(field: string, value: string): void {
  if (!isUuid(value)) throw new VirtkeepError('invalid_uuid', { value: value.slice(0, 100), field });
}
