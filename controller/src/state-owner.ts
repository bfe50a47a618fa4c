/**
 * Whose the files of the state directory are. Administrators run the controller's commands as root, also before its first
 * start; what they leave must belong to the user that the service runs as, or it could not open its own database.
 */
import { chmodSync, chownSync, mkdirSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';

/** Of the unit; made by the package. */
const SERVICE_USER = 'virtkeep';

interface Owner {
  uid: number;
  gid: number;
}

/**
 * Makes the state directory and goes on as its owner.
 * @param account owner of a directory that is created here, when there is such a user
 * @returns a function that makes the process root again, for work outside of the service's files
 */
export function actAsStateOwner(stateDir: string, account = SERVICE_USER): () => void {
  makePassable(dirname(resolve(stateDir)));
  const isNew = mkdirSync(stateDir, { recursive: true, mode: 0o700 }) !== undefined;
  if (process.geteuid?.() !== 0) return () => {};
  const owner = isNew ? serviceOwner(account) : statSync(stateDir);
  if (owner === undefined || owner.uid === 0) return () => {};
  if (isNew) chownSync(stateDir, owner.uid, owner.gid);
  process.setegid!(owner.gid);
  process.seteuid!(owner.uid);
  return becomeRoot;
}

/** Creates missing directories so that the service may pass through them, whatever the umask. Existing ones stay as they are. */
function makePassable(directory: string): void {
  const first = mkdirSync(directory, { recursive: true });
  if (first === undefined) return;
  for (let current = directory; current.length >= first.length; current = dirname(current))
    chmodSync(current, 0o755);
}

/** Node looks users up by name only in order to become one. */
function serviceOwner(account: string): Owner | undefined {
  try {
    process.setegid!(account);
    process.seteuid!(account);
    return { uid: process.geteuid!(), gid: process.getegid!() };
  } catch {
    return undefined;
  } finally {
    becomeRoot();
  }
}

function becomeRoot(): void {
  process.seteuid!(0);
  process.setegid!(0);
}
