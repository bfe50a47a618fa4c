/** Who vouches for an archive, and so what of it may reach a node. */
import type { Sealed } from './types.ts';

/**
 * `own`: made and extended by this node only, or by the one whose place it took; what its owner defined comes back as it was.
 * `fleet`: another node of the same controller had a part in it. `foreign`: by somebody else, or nobody vouches for it. Of the last two only what
 * cannot reach the node itself comes back.
 */
export type ArchiveTrust = 'own' | 'fleet' | 'foreign';

/** Who vouches for an archive. */
export interface Judgement {
  trust: ArchiveTrust;
  /** Id of the node that signed it; empty when nobody did whom this node can name. */
  signer: string;
  /** Why it is foreign, as a sentence without its full stop; empty for one that is not. */
  reason: string;
  /** One node of this controller made and extended all of it: what it says of its VM was so on that node. */
  byOneNode: boolean;
  /** The signature stands for the bytes of the disks and images, too, and not for what defines the VM alone. */
  coversContent: boolean;
}

/** Judges an opened archive by what stands in it. */
export type JudgeArchive = (archive: Sealed) => Judgement;
