/**
 * Notices that saved states were deleted or reverted to without us (by virsh, say) and records when: no archive of before
 * can be extended then (specification 3.2). What was seen last is kept durably, so it is noticed after a stop of the
 * agent too.
 *
 * What virtkeep itself takes away it announces in the domain's metadata before (`removedStates`), and it records
 * deletions and reverts of its own there (`statesDeleted`); neither is taken for somebody else's.
 */
import { type Domain, DomainXml } from '@virtkeep/node-libvirt';
import type { Logger } from '@virtkeep/shared/log';
import { parseDomain } from '../domain-xml/index.ts';
import type { Settings } from '../pools/index.ts';
import { AUTOMATIC_PREFIX, savedStateId, writeMetadata } from '../snapshots/index.ts';
import type { DomainFacts } from './domain-facts.ts';

/** What a look saw of a domain's states. */
export interface SeenStates {
  /** Ids. */
  states: string[];
  /** Id of the current one. */
  current: string | null;
  /** The record of the last deletion, RFC 3339. */
  deleted: string | null;
}

/** Undefined while one of them cannot be read: what becomes of that one shows once it can be, or is gone. */
export function seenStates({ uuid, savedStates, config }: DomainFacts): SeenStates | undefined {
  const lasting = savedStates.filter(({ name }) => !name.startsWith(AUTOMATIC_PREFIX));
  if (lasting.some(({ unread }) => unread)) return undefined;
  const current = lasting.find(state => state.current);
  return {
    states: lasting.map(state => savedStateId(uuid, state)),
    current: current ? savedStateId(uuid, current) : null,
    deleted: config?.metadata.statesDeleted?.toISOString() ?? null,
  };
}

/**
 * Whether somebody else deleted a state, or reverted to one, between two looks. Our records only go forward; one that went
 * back came with the definition of an older time, as libvirt's revert brings it.
 */
export function happenedWithoutUs(
  before: SeenStates,
  now: SeenStates,
  removedStates: readonly string[],
): boolean {
  if (before.deleted !== now.deleted) return before.deleted !== null && (now.deleted ?? '') < before.deleted;
  const isGone = before.states.some(id => !now.states.includes(id) && !removedStates.includes(id));
  const isReverted =
    before.current !== null &&
    now.current !== null &&
    before.current !== now.current &&
    now.states.includes(before.current) &&
    before.states.includes(now.current);
  return isGone || isReverted;
}

/** Undefined while somebody else holds the domain. */
export type HoldDomain = (domainId: string) => (() => void) | undefined;

const keyOf = (domainId: string) => `states.${domainId}`;

export class StateWatch {
  readonly #settings: Settings;
  readonly #log: Logger;

  constructor(settings: Settings, log: Logger) {
    this.#settings = settings;
    this.#log = log;
  }

  /**
   * Compares a domain with how it was; one that an operation holds is left for a later look, since its states come and go then.
   * @param hold keeps operations away from the domain until its result is called; undefined while one holds it
   * @returns true when a deletion was recorded, so the domain is to be read again
   * @throws LibvirtError, VirtkeepError journal_failed
   */
  async look(domain: Domain, facts: DomainFacts, hold: HoldDomain): Promise<boolean> {
    if (!facts.config) return false;
    const before = this.#before(facts.uuid);
    const now = seenStates(facts);
    if (!now || (!before && now.states.length === 0)) return false;
    if (before && JSON.stringify(before) === JSON.stringify(now)) return false;
    const release = hold(facts.uuid);
    if (!release) return false;
    try {
      const removed = facts.config.metadata.removedStates ?? [];
      const isOther = before !== null && happenedWithoutUs(before, now, removed);
      const deleted = isOther ? await this.#record(domain, before, now) : now.deleted;
      this.#settings.set(keyOf(facts.uuid), { ...now, deleted });
      return isOther;
    } finally {
      release();
    }
  }

  #before(domainId: string): SeenStates | null {
    const stored = this.#settings.get(keyOf(domainId)) as Partial<SeenStates> | null | undefined;
    if (!stored || !Array.isArray(stored.states)) return null;
    return { states: stored.states, current: stored.current ?? null, deleted: stored.deleted ?? null };
  }

  /**
   * The metadata is read once more: an operation may have announced the deletion since.
   * @returns the record that belongs to what was seen: the one just made, so that what others do next is not taken for
   * ours
   */
  async #record(domain: Domain, before: SeenStates, now: SeenStates): Promise<SeenStates['deleted']> {
    const { metadata, name } = parseDomain(
      await domain.xml((await domain.isActive()) ? 0 : DomainXml.INACTIVE),
    );
    const deleted = metadata.statesDeleted?.toISOString() ?? null;
    if (!happenedWithoutUs(before, { ...now, deleted }, metadata.removedStates ?? [])) return now.deleted;
    this.#log.warn('a saved state was deleted or reverted to by somebody else', { domain: name });
    const statesDeleted = new Date();
    await writeMetadata(domain, { ...metadata, statesDeleted });
    return statesDeleted.toISOString();
  }
}
