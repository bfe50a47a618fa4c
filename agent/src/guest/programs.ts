/** Programs in a guest: started with a bounded output, asked for their end. Nothing is kept here. */
import type { Domain } from '@virtkeep/node-libvirt';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { nameOf } from './failures.ts';
import { startsAsWindows } from './os.ts';
import { type OutputLimits, posixArguments, SHELL } from './posix-wrapper.ts';
import { type CommandOptions, guestCommand } from './session.ts';
import { MAX_COMMAND_LINE, POWERSHELL, windowsArguments } from './windows-wrapper.ts';

export type Capture = 'none' | 'stdout' | 'stderr' | 'separated' | 'merged';

export interface ProgramSpec {
  /** Absolute, or a name that the guest finds by its PATH. */
  path: string;
  args: readonly string[];
  /** "NAME=value" each, in place of the agent's own environment. */
  env?: readonly string[] | undefined;
  /** What comes on standard input; secrets go here and nowhere else. */
  input?: Buffer | undefined;
  capture: Capture;
  /** Bytes of each stream that are kept, at most {@link MAX_OUTPUT_BYTES}. */
  maxOutputBytes: number;
}

export interface StartedProgram {
  pid: number;
  /** Output is captured, up to so many bytes of each stream. */
  capturedBytes: number;
  /** The caller asked for output, but it is not captured: the guest offers no way to bound it. */
  isDropped: boolean;
}

/** How a program ended, or that it has not. */
export interface ProgramStatus {
  exited: boolean;
  /** Of a program that ended by itself. */
  exitCode?: number;
  /** The number of the signal that ended it; on Windows the code of the exception. */
  signal?: number;
  out: Buffer;
  err: Buffer;
  outTruncated: boolean;
  errTruncated: boolean;
}

/** Both streams of such length, in base64, are 2.7 MB: libvirt takes answers of 3.0 MB and refuses 3.2. */
export const MAX_OUTPUT_BYTES = 1_000_000;

/**
 * Starts a program. Its output is bounded before it is asked for, by a shell (Unix) or PowerShell (Windows) that runs it. A
 * guest without these runs the program as it is, and its output is not captured: nobody could say how much it would be.
 * @throws VirtkeepError as `guestCommand`; guest_argument_invalid
 */
export async function startProgram(
  domain: Domain,
  spec: ProgramSpec,
  options: CommandOptions = {},
): Promise<StartedProgram> {
  if (spec.capture !== 'none') {
    try {
      const wrapped = await wrappedRequest(domain, spec, options.signal);
      const pid = await start(domain, wrapped, options);
      return { pid, capturedBytes: spec.maxOutputBytes, isDropped: false };
    } catch (error) {
      if (!isWithoutShell(error)) throw error;
    }
  }
  const plain = { path: spec.path, arg: spec.args, ...(spec.env ? { env: spec.env } : {}), ...inputOf(spec) };
  const pid = await start(domain, plain, options);
  return { pid, capturedBytes: 0, isDropped: spec.capture !== 'none' };
}

async function wrappedRequest(
  domain: Domain,
  spec: ProgramSpec,
  signal: AbortSignal | undefined,
): Promise<Record<string, unknown>> {
  const limits = limitsOf(spec);
  const common = { ...inputOf(spec), 'capture-output': true };
  if (!(await startsAsWindows(domain, spec.path, signal))) {
    const arg = posixArguments(spec.path, spec.args, limits);
    return { path: SHELL, arg, ...(spec.env ? { env: spec.env } : {}), ...common };
  }
  const arg = windowsArguments({ ...spec, hasInput: spec.input !== undefined }, limits);
  if (arg.join(' ').length > MAX_COMMAND_LINE) {
    const reason = 'is longer than a Windows guest takes';
    throw new VirtkeepError('guest_argument_invalid', { command: 'guest-exec', field: 'arg', reason });
  }
  return { path: POWERSHELL, arg, ...common };
}

/** One byte more than is kept shows that there was more. */
function limitsOf({ capture, maxOutputBytes }: ProgramSpec): OutputLimits {
  const limit = Math.min(maxOutputBytes, MAX_OUTPUT_BYTES) + 1;
  return {
    out: capture === 'stderr' ? 0 : limit,
    err: capture === 'stdout' || capture === 'merged' ? 0 : limit,
    merged: capture === 'merged',
  };
}

const inputOf = ({ input }: ProgramSpec) => (input ? { 'input-data': input.toString('base64') } : {});

async function start(
  domain: Domain,
  request: Record<string, unknown>,
  options: CommandOptions,
): Promise<number> {
  const { timeoutMs: _, ...rest } = options;
  const answer = (await guestCommand(domain, 'guest-exec', request, rest)) as { pid?: unknown };
  if (typeof answer?.pid === 'number') return answer.pid;
  throw nonsense(domain, 'guest-exec');
}

/** glib says so when the program itself cannot be started; here that is the shell. */
function isWithoutShell(error: unknown): boolean {
  return (
    hasKey(error, 'guest_agent_failed') &&
    /execute (child|helper) p|CreateProcess/i.test(error.params.reason ?? '')
  );
}

/**
 * Asks once for the state of a program. The agent reports the end of a program only once.
 * @throws VirtkeepError guest_process_unknown; as `guestCommand`
 */
export async function askStatus(
  domain: Domain,
  program: StartedProgram,
  options: CommandOptions = {},
): Promise<ProgramStatus> {
  const { pid } = program;
  try {
    return statusOf(await guestCommand(domain, 'guest-exec-status', { pid }, options), program);
  } catch (error) {
    if (!hasKey(error, 'guest_agent_failed') || !/'pid'|not found/i.test(error.params.reason ?? ''))
      throw error;
    throw new VirtkeepError('guest_process_unknown', { domain: nameOf(domain), pid }, { cause: error });
  }
}

/** Reads an answer of guest-exec-status; a field of the wrong type counts as absent. */
export function statusOf(
  answer: unknown,
  { capturedBytes, isDropped }: Omit<StartedProgram, 'pid'>,
): ProgramStatus {
  const fields = (typeof answer === 'object' && answer !== null ? answer : {}) as Record<string, unknown>;
  const number = (name: string) => (typeof fields[name] === 'number' ? (fields[name] as number) : undefined);
  const stream = (name: string) => {
    const data = Buffer.from(typeof fields[name] === 'string' ? (fields[name] as string) : '', 'base64');
    return { bytes: data.subarray(0, capturedBytes), isCut: data.length > capturedBytes };
  };
  const [out, err] = [stream('out-data'), stream('err-data')];
  const [exitCode, signal] = [number('exitcode'), number('signal')];
  return {
    exited: fields.exited === true,
    ...(exitCode === undefined ? {} : { exitCode }),
    ...(signal === undefined ? {} : { signal }),
    out: out.bytes,
    err: err.bytes,
    outTruncated: isDropped || out.isCut || fields['out-truncated'] === true,
    errTruncated: isDropped || err.isCut || fields['err-truncated'] === true,
  };
}

/** An answer that is none. */
export function nonsense(domain: Domain, command: string): VirtkeepError {
  const reason = 'its answer is not what the command answers';
  return new VirtkeepError('guest_agent_failed', { domain: nameOf(domain), command, reason });
}
