/** Tells people of backups that can no longer be extended, or can be again. */
import type { TurnedFile } from './catalogue.ts';
import type { EventService } from './events.ts';

/** Files in work say nothing: what comes of their operation does. */
export async function tellTurned(events: EventService, turned: TurnedFile[]): Promise<void> {
  for (const { row, reason } of turned) {
    if (row.status === 'UPDATING' || row.status === 'MISSING') continue;
    const entities = [{ id: row.id, class: 'file' }];
    if (row.domain_id !== null) entities.push({ id: row.domain_id, class: 'domain' });
    await events.record({
      type: reason === '' ? 'info' : 'warning',
      message: `The backup ${row.filename} can ${reason === '' ? 'be extended again' : 'no longer be extended'}`,
      detailMessage: reason,
      entities,
    });
  }
}
