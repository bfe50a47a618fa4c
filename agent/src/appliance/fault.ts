import { errnoOf, isVirtkeepError, reasonOf, VirtkeepError } from '@virtkeep/shared/errors';

/** What is wrong with foreign bytes. Who knows whose they are makes an error of the table of it. */
export class Fault extends Error {
  override readonly name = 'Fault';
}

/** A name as it is shown in an error: it may hold anything. */
export const shown = (name: string): string => JSON.stringify(name.slice(0, 200));

/** Does work on an appliance. @throws VirtkeepError appliance_invalid for a fault; all else as it is */
export function ofAppliance<T>(path: string, work: () => Promise<T>): Promise<T> {
  return named('appliance_invalid', path, work);
}

/** Does work on a disk image. @throws VirtkeepError foreign_disk_invalid for a fault; all else as it is */
export function ofDisk<T>(path: string, work: () => Promise<T>): Promise<T> {
  return named('foreign_disk_invalid', path, work);
}

async function named<T>(
  key: 'appliance_invalid' | 'foreign_disk_invalid',
  path: string,
  work: () => Promise<T>,
): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const isZlib = errnoOf(error)?.startsWith('Z_') === true;
    if (isVirtkeepError(error) || !(error instanceof Fault || isZlib)) throw error;
    const reason = isZlib ? `it cannot be unpacked: ${reasonOf(error)}` : reasonOf(error);
    throw new VirtkeepError(key, { path, reason }, { cause: error });
  }
}
