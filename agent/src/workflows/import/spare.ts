import { join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { changedSource, type SourceMark } from '../../disks/index.ts';
import type { OperationContext } from '../context.ts';

/** Name of a spare file of an operation, hidden from scans. */
export const sparePath = (
  context: OperationContext,
  directory: string,
  index: number,
  kind: 'raw' | 'qcow2' = 'raw',
): string => join(directory, `.virtkeep-${context.id}.${index}.${kind}`);

/** @throws VirtkeepError appliance_invalid */
export async function requireSame(path: string, marks: SourceMark[]): Promise<void> {
  if ((await changedSource(marks)) === undefined) return;
  const reason = 'somebody else wrote to it while it was converted';
  throw new VirtkeepError('appliance_invalid', { path, reason });
}
