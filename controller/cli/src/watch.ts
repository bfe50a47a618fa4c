/** `--watch`: a command that shows something is run again and again, until Ctrl-C. */
import { setTimeout as sleep } from 'node:timers/promises';
import type { Command } from 'commander';
import { CliError, ExitCode } from './exit-codes.ts';

const DEFAULT_S = 2;
/** Longer a timer does not wait well. */
const MOST_S = 86_400;
const OPTION = '--watch';
const CLEAR = '\u001b[2J\u001b[H';
/** Of the last word of a command. */
const SHOWS = [...['list', 'show', 'queue', 'calendar', 'runs', 'preview', 'retention', 'events', 'audit']];

export interface Watch {
  /** The arguments without the option. */
  args: string[];
  /** Undefined: it was not given. */
  everyS?: number;
}

/** Takes `--watch` and `--watch=<seconds>` out of the arguments; what follows `--` is not ours. */
export function watchOf(args: readonly string[]): Watch {
  const end = args.indexOf('--');
  const own = end < 0 ? args : args.slice(0, end);
  const given = own.find(arg => arg === OPTION || arg.startsWith(`${OPTION}=`));
  if (given === undefined) return { args: [...args] };
  const everyS = given === OPTION ? DEFAULT_S : Number(given.slice(OPTION.length + 1));
  if (!(everyS >= 1 && everyS <= MOST_S))
    throw new CliError(`${given} is no number of seconds from 1 to ${MOST_S}.`, ExitCode.usage);
  return { args: args.filter(arg => arg !== given), everyS };
}

/** Refuses what changes something. */
export function onlyShows(program: Command): void {
  program.hook('preAction', (_program, action) => {
    if (!SHOWS.includes(action.name()))
      throw new CliError(`${OPTION} is for commands that show something, as list.`, ExitCode.usage);
  });
}

/** Runs it until its own end, with a pause after each. @param run false: no further */
export async function again(everyS: number, run: () => Promise<boolean>): Promise<void> {
  const clear = () => process.stdout.isTTY && process.stdout.write(CLEAR);
  for (clear(); await run(); clear()) await sleep(everyS * 1000);
}
