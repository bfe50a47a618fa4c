import type { SavedState as SavedStateMessage } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import type { SavedState } from './chain.ts';
import { parseIncrementTag } from './increment-tag.ts';
import { savedStateId } from './state-id.ts';

/** What a record needs of a state. */
export type StateFacts = Pick<
  SavedState,
  | 'name'
  | 'parent'
  | 'createdUnix'
  | 'deletedBefore'
  | 'current'
  | 'memory'
  | 'description'
  | 'overlays'
  | 'internalDisks'
>;

/**
 * A saved state in the words of the gRPC contract.
 * @param record the domain's record of deletions: then the state also says whether anything was deleted since
 */
export function savedStateMessage(
  domainId: string,
  state: StateFacts,
  record?: { statesDeleted: Date | undefined },
): SavedStateMessage {
  return {
    id: savedStateId(domainId, state),
    name: state.name,
    parent: state.parent ?? '',
    created: new Date(state.createdUnix * 1000),
    current: state.current,
    memory: state.memory !== 'no',
    description: state.description,
    backupId: parseIncrementTag(state.description)?.backupId ?? '',
    targets: [...Object.keys(state.overlays), ...state.internalDisks].sort(),
    ...(record && { nothingDeletedSince: isSameTime(record.statesDeleted, state.deletedBefore) }),
  };
}

const isSameTime = (a: Date | undefined, b: Date | undefined): boolean => a?.getTime() === b?.getTime();
