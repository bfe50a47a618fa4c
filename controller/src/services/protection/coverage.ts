/** What scheduled tasks promise of VMs, as the protection needs it; who knows the tasks tells it. */
import type { Expectation } from './rules.ts';

export interface CoverageSource {
  /**
   * Of each enabled scheduled task whose runs back this VM up, exclusions of the task considered. It is asked for every VM of a list, and
   * for all VMs of all nodes when they are counted: it answers from memory, in a time that does not grow with the tasks of others.
   */
  expectationsOf(domainId: string): readonly Expectation[];
  /** Another one, told by its identity, whenever the answer for any VM may be another one: all VMs are judged anew only then. */
  readonly version: unknown;
}

const NONE: readonly Expectation[] = [];

export const NO_COVERAGE: CoverageSource = { expectationsOf: () => NONE, version: NONE };
