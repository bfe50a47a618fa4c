/** Which nodes have come, gone or changed since the last look: what is told of a VM depends on its node, which changes for all of them at once. */
export class SeenNodes {
  readonly #nodes: () => Iterable<string>;
  readonly #stateOf: (nodeId: string) => string;
  #seen = new Map<string, string>();

  constructor(nodes: () => Iterable<string>, stateOf: (nodeId: string) => string) {
    this.#nodes = nodes;
    this.#stateOf = stateOf;
  }

  /** Ids of those that are otherwise than at the last look. */
  changed(): string[] {
    const now = new Map<string, string>();
    const changed: string[] = [];
    for (const id of this.#nodes()) {
      const state = this.#stateOf(id);
      now.set(id, state);
      if (this.#seen.get(id) !== state) changed.push(id);
    }
    for (const id of this.#seen.keys()) if (!now.has(id)) changed.push(id);
    this.#seen = now;
    return changed;
  }
}
