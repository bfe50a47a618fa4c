/** How a call starts an operation, the same way for all: a repeated call is answered before anything else is looked at. */
import { throwIfAborted } from '@virtkeep/shared/abort';
import { EntityClass } from '@virtkeep/shared/gen/virtkeep/agent/v1/common';
import type { Operation } from '@virtkeep/shared/gen/virtkeep/agent/v1/operation';
import type { OperationRunner, StartOptions } from '../operations/runner.ts';
import type { Lock } from '../workflows/context.ts';

export interface OperationCall {
  kind: string;
  request: { operationId: string };
  /**
   * Only a hash of it is kept, and a repeated call is known by that, so it is the request without its secrets: a hash of a
   * password beside all else that was asked could be guessed.
   */
  remembered?: object;
  /** Ends with the call. */
  signal: AbortSignal;
}

export type OperationPlan = Omit<StartOptions, 'id' | 'kind' | 'request'>;

/**
 * Starts what the call asks for, or answers what the same call started before.
 * @param planOf checks the request, looks up what it names, and says what the operation holds and does
 * @throws VirtkeepError what `planOf` and `OperationRunner.start` raise, and canceled when the caller has gone: then nothing was started
 */
export async function startOperation(
  runner: OperationRunner,
  { kind, request, remembered = request, signal }: OperationCall,
  planOf: () => OperationPlan | Promise<OperationPlan>,
): Promise<Operation> {
  const { operationId: id } = request;
  const former = runner.replay(id, kind, remembered);
  if (former) return former;
  const plan = await planOf();
  // whoever called has given it up as not begun: it may have been asked for anew by then, or undone
  throwIfAborted(signal);
  return runner.start({ ...plan, id, kind, request: remembered });
}

export const domainEntities = (...ids: string[]) => entities(EntityClass.DOMAIN, ids);
export const fileEntities = (...ids: string[]) => entities(EntityClass.FILE, ids);
export const poolEntities = (...ids: string[]) => entities(EntityClass.DATA_POOL, ids);

function entities(entityClass: EntityClass, ids: string[]) {
  return ids.map(id => ({ id, entityClass }));
}

/** `domain` is its disks and definition, `power` whether it runs. */
export function domainLocks(
  id: string,
  kinds: readonly ('domain' | 'power')[],
  mode: Lock['mode'] = 'exclusive',
): Lock[] {
  return kinds.map(kind => ({ kind, id, mode }));
}

export function fileLock(path: string, mode: Lock['mode']): Lock {
  return { kind: 'file', id: path, mode };
}
