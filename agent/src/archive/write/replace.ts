import { rename, rm } from '@virtkeep/shared/beneath';
import { fromIoError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { sha256PathOf } from '../format/names.ts';
import { keepName } from '../system/publish.ts';
import { removeTails } from './left-tails.ts';

/**
 * Gives a published archive the name of another one, which is gone then, durably: at every moment there is one of the two under that name.
 * Whoever calls it holds the other one exclusively, when it is there. May be interrupted and repeated: what was left is done.
 * @throws VirtkeepError io_failed
 */
export async function replaceArchive(by: string, path: string): Promise<void> {
  try {
    if (await exists(by)) {
      if (!(await exists(sha256PathOf(by)))) await rm(sha256PathOf(path), { force: true });
      await removeTails(path);
      await rename(by, path);
    }
    if (await exists(sha256PathOf(by))) await rename(sha256PathOf(by), sha256PathOf(path));
  } catch (error) {
    throw fromIoError(error, 'replacing', path);
  }
  await keepName(path);
}
