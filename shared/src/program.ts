/** Programs run with an argument array, never by a shell: bounded in time and output, ended and waited for on abort. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { abortReason } from './abort.ts';
import { VirtkeepError } from './errors.ts';
import { KiB } from './units.ts';

export interface ProgramOptions {
  signal: AbortSignal;
  /** What the error of a time-out calls it: "qemu-img info". */
  operation: string;
  /** 0: no bound of its own; the signal ends it. */
  timeoutMs: number;
  /** Of standard output; more ends the program. */
  maxOutputBytes: number;
  /** Takes standard output piece by piece; nothing is kept then. */
  onOutput?: (piece: Buffer) => void;
  /** Makes the error of a program that cannot be run, or says too much. */
  failed: (reason: string, cause?: unknown) => VirtkeepError;
  /** Its standard input is a pipe that ends with this process, and never before; default: it has none. */
  lifeline?: boolean;
  /** All of its environment; default: that of this process, in plain texts. */
  env?: Record<string, string>;
  /** It is ended with all that it started and that stayed in its group. */
  group?: boolean;
  /** Ends it and all that it started, once. Default: TERM, then KILL, and its pipes are not read any more. */
  stop?: (child: ChildProcess) => void;
}

/** How a program ended; what that means is for the caller to say. */
export interface ProgramEnd {
  /** Null when a signal ended it. */
  code: number | null;
  signalName: string | null;
  stdout: string;
  /** The end of it, at most 64 KiB; of more whole lines only: what a text is does not show any more when its beginning is cut off. */
  stderr: string;
}

/** What `failed` is told of a program that says too much. */
export const TOO_MUCH_OUTPUT = 'its output is too large';

const KILL_AFTER_MS = 5_000;
const MAX_ERROR_BYTES = 64 * KiB;

/**
 * Runs a program to its end; its messages are not translated. When this has thrown, the program does nothing any more.
 * @param argv the program, and its arguments
 * @throws VirtkeepError timed_out, what `failed` makes, or the signal's reason
 */
export async function runProgram(argv: readonly string[], options: ProgramOptions): Promise<ProgramEnd> {
  const { signal, operation, timeoutMs, failed } = options;
  if (signal.aborted) throw abortReason(signal);
  const child = spawn(argv[0]!, argv.slice(1), {
    stdio: [options.lifeline ? 'pipe' : 'ignore', 'pipe', 'pipe'],
    env: options.env ?? { ...process.env, LC_ALL: 'C' },
    detached: options.group === true,
  });
  let stopped: VirtkeepError | undefined;
  const stop = (why: VirtkeepError) => {
    if (stopped) return;
    stopped = why;
    (options.stop ?? (options.group ? terminateGroup : terminate))(child);
  };
  const onAbort = () => stop(abortReason(signal));
  const late = () => stop(new VirtkeepError('timed_out', { operation, seconds: timeoutMs / 1000 }));
  const timer = timeoutMs > 0 ? setTimeout(late, timeoutMs) : undefined;
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    const end = await endOf(child, options, stop);
    if (stopped) throw stopped;
    return end;
  } catch (error) {
    throw error instanceof VirtkeepError
      ? error
      : failed(`it cannot be run: ${(error as Error).message}`, error);
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', onAbort);
  }
}

function endOf(
  child: ChildProcess,
  { maxOutputBytes, onOutput, failed }: ProgramOptions,
  stop: (why: VirtkeepError) => void,
): Promise<ProgramEnd> {
  return new Promise((resolve, reject) => {
    const out: Buffer[] = [];
    let [outBytes, stderr, isCut] = [0, '', false];
    child.stdout!.on('data', (piece: Buffer) => {
      if (onOutput) return onOutput(piece);
      outBytes += piece.length;
      if (outBytes > maxOutputBytes) return stop(failed(TOO_MUCH_OUTPUT));
      out.push(piece);
    });
    child.stderr!.on('data', (piece: Buffer) => {
      stderr += piece.toString('utf8');
      isCut ||= stderr.length > MAX_ERROR_BYTES;
      stderr = stderr.slice(-MAX_ERROR_BYTES);
    });
    child.once('error', reject);
    child.once('close', (code, signalName) => {
      const stdout = Buffer.concat(out).toString('utf8');
      resolve({ code, signalName, stdout, stderr: isCut ? withoutFirstLine(stderr) : stderr });
    });
  });
}

/** Nothing when there is one only. */
const withoutFirstLine = (text: string): string => /[\r\n](.*)$/s.exec(text)?.[1] ?? '';

function terminate(child: ChildProcess): void {
  end(child, signalName => child.kill(signalName));
}

/** Who did not go with it is killed when it has ended. */
function terminateGroup(child: ChildProcess): void {
  const kill = (signalName: NodeJS.Signals) => {
    try {
      process.kill(-child.pid!, signalName);
    } catch {
      // nobody is left
    }
  };
  child.once('close', () => kill('SIGKILL'));
  end(child, kill);
}

function end(child: ChildProcess, kill: (signalName: NodeJS.Signals) => void): void {
  kill('SIGTERM');
  const timer = setTimeout(() => kill('SIGKILL'), KILL_AFTER_MS);
  child.once('close', () => clearTimeout(timer));
  // what it started may hold the pipes; nobody reads them any more
  child.stdout!.destroy();
  child.stderr!.destroy();
}

/** Why a program failed, in a line: what it said first, else how it ended. */
export function failureOf({ stderr, code, signalName }: ProgramEnd): string {
  return stderr.trim().slice(0, 500) || (signalName ? `ended by ${signalName}` : `exit code ${code}`);
}

const CAP_SYS_ADMIN = 1n << 21n;

/** Whether this process may mount and make namespaces, and so may what it starts. The agent's own unit may not. */
export async function isSysAdmin(): Promise<boolean> {
  const status = await readFile('/proc/self/status', 'utf8');
  const effective = /^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? '0';
  return (BigInt(`0x${effective}`) & CAP_SYS_ADMIN) !== 0n;
}
