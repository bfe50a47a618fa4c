import { rename, rm } from '@virtkeep/shared/beneath';
import { fromIoError } from '@virtkeep/shared/errors';
import { exists } from '@virtkeep/shared/files';
import { sha256PathOf } from '../format/names.ts';
import { keepName } from '../system/publish.ts';
import { removeTails } from './left-tails.ts';

/**
 * Gives a published archive the name of another one, which is gone then, durably: at every moment there is one of the two under that name.
 * Whoever calls it holds both, the other one exclusively. When it is interrupted behind the archive, {@link moveHashFile} is left.
 * @throws VirtkeepError io_failed
 */
export async function replaceArchive(by: string, path: string): Promise<void> {
  try {
    if (!(await exists(sha256PathOf(by)))) await rm(sha256PathOf(path), { force: true });
    await removeTails(path);
    await rename(by, path);
  } catch (error) {
    throw fromIoError(error, 'replacing', path);
  }
  await moveHashFile(by, path);
}

/** Gives the hash file of an archive that has got another name that name, too, durably. @throws VirtkeepError io_failed */
export async function moveHashFile(from: string, path: string): Promise<void> {
  try {
    if (await exists(sha256PathOf(from))) await rename(sha256PathOf(from), sha256PathOf(path));
  } catch (error) {
    throw fromIoError(error, 'replacing', sha256PathOf(path));
  }
  await keepName(path);
}
