/**
 * Changes inside of a running guest that nobody takes back, of operations that may end long after them: a restart of the guest is waited
 * for. Whoever is told then that the operation was canceled, or failed, is told of the change, too.
 */
import { hasKey } from '@virtkeep/shared/errors';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import type { Guest } from './guest.ts';

/** A guest in which a program makes such a change. */
export interface ChangingGuest extends Guest {
  /** The program was begun, and is not known to have changed nothing. */
  mayStand(): boolean;
}

/** With these the guest's agent has begun no program, unless they are about one that was begun. */
const REFUSALS = [
  'guest_agent_busy',
  'guest_agent_failed',
  'guest_frozen',
  'guest_command_disabled',
  'guest_command_unknown',
  'guest_argument_invalid',
] as const;

/** Whether the guest's agent has certainly begun nothing. It may fail to tell of a program that goes on. */
const isRefusal = (error: unknown): boolean =>
  hasKey(error, ...REFUSALS) && error.params.command !== 'guest-exec-status';

/**
 * The guest for the one program that makes a change, which is declared before it begins. A program that was broken off may go on, and one
 * that a signal ended was perhaps but the one that had asked another for the change.
 * @param change completes "was told to …"
 * @param isUnchanged asks the guest after a failure of the program, whose last part alone may have failed. Default: nobody knows
 */
export function changing(
  context: OperationContext,
  guest: Guest,
  change: string,
  isUnchanged: () => Promise<boolean> = async () => false,
): ChangingGuest {
  let mayStand = false;
  return {
    ...guest,
    mayStand: () => mayStand,
    run: async program => {
      const effect = { type: 'guest_change', domain: guest.name, change } as const;
      const declared = context.effects.begin(effect, 'failure');
      mayStand = true;
      const refused = () => {
        mayStand = false;
        declared.keep();
      };
      try {
        const result = await guest.run(program);
        const hasFailed = result.exitCode !== 0 && result.exitCode !== null;
        if (hasFailed && (await isUnchanged().catch(() => false))) refused();
        return result;
      } catch (error) {
        if (isRefusal(error)) refused();
        throw error;
      }
    },
  };
}

/** The warning that a change may stand although its operation did not succeed. */
export function stayingChange({ domain, change }: Extract<Effect, { type: 'guest_change' }>): string {
  return `The guest of ${domain} was told to ${change}. That may stand, or come with its next start.`;
}
