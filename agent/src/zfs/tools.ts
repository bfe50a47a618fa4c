/** The rim of the driver: the zfs program, the table of mounts, links. A test puts another machine in their place. */
import { readFile, realpath } from 'node:fs/promises';
import { fromIoError, VirtkeepError } from '@virtkeep/shared/errors';
import { isSysAdmin, runProgram } from '@virtkeep/shared/program';
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
const MAX_OUTPUT_BYTES = 8 * MiB;

/**
 * The tools of this machine.
 * @param argv the program and what stands before its arguments; by default the way found by `zfsProgram`
 */
export function localTools(argv?: readonly [string, ...string[]]): ZfsTools {
  return {
    zfs: async (args, signal) => {
      const command = args[0] ?? '';
      return runProgram([...(argv ?? (await zfsProgram())), ...args], {
        signal,
        operation: `zfs ${command}`,
        timeoutMs: TIMEOUT_MS,
        maxOutputBytes: MAX_OUTPUT_BYTES,
        failed: (reason, cause) => new VirtkeepError('zfs_failed', { command, reason }, { cause }),
      });
    },
    mountInfo: () => readText('/proc/self/mountinfo'),
    realPath: path => realpath(path).catch(() => null),
  };
}

/**
 * How zfs is run. Snapshots, clones and their mounts need CAP_SYS_ADMIN and the machine's own mount namespace, and the
 * agent's unit has neither: there systemd runs the program, as a unit of its own that ends with it.
 */
async function zfsProgram(): Promise<readonly string[]> {
  if (await isSysAdmin()) return ['zfs'];
  return ['systemd-run', '--quiet', '--collect', '--wait', '--pipe', '--', 'zfs'];
}

async function readText(path: string): Promise<string> {
  return readFile(path, 'utf8').catch(error => {
    throw fromIoError(error, 'reading', path);
  });
}
