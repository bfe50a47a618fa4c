/** The commands of guest agents as the product offers them: arguments are checked, answers bounded, open files and freezes followed up. */
import type { Domain } from '@virtkeep/node-libvirt';
import { hasKey } from '@virtkeep/shared/errors';
import { checkArguments } from './commands.ts';
import { execCommand, execStatusCommand } from './exec-command.ts';
import { ExecTable } from './exec-table.ts';
import { nameOf } from './failures.ts';
import type { FileHandles } from './file-handles.ts';
import type { FreezeWatch } from './freeze-watch.ts';
import { wholeOsInfo } from './os.ts';
import { guestCommand } from './session.ts';

export interface GuestCommandsDependencies {
  files: FileHandles;
  freezes: FreezeWatch;
}

export interface CommandOptions {
  /** For guest-exec the time to wait for the program's end; else for the answer. */
  timeoutMs: number;
  signal: AbortSignal;
}

export class GuestCommands {
  readonly #dependencies: GuestCommandsDependencies;
  readonly #programs = new ExecTable();

  constructor(dependencies: GuestCommandsDependencies) {
    this.#dependencies = dependencies;
  }

  /**
   * Runs a command.
   * @param args as a user gave them: checked here
   * @returns its value; {} for one that has no answer when it succeeded
   * @throws VirtkeepError guest_argument_invalid, guest_process_unknown; as `guestCommand`
   */
  async run(
    domain: Domain,
    command: string,
    args: Record<string, unknown>,
    options: CommandOptions,
  ): Promise<unknown> {
    checkArguments(nameOf(domain), command, args);
    if (command === 'guest-exec') return execCommand(this.#programs, domain, args, options);
    if (command === 'guest-exec-status')
      return execStatusCommand(this.#programs, domain, args.pid as number, options.signal);
    if (command.startsWith('guest-file-'))
      return this.#dependencies.files.run(domain, command, args, options);
    if (command.startsWith('guest-fsfreeze-freeze')) return this.#freeze(domain, command, args, options);
    const askedAtMs = performance.now();
    const result = await guestCommand(domain, command, args, options);
    if (command === 'guest-fsfreeze-thaw') this.#dependencies.freezes.thawed(domain.uuid);
    if (command === 'guest-fsfreeze-status')
      this.#dependencies.freezes.seen(domain.uuid, result === 'frozen', askedAtMs);
    return command === 'guest-get-osinfo' ? wholeOsInfo(result) : result;
  }

  /** The freeze is noted before it happens, so that a crash in between does not leave the guest frozen. */
  async #freeze(
    domain: Domain,
    command: string,
    args: Record<string, unknown>,
    options: CommandOptions,
  ): Promise<unknown> {
    const { freezes } = this.#dependencies;
    const wasFrozen = freezes.since(domain.uuid) !== undefined;
    freezes.frozen(domain.uuid);
    try {
      const result = await guestCommand(domain, command, args, options);
      // again: a look at the guest from before may have taken it off the list, or may be about to
      freezes.frozen(domain.uuid);
      return result;
    } catch (error) {
      if (!wasFrozen && !hasKey(error, ...MAY_BE_FROZEN)) freezes.thawed(domain.uuid);
      throw error;
    }
  }
}

/** After these nobody knows whether the guest was frozen: it is thawed after the limit. */
const MAY_BE_FROZEN = [
  'guest_command_timed_out',
  'guest_agent_silent',
  'guest_agent_disconnected',
  'guest_frozen',
  'libvirt_unreachable',
  'libvirt_failed',
  'canceled',
] as const;
