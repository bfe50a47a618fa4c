import { join } from 'node:path';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';

/**
 * Refuses a name under which a lost domain has left its saved memory (managed save). libvirt finds that file by the name, whatever it
 * says of a domain that was defined since it started: the next start would resume the memory on disks of another moment, or fail for
 * ever when it is of another id. The memory may be the only copy of what ran, so nobody but its owner moves it away.
 * @throws VirtkeepError file_exists, io_failed
 */
export async function refuseLeftMemory(
  { saveDirectory }: { saveDirectory: string },
  name: string,
): Promise<void> {
  const path = join(saveDirectory, `${name}.save`);
  if (await exists(path)) throw new VirtkeepError('file_exists', { path });
}
