import type { FileRow } from '../../store/schema.ts';
import type { EventService } from '../journal/events.ts';
import { detailsOf } from './record.ts';

/** Reports an archive that is whole and signed but has fewer states than before: only the record of the earlier state shows it. */
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
