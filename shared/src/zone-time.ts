/** What a clock on the wall of a time zone shows: by the rules that the runtime knows (Intl), asked rarely; pure. */

const MINUTE_MS = 60_000;
const DAY_MS = 86_400_000;
/** No zone has changed its offset twice within so short a time. */
const BUCKET_MS = 7 * DAY_MS;

/** A date and time of day without a zone. */
export interface WallTime {
  year: number;
  /** 1–12. */
  month: number;
  day: number;
  hour: number;
  minute: number;
  second: number;
}

export class ZoneTime {
  readonly zone: string;
  readonly #format: Intl.DateTimeFormat;
  /** By the number of the bucket its offset, in ms; or where it changes, and to what. */
  readonly #buckets = new Map<number, { before: number; change: number; after: number }>();

  /** @param zone an IANA name. @throws RangeError when the runtime knows no such zone */
  constructor(zone: string) {
    this.zone = zone;
    this.#format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone,
      calendar: 'iso8601',
      numberingSystem: 'latn',
      hourCycle: 'h23',
      year: 'numeric',
      month: '2-digit',
      day: '2-digit',
      hour: '2-digit',
      minute: '2-digit',
      second: '2-digit',
    });
  }

  /** Milliseconds by which the zone's clocks are ahead of UTC at an instant (ms since 1970). */
  offsetAt(instant: number): number {
    const bucket = this.#bucketOf(Math.floor(instant / BUCKET_MS));
    return instant < bucket.change ? bucket.before : bucket.after;
  }

  #bucketOf(number: number): { before: number; change: number; after: number } {
    let bucket = this.#buckets.get(number);
    if (bucket === undefined) {
      bucket = this.#bucket(number * BUCKET_MS);
      this.#buckets.set(number, bucket);
    }
    return bucket;
  }

  /** What the zone's clocks show at an instant (ms since 1970). */
  wallTime(instant: number): WallTime {
    const shown = new Date(instant + this.offsetAt(instant));
    return {
      year: shown.getUTCFullYear(),
      month: shown.getUTCMonth() + 1,
      day: shown.getUTCDate(),
      hour: shown.getUTCHours(),
      minute: shown.getUTCMinutes(),
      second: shown.getUTCSeconds(),
    };
  }

  /**
   * The instant (ms since 1970) at which the zone's clocks show this; of a time that they show twice the first, and of one that they leave
   * out as long after the change as it is after its beginning.
   */
  instantOf({ year, month, day, hour, minute, second }: WallTime): number {
    const shown = Date.UTC(year, month - 1, day, hour, minute, second);
    const before = shown - this.offsetAt(shown - DAY_MS);
    if (before + this.offsetAt(before) === shown) return before;
    const after = shown - this.offsetAt(shown + DAY_MS);
    return after + this.offsetAt(after) === shown ? after : before;
  }

  /**
   * The first instant (ms since 1970) at which the zone's clocks show this or, of a time that they leave out, are put past it.
   * @param shown the date and time as if they were of UTC, in ms since 1970
   */
  firstInstantOf(shown: number): number {
    const before = shown - this.offsetAt(shown - DAY_MS);
    if (before + this.offsetAt(before) === shown) return before;
    const after = shown - this.offsetAt(shown + DAY_MS);
    return after + this.offsetAt(after) === shown ? after : this.#changeBefore(before);
  }

  /** @param instant shortly after a change */
  #changeBefore(instant: number): number {
    const number = Math.floor(instant / BUCKET_MS);
    const { change } = this.#bucketOf(number);
    return change <= instant ? change : this.#bucketOf(number - 1).change;
  }

  #bucket(start: number): { before: number; change: number; after: number } {
    const before = this.#ask(start);
    const after = this.#ask(start + BUCKET_MS);
    let [low, high] = [start, start + BUCKET_MS];
    // offsets change on whole minutes
    while (before !== after && high - low > MINUTE_MS) {
      const middle = low + Math.floor((high - low) / 2 / MINUTE_MS) * MINUTE_MS;
      if (this.#ask(middle) === before) low = middle;
      else high = middle;
    }
    return { before, change: high, after };
  }

  #ask(instant: number): number {
    const shown: Record<string, number> = {};
    for (const { type, value } of this.#format.formatToParts(instant)) shown[type] = Number(value);
    const { year, month, day, hour, minute, second } = shown as unknown as WallTime;
    return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(instant / 1000) * 1000;
  }
}
