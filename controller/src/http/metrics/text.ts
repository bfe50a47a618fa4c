/** The whole of `/metrics`, in pieces, so that nobody else waits while it is written, and none of it is kept for a slow reader. */
import { shareLoop } from '@virtkeep/shared/turns';
import type { Registry } from 'prom-client';
import type { MetricSources } from '../../services/monitoring/sources.ts';
import { deadLetterText } from './notifications.ts';
import { scheduleText } from './schedules.ts';
import { vmText } from './vms.ts';

export async function* metricsText(
  registry: Pick<Registry, 'metrics'>,
  { inventory, schedules, notifications }: MetricSources,
): AsyncGenerator<string> {
  yield await registry.metrics();
  if (notifications) yield* deadLetterText(await notifications.deadLetters());
  for (const text of inManyPieces()) {
    await shareLoop();
    if (text !== '') yield text;
  }

  function* inManyPieces(): Generator<string> {
    if (inventory) yield* vmText(inventory.vms());
    if (schedules) yield* scheduleText(schedules);
  }
}
