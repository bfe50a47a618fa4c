/**
 * UEFI variables that libvirt finds by the domain's name: where it chooses the firmware itself (`<os firmware='efi'>`), libvirt 9.0 writes
 * their file into no definition, and looks for `<name>_VARS.fd` at each start. (libvirt 11 writes it; there it stays whatever the domain is
 * called.) Whoever gives the domain another name has to give the file one. It has both meanwhile, as hard links, so that the domain has
 * its variables whatever it is called when something breaks off.
 */
import { link, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { errnoOf, fromIoError } from '@virtkeep/shared/errors';
import { removePath, syncDirectoryOf } from '@virtkeep/shared/files';

/** Where libvirt looks for the variables of a domain of that name. */
export const variablesOfName = (nvramDirectory: string, name: string): string =>
  join(nvramDirectory, `${name}_VARS.fd`);

/**
 * Where the variables of a new domain may lie when libvirt would find others under its name: those of a domain that has another name by
 * now, or that was undefined without them. They would be used by both, and go with the first one that is undefined.
 * @returns null: nothing is in the way
 * @throws VirtkeepError io_failed
 */
export async function freeVariables(
  nvramDirectory: string,
  { name, uuid }: { name: string; uuid: string },
): Promise<string | null> {
  const isTaken = (await fileAt(variablesOfName(nvramDirectory, name))) !== null;
  return isTaken ? variablesOfName(nvramDirectory, uuid) : null;
}

/**
 * Gives variables a second name, durably; where there are none nothing is to be done. Idempotent.
 * @returns false when another file bears that name, which is never overwritten
 * @throws VirtkeepError io_failed
 */
export async function linkVariables(path: string, second: string): Promise<boolean> {
  try {
    await link(path, second);
    await syncDirectoryOf(second);
    return true;
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === 'ENOENT') return true;
    if (errno === 'EEXIST') return isSameFile(path, second);
    throw fromIoError(error, 'making', second);
  }
}

/** Takes a name of variables away, durably, as long as they bear the other one too. Idempotent. @throws VirtkeepError io_failed */
export async function unlinkVariables(path: string, other: string): Promise<void> {
  if (!(await isSameFile(path, other))) return;
  await removePath(path);
  await syncDirectoryOf(path);
}

async function isSameFile(path: string, other: string): Promise<boolean> {
  const [one, two] = [await fileAt(path), await fileAt(other)];
  return one !== null && two !== null && one.dev === two.dev && one.ino === two.ino;
}

async function fileAt(path: string): Promise<{ dev: bigint; ino: bigint } | null> {
  try {
    return await stat(path, { bigint: true });
  } catch (error) {
    if (errnoOf(error) === 'ENOENT') return null;
    throw fromIoError(error, 'looking at', path);
  }
}
