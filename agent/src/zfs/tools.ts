/** The rim of the driver: the zfs program, the table of mounts, links. A test puts another machine in their place. */
import { spawn } from 'node:child_process';
import { readFile, realpath } from 'node:fs/promises';
import { abortReason } from '@virtkeep/shared/abort';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';

/** What a run of the zfs program gave. */
export interface ZfsAnswer {
  /** Null when a signal ended it. */
  code: number | null;
  stdout: string;
  stderr: string;
}

export interface ZfsTools {
  /**
   * Runs zfs with an argument array, to its end; any exit code is an answer.
   * @throws VirtkeepError zfs_failed when it cannot be run or says too much, timed_out, or the signal's reason
   */
  zfs(args: readonly string[], signal: AbortSignal): Promise<ZfsAnswer>;
  /** The text of /proc/self/mountinfo. @throws VirtkeepError io_failed */
  mountInfo(): Promise<string>;
  /** The path without links, or null when there is no such file. */
  realPath(path: string): Promise<string | null>;
}

/** Making or destroying a dataset takes well under a second on an idle pool; a pool that resilvers is slow. */
const TIMEOUT_MS = 120_000;
const KILL_AFTER_MS = 5_000;
const MAX_OUTPUT_BYTES = 8 * MiB;
const MAX_ERROR_BYTES = 4096;
const CAP_SYS_ADMIN = 1n << 21n;

/**
 * The tools of this machine.
 * @param argv the program and what stands before its arguments; by default the way found by `zfsProgram`
 */
export function localTools(argv?: readonly [string, ...string[]]): ZfsTools {
  return {
    zfs: async (args, signal) =>
      runProgram([...(argv ?? (await zfsProgram())), ...args], args[0] ?? '', signal),
    mountInfo: () => readText('/proc/self/mountinfo'),
    realPath: path => realpath(path).catch(() => null),
  };
}

/**
 * How zfs is run. Snapshots, clones and their mounts need CAP_SYS_ADMIN and the machine's own mount namespace, and the
 * agent's unit has neither: there systemd runs the program, as a unit of its own that ends with it.
 */
async function zfsProgram(): Promise<readonly string[]> {
  const status = await readText('/proc/self/status');
  const effective = BigInt(`0x${status.match(/^CapEff:\s*([0-9a-f]+)/m)?.[1] ?? '0'}`);
  if ((effective & CAP_SYS_ADMIN) !== 0n) return ['zfs'];
  return ['systemd-run', '--quiet', '--collect', '--wait', '--pipe', '--', 'zfs'];
}

async function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(error => {
    throw fromIoError(error, 'reading', path);
  });
}

/** Ends the program on abort or time-out (TERM, then KILL), and waits for its end. */
function runProgram(argv: readonly string[], command: string, signal: AbortSignal): Promise<ZfsAnswer> {
  if (signal.aborted) throw abortReason(signal);
  const failed = (reason: string, cause?: unknown) =>
    new VirtkeepError('zfs_failed', { command, reason }, { cause });
  return new Promise((resolve, reject) => {
    const child = spawn(argv[0]!, argv.slice(1), {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, LC_ALL: 'C' },
    });
    let stopped: VirtkeepError | undefined;
    let killTimer: NodeJS.Timeout | undefined;
    const stop = (why: VirtkeepError) => {
      stopped ??= why;
      child.kill('SIGTERM');
      // what it started may hold the pipes; nobody reads them any more
      child.stdout.destroy();
      child.stderr.destroy();
      killTimer ??= setTimeout(() => child.kill('SIGKILL'), KILL_AFTER_MS);
    };
    const onAbort = () => stop(abortReason(signal));
    signal.addEventListener('abort', onAbort, { once: true });
    const seconds = TIMEOUT_MS / 1000;
    const timer = setTimeout(
      () => stop(new VirtkeepError('timed_out', { operation: `zfs ${command}`, seconds })),
      TIMEOUT_MS,
    );
    const out: Buffer[] = [];
    let outBytes = 0;
    let stderr = '';
    child.stdout.on('data', (chunk: Buffer) => {
      outBytes += chunk.length;
      if (outBytes > MAX_OUTPUT_BYTES) return stop(failed('its output is too large'));
      out.push(chunk);
    });
    child.stderr.on('data', (chunk: Buffer) => {
      if (stderr.length < MAX_ERROR_BYTES) stderr += chunk.toString('utf8');
    });
    const release = () => {
      clearTimeout(timer);
      clearTimeout(killTimer);
      signal.removeEventListener('abort', onAbort);
    };
    child.once('error', error => {
      release();
      reject(failed(`${argv[0]} cannot be run: ${error.message}`, error));
    });
    child.once('close', code => {
      release();
      if (stopped) reject(stopped);
      else resolve({ code, stdout: Buffer.concat(out).toString('utf8'), stderr });
    });
  });
}
