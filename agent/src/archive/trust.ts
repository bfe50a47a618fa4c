/** Who vouches for an archive, and so what of it may reach a node. */
import type { Archive } from './reader.ts';

/**
 * `own`: made and extended by this node only, or by the one whose place it took; what its owner defined comes back as it was.
 * `fleet`: another node of the same controller had a part in it. `foreign`: by somebody else, or nobody vouches for it. Of the last two only what
 * cannot reach the node itself comes back.
 */
export type ArchiveTrust = 'own' | 'fleet' | 'foreign';

/** Decides it for an opened archive, from what stands in it. @throws VirtkeepError io_failed, canceled */
export type TrustOf = (archive: Archive, signal: AbortSignal) => Promise<ArchiveTrust>;

/** Every archive that lies in a pool of the node is taken for its own. */
export const trustEveryArchive: TrustOf = async () => 'own';
