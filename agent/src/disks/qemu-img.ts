import { type ChildProcess, spawn } from 'node:child_process';
import { abortReason } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { GiB, MiB } from '@virtkeep/shared/units';

export interface RunOptions {
  signal: AbortSignal;
  /** 0: no bound of its own (work that grows with the data; the signal ends it). */
  timeoutMs?: number;
  /** The image may be hostile: bound the process's memory and CPU time. */
  untrusted?: boolean;
  /** Exit codes that are answers, not failures. Default: 0 alone. */
  okCodes?: readonly number[];
  /** Called with 0–100 while it runs (adds `-p`; convert, compare, check only). */
  onProgress?: (percent: number) => void;
}

const MAX_OUTPUT_BYTES = 16 * MiB;
const KILL_AFTER_MS = 5_000;
/** Generous for any sane image; a hostile L1 table or snapshot list asks for far more. */
const UNTRUSTED_LIMITS = [`--as=${2 * GiB}`, '--cpu=60', '--core=0'];

/**
 * Runs qemu-img with an argument array and returns its standard output. On abort or time-out the process is ended
 * (TERM, then KILL) and waited for, so that nothing writes any more when this has thrown.
 * @throws VirtkeepError qemu_img_failed, timed_out, or the signal's reason
 */
export async function qemuImg(
  command: string,
  args: readonly string[],
  options: RunOptions,
): Promise<string> {
  if (options.signal.aborted) throw abortReason(options.signal);
  const own = ['qemu-img', command, ...(options.onProgress ? ['-p'] : []), ...args];
  const [program, ...rest] = options.untrusted ? ['prlimit', ...UNTRUSTED_LIMITS, ...own] : own;
  const child = spawn(program!, rest, {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, LC_ALL: 'C' },
  });
  const stopper = stopOn(child, command, options);
  try {
    return await outputOf(child, command, options, stopper);
  } finally {
    stopper.release();
  }
}

interface Stopper {
  /** Why the process was ended by us; undefined when it was not. */
  reason(): VirtkeepError | undefined;
  stop(reason: VirtkeepError): void;
  release(): void;
}

function stopOn(child: ChildProcess, command: string, { signal, timeoutMs = 0 }: RunOptions): Stopper {
  let reason: VirtkeepError | undefined;
  let killTimer: NodeJS.Timeout | undefined;
  const stop = (why: VirtkeepError) => {
    if (reason) return;
    reason = why;
    child.kill('SIGTERM');
    killTimer = setTimeout(() => child.kill('SIGKILL'), KILL_AFTER_MS);
  };
  const onAbort = () => stop(abortReason(signal));
  signal.addEventListener('abort', onAbort, { once: true });
  const seconds = timeoutMs / 1000;
  const timer = timeoutMs
    ? setTimeout(
        () => stop(new VirtkeepError('timed_out', { operation: `qemu-img ${command}`, seconds })),
        timeoutMs,
      )
    : undefined;
  return {
    reason: () => reason,
    stop,
    release() {
      clearTimeout(timer);
      clearTimeout(killTimer);
      signal.removeEventListener('abort', onAbort);
    },
  };
}

function outputOf(
  child: ChildProcess,
  command: string,
  options: RunOptions,
  stopper: Stopper,
): Promise<string> {
  const failed = (reason: string, cause?: unknown) =>
    new VirtkeepError('qemu_img_failed', { command, reason }, { cause });
  return new Promise((resolve, reject) => {
    const out: Buffer[] = [];
    let outBytes = 0;
    let errors = '';
    child.stdout!.on('data', (chunk: Buffer) => {
      if (options.onProgress) return reportProgress(chunk, options.onProgress);
      outBytes += chunk.length;
      if (outBytes > MAX_OUTPUT_BYTES) return stopper.stop(failed('its output is too large'));
      out.push(chunk);
    });
    child.stderr!.on('data', (chunk: Buffer) => {
      if (errors.length < 4096) errors += chunk.toString('utf8');
    });
    child.once('error', error => reject(failed(error.message, error)));
    child.once('close', (code, signalName) => {
      const why = stopper.reason();
      if (why) reject(why);
      else if (code !== null && (options.okCodes ?? [0]).includes(code))
        resolve(Buffer.concat(out).toString('utf8'));
      else reject(failed(describeFailure(errors, code, signalName)));
    });
  });
}

function describeFailure(errors: string, code: number | null, signalName: string | null): string {
  const text = errors
    .trim()
    .replaceAll(/^qemu-img: /gm, '')
    .slice(0, 500);
  return text || (signalName ? `ended by ${signalName}` : `exit code ${code}`);
}

/** qemu-img -p writes `    (12.34/100%)\r`. */
function reportProgress(chunk: Buffer, onProgress: (percent: number) => void): void {
  const last = [...chunk.toString('latin1').matchAll(/\((\d+(?:\.\d+)?)\/100%\)/g)].at(-1)?.[1];
  if (last !== undefined) onProgress(Number(last));
}
