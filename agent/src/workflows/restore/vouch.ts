/** Whether what an archive defines may come onto this node at all. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Judgement } from '../../archive/index.ts';

/**
 * An archive that nobody vouches for is restored for those only who may do that and say so.
 * @returns what is to be said of it, or null
 * @throws VirtkeepError archive_foreign
 */
export function requireVouched(
  { trust, reason }: Judgement,
  { filename, allowForeign }: { filename: string; allowForeign: boolean },
): string | null {
  if (trust !== 'foreign') return null;
  if (!allowForeign) throw new VirtkeepError('archive_foreign', { file: filename, reason });
  return `Nobody vouches for the archive ${filename}: ${reason}. What its definition may do to the node was left out.`;
}
