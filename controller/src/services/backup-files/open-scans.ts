/**
 * Scans whose results are still to come or are being taken over, and what was told of files, or done with them, since each began: that is
 * newer than what the scan has found, however late its result comes and however long it takes to take it over.
 */

/** A scan that is forgotten marks no file as MISSING. */
const MAX_SCANS = 10_000;

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
  readonly #scans = new Map<string, { poolId: string; newer: NewerReports }>();
  /** The same by pool: a thousand nodes are scanned at once, and each file concerns one or two pools. */
  readonly #byPool = new Map<string, Set<NewerReports>>();

  /** Any report about a file of this pool from now on is newer than what the scan finds. */
  begins(operation: string, poolId: string): NewerReports {
    this.ends(operation);
    const newer = new NewerReports();
    this.#scans.set(operation, { poolId, newer });
    this.#byPool.set(poolId, (this.#byPool.get(poolId) ?? new Set()).add(newer));
    const [oldest] = this.#scans.keys();
    if (this.#scans.size > MAX_SCANS) this.ends(oldest!);
    return newer;
  }

  of(operation: string): NewerReports | undefined {
    return this.#scans.get(operation)?.newer;
  }

  ends(operation: string): void {
    const scan = this.#scans.get(operation);
    if (!scan) return;
    this.#scans.delete(operation);
    const ofPool = this.#byPool.get(scan.poolId);
    ofPool?.delete(scan.newer);
    if (ofPool?.size === 0) this.#byPool.delete(scan.poolId);
  }

  /**
   * A record is about to be written or removed.
   * @param rows as it is and as it was
   * @param but the scan that tells of it itself
   */
  note(rows: readonly Placed[], but?: NewerReports): void {
    for (const poolId of new Set(rows.map(row => row.pool_id)))
      for (const newer of this.#byPool.get(poolId) ?? [])
        if (newer !== but) for (const row of rows) newer.add(row);
  }
}

export const placeOf = (poolId: string, filename: string): string => `${poolId}/${filename}`;
