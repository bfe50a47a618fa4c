/** Runs programs in a guest to their end. */
import type { Domain } from '@virtkeep/node-libvirt';
import { sleep } from '@virtkeep/shared/abort';
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import { nameOf } from './failures.ts';
import { askStatus, type Capture, MAX_OUTPUT_BYTES, type ProgramStatus, startProgram } from './programs.ts';

export interface RunOptions {
  path: string;
  args?: readonly string[];
  /** "NAME=value" each, in place of the agent's own environment. */
  env?: readonly string[];
  /** Standard input: the one place for secrets. */
  input?: Buffer | string;
  /** Default `separated`. */
  capture?: Capture;
  /** How long the program may take, ms. */
  timeoutMs: number;
  /** Bytes of each stream that are kept; default and most {@link MAX_OUTPUT_BYTES}. */
  maxOutputBytes?: number;
}

export interface ProgramResult {
  /** Undefined when a signal ended it. */
  exitCode: number | undefined;
  signal: number | undefined;
  out: Buffer;
  err: Buffer;
  /** There was more output than was kept. */
  truncated: boolean;
}

/** Looks at a program come at growing distances, ms: most end at once. */
const FIRST_LOOK_MS = 50;
const LAST_LOOK_MS = 1_000;

/**
 * Runs a program in a guest and waits for its end. A program that takes too long is not killed.
 * @throws VirtkeepError guest_command_timed_out, guest_process_unknown (the agent was started anew); as `guestCommand`
 */
export async function runProgram(
  domain: Domain,
  options: RunOptions,
  signal: AbortSignal,
): Promise<ProgramResult> {
  const { path, args = [], env, input, capture = 'separated', timeoutMs } = options;
  const maxOutputBytes = Math.min(options.maxOutputBytes ?? MAX_OUTPUT_BYTES, MAX_OUTPUT_BYTES);
  const bytes = typeof input === 'string' ? Buffer.from(input) : input;
  const spec = { path, args, env, input: bytes, capture, maxOutputBytes };
  const program = await startProgram(domain, spec, { signal });
  const ask = (limit: AbortSignal) => askStatus(domain, program, { signal: limit });
  const status = await untilExited(ask, timeoutMs, signal);
  if (!status.exited) {
    const command = path.split(/[\\/]/).at(-1)!;
    throw new VirtkeepError('guest_command_timed_out', {
      domain: nameOf(domain),
      command,
      seconds: timeoutMs / 1000,
    });
  }
  return {
    exitCode: status.exitCode,
    signal: status.signal,
    out: status.out,
    err: status.err,
    truncated: status.outTruncated || status.errTruncated,
  };
}

/**
 * Asks until the program has ended or the time is over; the answer then says that it has not. An agent that is frozen, busy
 * or silent in the meantime is asked again: it is the program that counts.
 * @throws what `ask` throws, when the last question was not answered; the abort reason
 */
export async function untilExited(
  ask: (signal: AbortSignal) => Promise<ProgramStatus>,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<ProgramStatus> {
  const endMs = performance.now() + timeoutMs;
  for (let lookMs = FIRST_LOOK_MS; ; lookMs = Math.min(lookMs * 1.5, LAST_LOOK_MS)) {
    const leftMs = endMs - performance.now();
    await sleep(Math.max(0, Math.min(lookMs, leftMs)), signal);
    const isLast = performance.now() >= endMs;
    try {
      const status = await ask(signal);
      if (status.exited || isLast) return status;
    } catch (error) {
      if (hasKey(error, 'guest_frozen', 'guest_agent_busy')) {
        if (isLast) return RUNNING;
      } else if (isLast || !hasKey(error, 'guest_agent_silent')) throw error;
    }
  }
}

const NOTHING = Buffer.alloc(0);
const RUNNING: ProgramStatus = {
  exited: false,
  out: NOTHING,
  err: NOTHING,
  outTruncated: false,
  errTruncated: false,
};
