/** Exit codes of the command; scripts rely on them (docs/cli.md). */
export const ExitCode = {
  ok: 0,
  /** The task, or the request, failed. */
  failed: 1,
  /** The command line was wrong. */
  usage: 2,
  /** Not logged in, or not allowed. */
  notAllowed: 3,
  notFound: 4,
  /** The state of the thing refuses it (HTTP 409). */
  conflict: 5,
  /** The controller or the node cannot be reached, or is overloaded. */
  unreachable: 6,
  /** The task was cancelled. */
  canceled: 7,
  /** Stopped by Ctrl-C; a started task goes on. */
  interrupted: 130,
} as const;

export type ExitCode = (typeof ExitCode)[keyof typeof ExitCode];

/** An error that ends the command with a message and a code. */
export class CliError extends Error {
  override readonly name = 'CliError';
  readonly exitCode: ExitCode;
  /** After so long the same request may be answered, ms; undefined where nobody says so. */
  readonly retryAfterMs: number | undefined;

  constructor(message: string, exitCode: ExitCode = ExitCode.failed, retryAfterMs?: number) {
    super(message);
    this.exitCode = exitCode;
    this.retryAfterMs = retryAfterMs;
  }
}

/** Exit code for the HTTP status of an error answer. */
export function exitCodeFor(status: number): ExitCode {
  if (status === 400) return ExitCode.usage;
  if (status === 401 || status === 403) return ExitCode.notAllowed;
  if (status === 404) return ExitCode.notFound;
  if (status === 409) return ExitCode.conflict;
  if (status === 429 || status === 503 || status === 504) return ExitCode.unreachable;
  return ExitCode.failed;
}
