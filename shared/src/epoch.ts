/**
 * Several controllers: one of them acts at a time, and each that begins has a higher epoch than all before it. It stands in the metadata of
 * every call to an agent, which takes none of a lower one once it has seen a higher: a controller that was stopped, or cut off, and
 * goes on later, does no harm.
 */
export const EPOCH_KEY = 'virtkeep-epoch';

/** @returns undefined when it is no epoch: a whole number from 1 */
export function parseEpoch(text: string): number | undefined {
  const epoch = /^[1-9]\d{0,14}$/.test(text) ? Number(text) : Number.NaN;
  return Number.isSafeInteger(epoch) ? epoch : undefined;
}
