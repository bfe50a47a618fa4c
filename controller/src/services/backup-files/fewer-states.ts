import type { FileRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import { detailsOf } from './record.ts';

/** An archive that was put back to what it was is whole, and signed as that: only who knew it before can tell. */
export async function reportFewerStates(
  events: Pick<EventService, 'record'>,
  file: FileRow,
  states: number,
): Promise<void> {
  const entities = [{ id: file.id, class: 'file' }];
  if (file.domain_id !== null) entities.push({ id: file.domain_id, class: 'domain' });
  await events.record({
    type: 'warning',
    message: `The backup ${file.filename} has lost its newest states`,
    detailMessage: `It had ${detailsOf(file).states.length} and has ${states}: no operation did that. An earlier file was put in its place, or an increment that was cut off was taken back.`,
    entities,
  });
}
