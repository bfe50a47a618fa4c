/** Which files processes open, make and remove, from now on: strace, attached to processes that run, and to their children. */
import { type ChildProcess, spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { isAbsolute, join, normalize } from 'node:path';
import { isRunning } from './processes.ts';
import { waitFor } from './run.ts';

const CALLS =
  'open,openat,openat2,creat,unlink,unlinkat,rename,renameat,renameat2,link,linkat,symlinkat,truncate,execve,rmdir';

export interface Touched {
  call: string;
  /** False when the call failed. */
  succeeded: boolean;
  path: string;
}

export class Recorder {
  readonly #strace: ChildProcess;
  readonly #output: string;

  private constructor(strace: ChildProcess, output: string) {
    this.#strace = strace;
    this.#output = output;
  }

  /** @param output file of the record */
  static async start(pids: readonly number[], output: string): Promise<Recorder> {
    const attach = pids.flatMap(pid => ['-p', String(pid)]);
    const argv = ['-f', '-y', '-qq', '-s', '4096', '-e', `trace=${CALLS}`, '-e', 'signal=none', '-o', output];
    const strace = spawn('strace', [...argv, ...attach], { stdio: 'ignore' });
    await waitFor('strace', () => pids.every(pid => tracerOf(pid) === strace.pid), 20_000, 20);
    return new Recorder(strace, output);
  }

  /** What was done, whether it succeeded or not. */
  async stop(): Promise<Touched[]> {
    const pid = this.#strace.pid!;
    this.#strace.kill('SIGINT');
    await waitFor('the end of strace', () => !isRunning(pid), 20_000, 20);
    return touchedIn(readFileSync(this.#output, 'utf8'));
  }
}

function tracerOf(pid: number): number {
  return Number(readFileSync(`/proc/${pid}/status`, 'utf8').match(/^TracerPid:\s+(\d+)/m)?.[1]);
}

/** Calls that fail often and by design, as a program is looked for along the PATH. */
const TRIES = new Set(['execve', 'open', 'openat', 'openat2']);

/**
 * Every path that a call names, made absolute by the directory that it is told from, and every file that was opened, as the
 * kernel found it. Of a call that another thread's interrupted the end stands elsewhere.
 */
export function touchedIn(record: string): Touched[] {
  const found: Touched[] = [];
  for (const line of record.split('\n')) {
    const call = line.match(/^\d+\s+(?:<\.\.\. )?(\w+)[( ]/)?.[1];
    if (call === undefined) continue;
    const opened = line.match(/ = \d+<(\/[^>]*)>$/)?.[1];
    if (opened !== undefined) found.push({ call, succeeded: true, path: normalize(opened) });
    const succeeded = line.includes('<unfinished') ? !TRIES.has(call) : !/ = -1 E\w+ \(.*$/.test(line);
    for (const [, directory, text] of line.matchAll(/(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"/g)) {
      const path = text!.replaceAll(/\\(.)/g, '$1');
      found.push({
        call,
        succeeded,
        path: normalize(isAbsolute(path) ? path : join(directory ?? '/', path)),
      });
      if (call === 'execve') break;
    }
  }
  return found;
}
