/** What the command lines of both daemons have in common: how they end. */
import { ConfigError } from './config.ts';
import { isVirtkeepError, reasonOf } from './errors.ts';

/** Exit codes of sysexits.h. */
const EX_USAGE = 64;
const EX_CONFIG = 78;

/** The command line was wrong. */
export class UsageError extends Error {}

/**
 * Runs a command and ends the process: 0, 1 (it failed, with the reason on standard error), 64 (usage) or 78 (settings).
 * @param name of the program, for its messages
 */
export async function runDaemonCommand(name: string, command: () => Promise<void>): Promise<never> {
  try {
    await command();
    process.exit(0);
  } catch (error) {
    process.stderr.write(`${name}: ${reasonOf(error)}\n`);
    if (error instanceof UsageError) process.exit(EX_USAGE);
    if (error instanceof ConfigError) process.exit(EX_CONFIG);
    if (!isVirtkeepError(error)) process.stderr.write(`${(error as Error).stack}\n`);
    process.exit(1);
  }
}
