/** guest-exec and guest-exec-status as the product offers them (specification 2.6): the outputs decoded, the end waited for. */
import type { Domain } from '@virtkeep/node-libvirt';
import { isVirtkeepError } from '@virtkeep/shared/errors';
import { untilExited } from './exec.ts';
import type { ExecTable } from './exec-table.ts';
import { type Capture, MAX_OUTPUT_BYTES, type ProgramStatus, startProgram } from './programs.ts';

/** Unix has fewer signals than this; codes of Windows' exceptions are far above. */
const SIGNALLED = 128;

/** What the fields say stands in the specification, 2.6; those after `exited` are there only when they apply. */
export interface ExecReply {
  exited: boolean;
  pid?: number;
  /** Always there when it has exited; see {@link exitCodeOf}. */
  exitcode?: number;
  /** The signal that ended it; on Windows the code of the exception. */
  signal?: number;
  'out-data'?: string;
  'err-data'?: string;
  /** The data are not text, and in base64. */
  'out-encoding'?: 'base64';
  'err-encoding'?: 'base64';
  /** There was more than {@link MAX_OUTPUT_BYTES}, or the guest offers no way to bound it and none was taken. */
  'out-truncated'?: true;
  'err-truncated'?: true;
}

export interface ExecOptions {
  /** From its start on; what the guest takes until it is started comes before. */
  timeoutMs: number;
  signal: AbortSignal;
}

/**
 * Starts a program and waits for its end.
 * @param args checked arguments of guest-exec. Output is captured unless `capture-output` is false: the specification's
 *   reply has it without its being asked for
 * @returns with the time over, or when the guest is heard of no more, its pid and that it has not exited
 * @throws VirtkeepError as `guestCommand`, when it was not started; canceled
 */
export async function execCommand(
  table: ExecTable,
  domain: Domain,
  args: Record<string, unknown>,
  { timeoutMs, signal }: ExecOptions,
): Promise<ExecReply> {
  const {
    path,
    arg = [],
    env,
    'input-data': input,
  } = args as {
    path: string;
    arg?: string[];
    env?: string[];
    'input-data'?: string;
  };
  const spec = {
    path,
    args: arg,
    env,
    input: input === undefined ? undefined : Buffer.from(input, 'base64'),
    capture: captureOf(args['capture-output']),
    maxOutputBytes: MAX_OUTPUT_BYTES,
  };
  const program = await startProgram(domain, spec, { signal });
  table.add(domain.uuid, program);
  const ask = (limit: AbortSignal) => table.status(domain, program.pid, limit);
  const status = await untilExited(ask, timeoutMs, signal).catch((error: unknown) => {
    // who is told of a failure would start it once more
    if (signal.aborted || !isVirtkeepError(error)) throw error;
    return undefined;
  });
  if (!status?.exited) return { pid: program.pid, exited: false };
  return replyOf(status);
}

/** @throws VirtkeepError guest_process_unknown; as `guestCommand` */
export async function execStatusCommand(
  table: ExecTable,
  domain: Domain,
  pid: number,
  signal: AbortSignal,
): Promise<ExecReply> {
  return replyOf(await table.status(domain, pid, signal));
}

function captureOf(value: unknown): Capture {
  if (value === false) return 'none';
  return value === undefined || value === true ? 'separated' : (value as Capture);
}

/** The reply about a program. `out-data` of an ended one is always there, be it empty. */
export function replyOf(status: ProgramStatus): ExecReply {
  if (!status.exited) return { exited: false };
  const out = textOf(status.out, status.outTruncated);
  const err = textOf(status.err, status.errTruncated);
  return {
    exitcode: exitCodeOf(status),
    ...(status.signal === undefined ? {} : { signal: status.signal }),
    'out-data': out.data,
    ...(err.data === '' ? {} : { 'err-data': err.data }),
    exited: true,
    ...(out.isText ? {} : { 'out-encoding': 'base64' as const }),
    ...(err.isText ? {} : { 'err-encoding': 'base64' as const }),
    ...(status.outTruncated ? { 'out-truncated': true as const } : {}),
    ...(status.errTruncated ? { 'err-truncated': true as const } : {}),
  };
}

/**
 * A program that a signal ended has the code that a shell gives it, one that an exception of Windows ended that exception's;
 * -1 when the guest tells neither.
 */
function exitCodeOf({ exitCode, signal }: ProgramStatus): number {
  if (exitCode !== undefined) return exitCode;
  if (signal === undefined) return -1;
  return signal > 0 && signal < SIGNALLED ? SIGNALLED + signal : signal;
}

/** UTF-8 without NUL is text. A cut may have gone through a character: its rest is dropped. */
function textOf(bytes: Buffer, isCut: boolean): { data: string; isText: boolean } {
  const whole = isCut ? bytes.subarray(0, lastCharacterEnd(bytes)) : bytes;
  try {
    const data = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(whole);
    if (!data.includes('\0')) return { data, isText: true };
  } catch {
    // not UTF-8
  }
  return { data: bytes.toString('base64'), isText: false };
}

/** Where the last complete UTF-8 character ends, when it is within the last three bytes. */
function lastCharacterEnd(bytes: Buffer): number {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back]!;
    if ((byte & 0xc0) === 0x80) continue;
    const length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? bytes.length - back : bytes.length;
  }
  return bytes.length;
}
