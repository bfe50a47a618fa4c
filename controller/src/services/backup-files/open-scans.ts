/**
 * Scans whose results are still to come or are being taken over, and what was told of files, or done with them, since each began: that is
 * newer than what the scan has found, however late its result comes and however long it takes to take it over.
 */

/** Of one pool; further ones are of nodes that were lost. A scan that is forgotten marks no file as MISSING. */
const MAX_SCANS = 20;

/** A record of a file, and where it lies. */
export interface Placed {
  id: string;
  pool_id: string;
  filename: string;
}

export class NewerReports {
  readonly #ids = new Set<string>();
  readonly #places = new Set<string>();

  add({ id, pool_id, filename }: Placed): void {
    this.#ids.add(id);
    // what is not published yet lies nowhere
    if (filename !== '') this.#places.add(placeOf(pool_id, filename));
  }

  /** A file that was removed has no record any more by which it would be known: its place says so as well. */
  has({ id, pool_id, filename }: Placed): boolean {
    return this.#ids.has(id) || this.#places.has(placeOf(pool_id, filename));
  }
}

export class OpenScans {
  readonly #poolOf = new Map<string, string>();
  /** By pool and operation: a thousand nodes are scanned at once, and each file concerns one or two pools. */
  readonly #scans = new Map<string, Map<string, NewerReports>>();

  /** Any report about a file of this pool from now on is newer than what the scan finds. */
  begins(operation: string, poolId: string): NewerReports {
    this.ends(operation);
    const newer = new NewerReports();
    const ofPool = this.#scans.get(poolId) ?? new Map<string, NewerReports>();
    this.#scans.set(poolId, ofPool.set(operation, newer));
    this.#poolOf.set(operation, poolId);
    const [oldest] = ofPool.keys();
    if (ofPool.size > MAX_SCANS) this.ends(oldest!);
    return newer;
  }

  of(operation: string): NewerReports | undefined {
    return this.#scans.get(this.#poolOf.get(operation) ?? '')?.get(operation);
  }

  ends(operation: string): void {
    const poolId = this.#poolOf.get(operation);
    if (poolId === undefined) return;
    this.#poolOf.delete(operation);
    const ofPool = this.#scans.get(poolId);
    ofPool?.delete(operation);
    if (ofPool?.size === 0) this.#scans.delete(poolId);
  }

  /**
   * A record is about to be written or removed.
   * @param rows as it is and as it was
   * @param but the scan that tells of it itself
   */
  note(rows: readonly Placed[], but?: NewerReports): void {
    for (const poolId of new Set(rows.map(row => row.pool_id)))
      for (const newer of this.#scans.get(poolId)?.values() ?? [])
        if (newer !== but) for (const row of rows) newer.add(row);
  }
}

export const placeOf = (poolId: string, filename: string): string => `${poolId}/${filename}`;
