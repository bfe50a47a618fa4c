import { uuidV5 } from '@virtkeep/shared/ids';

/** Id of a saved state: stable as long as it exists, another when one of the same name is made later. */
export function savedStateId(domainId: string, state: { name: string; createdUnix: number }): string {
  return uuidV5(domainId, `${state.createdUnix} ${state.name}`);
}
