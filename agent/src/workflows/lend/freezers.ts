import type { WorkflowDependencies } from '../dependencies.ts';
import type { DiskFreezer, FreezerOptions, Lender } from './freezer.ts';
import { stateFreezer } from './state-freezer.ts';
import { zfsFreezer } from './zfs-freezer.ts';

/** All kinds, in the order in which they are asked; the last one serves everything. */
function freezers(dependencies: WorkflowDependencies): DiskFreezer[] {
  return [zfsFreezer(dependencies), stateFreezer(dependencies)];
}

/** The one that holds the disks of this domain at an instant. */
export async function freezerOf(
  dependencies: WorkflowDependencies,
  lender: Lender,
  options: FreezerOptions,
): Promise<DiskFreezer> {
  const all = freezers(dependencies);
  for (const freezer of all) if (await freezer.serves(lender, options)) return freezer;
  return all.at(-1)!;
}
