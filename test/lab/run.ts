import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process';
import { runProgram } from './program.ts';
import { runSmall } from './run-small.ts';

export interface RunResult {
  stdout: string;
  stderr: string;
}

/** A command that ended with another code than 0; the message carries what it wrote to stderr. */
export class CommandFailed extends Error {
  override readonly name = 'CommandFailed';
  readonly exitCode: number | null;
  readonly stdout: string;
  readonly stderr: string;

  constructor(argv: readonly string[], exitCode: number | null, { stdout, stderr }: RunResult) {
    super(`${argv.join(' ')} ended with ${exitCode ?? 'a signal'}: ${stderr.trim()}`);
    this.exitCode = exitCode;
    this.stdout = stdout;
    this.stderr = stderr;
  }
}

export interface RunOptions {
  cwd?: string;
  env?: NodeJS.ProcessEnv;
  input?: string | Buffer;
  /** Default 120 s; the command is killed then. */
  timeoutMs?: number;
}

/** Runs a program to its end, without a shell. @throws CommandFailed */
export async function run(
  argv: readonly [string, ...string[]],
  options: RunOptions = {},
): Promise<RunResult> {
  const { cwd, env = process.env, input = '', timeoutMs = 120_000 } = options;
  const limits = { timeout: timeoutMs, killSignal: 'SIGKILL', maxBuffer: 64 * 1024 * 1024 } as const;
  const program = { argv, input, options: { ...limits, cwd, env: { ...env } } };
  const { failed, exitCode, stdout, stderr, message } = await (isTestWorker
    ? runSmall(program)
    : runProgram(program));
  if (failed) throw new CommandFailed(argv, exitCode, { stdout, stderr: stderr || message });
  return { stdout, stderr };
}

const isTestWorker = process.env.JEST_WORKER_ID !== undefined;

/** As `run`, and tells by true or false whether the program ended with code 0. */
export async function succeeds(
  argv: readonly [string, ...string[]],
  options: RunOptions = {},
): Promise<boolean> {
  return run(argv, options).then(
    () => true,
    () => false,
  );
}

/** Starts a program that goes on running. It does not keep this process alive. */
export function start(argv: readonly [string, ...string[]], options: SpawnOptions = {}): ChildProcess {
  const child = spawn(argv[0], argv.slice(1), { stdio: 'ignore', ...options });
  child.unref();
  return child;
}

/** Polls until `probe` returns something other than undefined or false. @throws Error after `timeoutMs` */
export async function waitFor<T>(
  what: string,
  probe: () => Promise<T | undefined | false> | T | undefined | false,
  timeoutMs: number,
  intervalMs = 100,
): Promise<T> {
  const deadline = Date.now() + timeoutMs;
  for (;;) {
    const value = await probe();
    if (value !== undefined && value !== false) return value;
    if (Date.now() > deadline) throw new Error(`${what}: not within ${timeoutMs / 1000} s`);
    await new Promise(resolve => setTimeout(resolve, intervalMs));
  }
}
