/**
 * What the other nodes use. A file of a shared pool, a LUN and a VM's UUID may be in use on another node, which this
 * node's libvirt does not know; only the controller sees all of them.
 */

/** What is asked for. */
export type Thing =
  /** A file of a data pool: its path below the pool's directory. */
  | { kind: 'file'; poolId: string; path: string }
  /** A block device or network disk outside of pools, as `deviceKeysOf` names it the same on all nodes. */
  | { kind: 'device'; key: string }
  /** A VM, by its UUID; its thin clones use it, too. */
  | { kind: 'domain'; id: string };

export interface Use {
  nodeName: string;
  domainId: string;
  domainName: string;
  /** The domain runs or is suspended there; of a file: and has it in its live or next definition, not in a saved state alone. */
  active?: boolean;
  /** Of a domain that runs nowhere: this node is the one on which it was last seen to run. */
  lastRanHere?: boolean;
}

/** `unknown` when not every node that could use it has answered: treat it as used wherever something would be removed. */
export type Answer = { kind: 'unused' } | { kind: 'used'; by: Use } | { kind: 'unknown'; reason: string };

export interface OtherNodes {
  /** Asks now, never a cache. Does not reject but when the signal fires. */
  whoUses(things: readonly Thing[], signal: AbortSignal): Promise<Answer[]>;
}

/** An agent that no controller listens to knows of nothing elsewhere. */
export const NO_OTHER_NODES: OtherNodes = {
  whoUses: async things => things.map(() => ({ kind: 'unknown', reason: 'no controller was asked' })),
};
