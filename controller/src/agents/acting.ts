/** Whether this controller acts: of several that share a database, one does at a time (`controller/src/cluster/`). */
export interface Acting {
  /**
   * Looked at right before anything is asked of a node and before each answer: a process may have been stopped at any instruction for any
   * time. Does not return when another controller may have taken over: then this one ends.
   * @returns the epoch of this controller; undefined when it is alone
   */
  mustAct(): number | undefined;
  /** A node has seen a controller of this epoch, which is higher than ours. */
  sawHigher(epoch: number): void;
}

export const ALONE: Acting = { mustAct: () => undefined, sawHigher: () => {} };
