import type { Progress } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { ProgressReporter } from '../workflows/context.ts';

/** At most four events a second per operation. */
const PUBLISH_INTERVAL_MS = 250;
/** The rate is the mean over so long. */
const RATE_WINDOW_MS = 5_000;

/**
 * Progress of one operation: takes thousands of reports a second, calls `publish` at most four times a second (a new
 * phase at once), and knows the rate over the last seconds.
 */
export class ProgressMeter implements ProgressReporter {
  #phase = '';
  #bytesDone = 0;
  #bytesTotal = 0;
  #message = '';
  #samples: { atMs: number; bytes: number }[] = [];
  #timer: NodeJS.Timeout | undefined;
  readonly #publish: () => void;
  readonly #nowMs: () => number;

  constructor(publish: () => void, nowMs: () => number = () => performance.now()) {
    this.#publish = publish;
    this.#nowMs = nowMs;
  }

  get phase(): string {
    return this.#phase;
  }

  /** Enters a phase: byte counts start anew. Published at once. */
  begin(phase: string): void {
    this.#phase = phase;
    this.#bytesDone = 0;
    this.#bytesTotal = 0;
    this.#message = '';
    this.#samples = [{ atMs: this.#nowMs(), bytes: 0 }];
    this.#flush();
  }

  total(bytes: number): void {
    this.#bytesTotal = bytes;
    this.#publishSoon();
  }

  done(bytes: number): void {
    this.#bytesDone = bytes;
    this.#publishSoon();
  }

  message(text: string): void {
    this.#message = text;
    this.#publishSoon();
  }

  snapshot(): Progress {
    return {
      phase: this.#phase,
      bytesDone: toUint(this.#bytesDone),
      bytesTotal: toUint(this.#bytesTotal),
      rate: toUint(this.#rate()),
      message: this.#message,
    };
  }

  /** No more events, whatever is reported. */
  stop(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
  }

  #publishSoon(): void {
    this.#timer ??= setTimeout(() => this.#flush(), PUBLISH_INTERVAL_MS).unref();
  }

  #flush(): void {
    this.stop();
    const atMs = this.#nowMs();
    this.#samples.push({ atMs, bytes: this.#bytesDone });
    while (this.#samples.length > 2 && atMs - this.#samples[0]!.atMs > RATE_WINDOW_MS) this.#samples.shift();
    this.#publish();
  }

  #rate(): number {
    const first = this.#samples[0];
    const last = this.#samples.at(-1);
    if (!first || !last || last.atMs <= first.atMs) return 0;
    return ((last.bytes - first.bytes) * 1000) / (last.atMs - first.atMs);
  }
}

function toUint(value: number): bigint {
  return Number.isFinite(value) ? BigInt(Math.max(0, Math.round(value))) : 0n;
}
