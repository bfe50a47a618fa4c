/** Whether what an archive defines may come onto this node at all. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { ArchiveSignature } from '@virtkeep/shared/gen/virtkeep/agent/v1/backup';
import type { Archive, Judgement } from '../../archive/index.ts';
import type { WorkflowDependencies } from '../dependencies.ts';

type Judge = Pick<WorkflowDependencies, 'trustOf' | 'signer'>;

/** Where nothing judges signatures, only what is known of the trust is told. */
export async function judgementOf(
  { trustOf, signer }: Judge,
  archive: Archive,
  signal: AbortSignal,
): Promise<Judgement> {
  if (signer) return signer.judge(archive);
  const trust = await trustOf(archive, signal);
  const reason = trust === 'foreign' ? 'it is not signed' : '';
  return { trust, signer: '', reason, coversContent: false };
}

/**
 * An archive that nobody vouches for is restored for those only who may do that and say so.
 * @returns what is to be said of it, or null
 * @throws VirtkeepError archive_foreign
 */
export async function requireVouched(
  dependencies: Judge,
  { archive }: { archive: Archive },
  { filename, allowForeign }: { filename: string; allowForeign: boolean },
  signal: AbortSignal,
): Promise<string | null> {
  const { trust, reason } = await judgementOf(dependencies, archive, signal);
  if (trust !== 'foreign') return null;
  if (!allowForeign) throw new VirtkeepError('archive_foreign', { file: filename, reason });
  return `Nobody vouches for the archive ${filename}: ${reason}. What its definition may do to the node was left out.`;
}

/** The same in the words of the gRPC contract. */
export function signatureOf({ trust, signer, reason, coversContent }: Judgement): ArchiveSignature {
  return { trust, signer, reason, coversContent };
}
