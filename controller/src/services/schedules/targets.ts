/** Which things a run is about: a function of the task's selection and of what there is; pure. */
import type { Selection } from './definition.ts';

/** What can be chosen: a VM, or a data pool. */
export interface Candidate {
  id: string;
  name: string;
  nodeIds: readonly string[];
  tags: readonly string[];
}

/** What there is. */
export interface Present {
  candidates: readonly Candidate[];
  hasTag: (id: string) => boolean;
  hasNode: (id: string) => boolean;
}

export interface Targets {
  found: Candidate[];
  /** Ids that the task names to choose by, and nobody has any more: with a tag or a node all go that were chosen by it. */
  missing: string[];
}

export function targetsOf(selection: Selection, { candidates, hasTag, hasNode }: Present): Targets {
  const { entities, tags, nodes } = selection;
  const known = new Set(candidates.map(({ id }) => id));
  const excluded = new Set(selection.exclude_entities);
  const missing = [
    ...entities.filter(id => !known.has(id) && !excluded.has(id)),
    ...tags.filter(id => !hasTag(id)),
    ...nodes.filter(id => !hasNode(id)),
  ];
  return { found: foundOf(selection, candidates), missing };
}

/** By name, so that the order of a run can be foreseen. */
export function foundOf(selection: Selection, candidates: readonly Candidate[]): Candidate[] {
  const { entities, tags, nodes, all } = selection;
  const named = new Set(entities);
  const excluded = new Set(selection.exclude_entities);
  const isChosen = ({ id, nodeIds, tags: borne }: Candidate) =>
    all ||
    named.has(id) ||
    tags.some(tag => borne.includes(tag)) ||
    nodes.some(node => nodeIds.includes(node));
  const isExcluded = ({ id, tags: borne }: Candidate) =>
    excluded.has(id) || selection.exclude_tags.some(tag => borne.includes(tag));
  return candidates.filter(one => isChosen(one) && !isExcluded(one)).sort(byName);
}

const byName = (a: Candidate, b: Candidate): number =>
  a.name === b.name ? (a.id < b.id ? -1 : 1) : a.name < b.name ? -1 : 1;
