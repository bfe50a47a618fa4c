/**
 * Whether a backup can still be extended, by what is known of the file and the inventory of its VM
 * (specification 3.2: deleting any saved state ends it for all backups of the VM). The node's own proof at the
 * extension decides; this is what people are told before. Pure.
 */
import type { Domain } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';

/** What of a file the question depends on. */
export interface ExtensionFacts {
  /** Made with the capability to be extended. */
  capable: boolean;
  /** When its last state was made, RFC 3339; null when that is not known. */
  lastState: string | null;
  /** Saved states that must still be on the VM, the file's own last one first. */
  requiredStates: readonly string[];
  /** Why its node would not extend it however its VM is; empty while it may grow. */
  grown: string;
}

/**
 * Whether a state was deleted or reverted to since the file's last state was made. The state itself tells: it bears the
 * record of deletions of its time. Where it does not (it is gone, or an older agent), the times of the record and the file say
 * which reason to tell.
 */
function hasLost({ lastState, requiredStates }: ExtensionFacts, domain: Domain): boolean {
  const own = domain.savedStates.find(state => state.name === requiredStates[0]);
  if (own?.nothingDeletedSince !== undefined) return !own.nothingDeletedSince;
  const deleted = domain.statesDeleted;
  return deleted !== undefined && lastState !== null && deleted.getTime() >= Date.parse(lastState);
}

/** Why the VM no longer allows an extension; empty when it does. @param domain undefined: no node has it. */
export function whyNotExtendable(facts: ExtensionFacts, domain: Domain | undefined): string {
  if (!facts.capable) return 'it was made without increment capability';
  if (facts.grown !== '') return facts.grown;
  if (!domain) return 'its VM is on no known node';
  if (hasLost(facts, domain)) {
    const on = domain.statesDeleted ? ` on ${domain.statesDeleted.toISOString()}` : '';
    return `a saved state of the VM was deleted or reverted to${on}`;
  }
  const present = new Set(domain.savedStates.map(state => state.name));
  const gone = facts.requiredStates.filter(name => !present.has(name));
  if (gone.length > 0) return `the VM no longer has the saved state ${gone.join(', ')}`;
  return '';
}

/** True when a change of a domain may change what `whyNotExtendable` answers for its backups. */
export function changesExtension(before: Domain | undefined, after: Domain | undefined): boolean {
  const facts = (domain: Domain | undefined) =>
    domain && [
      domain.statesDeleted?.getTime() ?? 0,
      ...domain.savedStates.map(({ name, nothingDeletedSince }) => [name, nothingDeletedSince]),
    ];
  return JSON.stringify(facts(before)) !== JSON.stringify(facts(after));
}
