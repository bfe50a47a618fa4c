/** The guest agent, as far as backups need it. */
export { ensureThawed, isFrozen, probeAgent } from './agent.ts';
export { correctGuestClock } from './clock.ts';
