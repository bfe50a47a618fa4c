import { VirtkeepError } from '@virtkeep/shared/errors';
import { failureOf, runProgram } from '@virtkeep/shared/program';
import { GiB, MiB } from '@virtkeep/shared/units';

export interface RunOptions {
  signal: AbortSignal;
  /** 0: no bound of its own (work that grows with the data; the signal ends it). */
  timeoutMs?: number;
  /** The image may be hostile: bound the process's memory and CPU time; of work that grows with the data (`at_length`) its memory alone. */
  untrusted?: boolean | 'at_length';
  /** Exit codes that are answers, not failures. Default: 0 alone. */
  okCodes?: readonly number[];
  /** Called with 0–100 while it runs (adds `-p`; convert, compare, check only). */
  onProgress?: (percent: number) => void;
}

const MAX_OUTPUT_BYTES = 16 * MiB;
/** Generous for any sane image; a hostile L1 table or snapshot list asks for far more. */
const UNTRUSTED_LIMITS = [`--as=${2 * GiB}`, '--core=0'];
const UNTRUSTED_TIME = '--cpu=60';

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
  const { signal, timeoutMs = 0, untrusted, okCodes = [0], onProgress } = options;
  const failed = (reason: string, cause?: unknown) =>
    new VirtkeepError('qemu_img_failed', { command, reason }, { cause });
  const own = ['qemu-img', command, ...(onProgress ? ['-p'] : []), ...args];
  const limits = [...UNTRUSTED_LIMITS, ...(untrusted === 'at_length' ? [] : [UNTRUSTED_TIME])];
  const end = await runProgram(untrusted ? ['prlimit', ...limits, ...own] : own, {
    signal,
    operation: `qemu-img ${command}`,
    timeoutMs,
    maxOutputBytes: MAX_OUTPUT_BYTES,
    ...(onProgress ? { onOutput: piece => reportProgress(piece, onProgress) } : {}),
    failed,
  });
  if (end.code === null || !okCodes.includes(end.code))
    throw failed(failureOf({ ...end, stderr: end.stderr.replaceAll(/^qemu-img: /gm, '') }));
  return end.stdout;
}

/** qemu-img -p writes `    (12.34/100%)\r`. */
function reportProgress(chunk: Buffer, onProgress: (percent: number) => void): void {
  const last = [...chunk.toString('latin1').matchAll(/\((\d+(?:\.\d+)?)\/100%\)/g)].at(-1)?.[1];
  if (last !== undefined) onProgress(Number(last));
}
