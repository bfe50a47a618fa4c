import { watchClock } from './clock-belief.ts';
import type { CoreServices } from './services/services.ts';

const INTERVAL_MS = 3600 * 1000;
const FLUSH_MS = 5000;
const DAY_MS = 86_400_000;

/** Deletes what the settings keep no longer: old tasks, events, audit records, notifications, keys and logins. */
export async function cleanUp(services: CoreServices, now: Date): Promise<void> {
  const { keep } = services.config;
  const daysAgo = (days: number) => new Date(now.getTime() - days * DAY_MS);
  await services.tasks.prune(daysAgo(keep.tasks_days));
  await services.events.prune(daysAgo(keep.events_days));
  await services.audit.prune(daysAgo(keep.audit_days));
  const cut = await services.audit.cut();
  if (cut > 0) services.log.warn('audit records above keep.audit_records were deleted', { count: cut });
  await services.notifications.prune(daysAgo(keep.notifications_days));
  await services.idempotency.prune(now);
  await services.tokens.prune(now);
}

/**
 * Cleans up every hour, by a clock that has not been put forward meanwhile: of one that is a year ahead everything is old. So nothing is
 * deleted right at the start, either, when the time of the network may not be known yet.
 * @returns a function that ends it.
 */
export function startJanitor(services: CoreServices): () => Promise<void> {
  const isClockBelieved = watchClock();
  const run = () => {
    if (!isClockBelieved()) return;
    cleanUp(services, new Date()).catch(error => services.log.error('cleaning up failed', { error }));
  };
  const timer = setInterval(run, INTERVAL_MS);
  timer.unref();
  const flush = () =>
    services.audit.flush().catch(error => services.log.error('audit counts not written', { error }));
  const flushing = setInterval(flush, FLUSH_MS);
  flushing.unref();
  return async () => {
    clearInterval(timer);
    clearInterval(flushing);
    await flush();
  };
}
