/**
 * What running operations of this node are about to use and no definition names yet. Whoever claims a thing and then asks
 * the other nodes for it cannot miss one that does the same at once: at least one of the two sees the other's claim.
 */
import type { Thing, Use } from './other-nodes.ts';

export type Claimant = Pick<Use, 'domainId' | 'domainName'>;

export class Claims {
  readonly #claims = new Set<{ key: string; by: Claimant }>();

  /** @returns what ends the claims; may be called again. */
  make(things: readonly Thing[], by: Claimant): () => void {
    const claims = things.map(thing => ({ key: keyOf(thing), by }));
    for (const claim of claims) this.#claims.add(claim);
    return () => {
      for (const claim of claims) this.#claims.delete(claim);
    };
  }

  /** @param but whose claims do not count */
  by(thing: Thing, but?: Claimant): Claimant | undefined {
    const key = keyOf(thing);
    for (const claim of this.#claims) if (claim.key === key && claim.by !== but) return claim.by;
    return undefined;
  }
}

function keyOf(thing: Thing): string {
  if (thing.kind === 'file') return `file ${thing.poolId} ${thing.path}`;
  return thing.kind === 'device' ? `device ${thing.key}` : `domain ${thing.id}`;
}
