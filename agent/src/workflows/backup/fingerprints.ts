import { fingerprintOf } from '../../disks/index.ts';
import type { OperationContext } from '../context.ts';
import type { WorkflowDependencies } from '../dependencies.ts';
import type { OwnChain } from './members.ts';

/**
 * Notes for each disk of a thin clone what the template's file holds that it stands on, so that a restore can tell whether
 * it still does. A file is read whole the first time only.
 * @throws VirtkeepError io_failed, canceled
 */
export async function noteFingerprints(
  { settings: store }: Pick<WorkflowDependencies, 'settings'>,
  chains: ReadonlyMap<string, OwnChain>,
  { signal, progress }: Pick<OperationContext, 'signal' | 'progress'>,
): Promise<void> {
  for (const { base } of chains.values()) {
    if (!base) continue;
    const onProgress = () => progress.message(`Reading ${base.path} of the template.`);
    base.fingerprint = await fingerprintOf(base.path, { signal, store, onProgress });
  }
}
