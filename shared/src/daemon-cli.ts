/** What the command lines of both daemons have in common: how they end. */
import { ConfigError } from './config.ts';
import { isVirtkeepError, reasonOf } from './errors.ts';

/** Exit codes of sysexits.h. */
const EX_USAGE = 64;
const EX_CONFIG = 78;

/** The process is to be started again, as systemd does after any failure. */
export const EX_TEMPFAIL = 75;

/** The command line was wrong. */
export class UsageError extends Error {}

/** A daemon has ended in order, and is to be started again. */
export class StartAgain extends Error {}

/**
 * Runs a command and ends the process: 0, 1 (it failed, with the reason on standard error), 64 (usage), 75 (to be started again) or 78
 * (settings).
 * @param name of the program, for its messages
 */
export async function runDaemonCommand(name: string, command: () => Promise<void>): Promise<never> {
  try {
    await command();
    process.exit(0);
  } catch (error) {
    process.stderr.write(`${name}: ${reasonOf(error)}\n`);
    if (error instanceof UsageError) process.exit(EX_USAGE);
    if (error instanceof StartAgain) process.exit(EX_TEMPFAIL);
    if (error instanceof ConfigError) process.exit(EX_CONFIG);
    if (!isVirtkeepError(error)) process.stderr.write(`${(error as Error).stack}\n`);
    process.exit(1);
  }
}
