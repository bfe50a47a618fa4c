/** What an operation in a guest asks of it. Secrets go to a program's standard input, never to its arguments. */
import type { Domain } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { guestCommand, listSshKeys, type OsInfo, osInfo, runProgram } from '../../guest/index.ts';

export interface Program {
  path: string;
  args: readonly string[];
  /** Standard input; it may hold secrets. */
  input?: string;
  /** Bound of its run, ms. Default 60 000. */
  timeoutMs?: number;
  /** Of each of its outputs so much is taken. Default 256 KiB; most {@link LARGE_OUTPUT_BYTES}. */
  maxOutputBytes?: number;
}

export interface ProgramResult {
  /** 127 when the guest has no such program; null when a signal ended it. */
  exitCode: number | null;
  out: string;
  err: string;
}

/** A running guest whose agent answers; its methods throw what `guestCommand` throws. */
export interface Guest {
  /** Name of the domain, for error texts. */
  readonly name: string;
  osInfo(): Promise<OsInfo>;
  /** Runs a program to its end; any exit code is an answer. */
  run(program: Program): Promise<ProgramResult>;
  command(name: string, args?: Record<string, unknown>): Promise<unknown>;
  /** The lines of a user's authorized_keys without comments. */
  sshKeys(user: string): Promise<string[]>;
}

/** Makes the guest of a domain; tests put a scripted one in its place. */
export type OpenGuest = (domain: Domain, name: string, signal: AbortSignal) => Guest;

const PROGRAM_TIMEOUT_MS = 60_000;
const OUTPUT_BYTES = 256 * 1024;
/** A list of ten thousand packages, and no more than an answer of a guest can be. */
export const LARGE_OUTPUT_BYTES = 1_000_000;

/** The guest behind the agent of a domain. */
export const openGuest: OpenGuest = (domain, name, signal) => ({
  name,
  osInfo: () => osInfo(domain, signal),
  command: (command, args = {}) => guestCommand(domain, command, args, { signal }),
  sshKeys: user => listSshKeys(domain, user, signal),
  run: async ({ timeoutMs = PROGRAM_TIMEOUT_MS, maxOutputBytes = OUTPUT_BYTES, ...program }) => {
    const options = { ...program, timeoutMs, maxOutputBytes };
    const { exitCode, out, err } = await runProgram(domain, options, signal);
    return { exitCode: exitCode ?? null, out: out.toString('utf8'), err: err.toString('utf8') };
  },
});

/** Runs a program that must succeed. @returns its standard output @throws VirtkeepError guest_operation_failed */
export async function mustRun(guest: Guest, operation: string, program: Program): Promise<string> {
  const result = await guest.run(program);
  if (result.exitCode === 0) return result.out;
  throw operationFailed(guest, operation, failureText(result, program.input));
}

export function operationFailed(
  guest: Pick<Guest, 'name'>,
  operation: string,
  reason: string,
): VirtkeepError {
  return new VirtkeepError('guest_operation_failed', { operation, domain: guest.name, reason });
}

const MAX_REASON = 500;

/** What a failed program said, on one line and without what was given to it in secret. */
export function failureText({ exitCode, out, err }: ProgramResult, secret?: string): string {
  const said = (err.trim() || out.trim()).replaceAll(/[^\P{C}\n]/gu, '');
  const lines = said.split('\n').map(line => line.trim());
  const text = withoutSecret(lines.filter(Boolean).join('; '), secret).slice(-MAX_REASON);
  return text || (exitCode === null ? 'it was ended by a signal' : `exit code ${exitCode}`);
}

/** A text without the lines of a secret in it, should a program repeat what it was told. */
export function withoutSecret(text: string, secret: string | undefined): string {
  const lines = (secret ?? '').split('\n').filter(line => line !== '');
  return lines.reduce((left, line) => left.replaceAll(line, '***'), text);
}
