/**
 * What is mounted where, by the kernel's own table. Reading it asks no file system, so a hung one does not hold it up.
 */
import { readFile } from 'node:fs/promises';

/** The root of the node's own file system, which is always there. */
export const ROOT_MOUNT = '/';

/** True when something is mounted at exactly this path (also a bind mount of the same file system). */
export async function isMountPoint(path: string): Promise<boolean> {
  return (await mountPoints()).has(withoutEnd(path));
}

/** The place in the tree at which the file system that holds a path is mounted; the path need not exist. */
export async function mountPointOf(path: string): Promise<string> {
  const points = await mountPoints();
  for (let place = withoutEnd(path); place !== ROOT_MOUNT; place = above(place))
    if (points.has(place)) return place;
  return ROOT_MOUNT;
}

async function mountPoints(): Promise<Set<string>> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  return new Set(table.split('\n').map(line => unescapeMount(line.split(' ')[4] ?? '')));
}

const withoutEnd = (path: string): string => (path.length > 1 ? path.replace(/\/+$/, '') : path);

const above = (path: string): string => path.slice(0, path.lastIndexOf('/')) || ROOT_MOUNT;

/** mountinfo writes blank, tab, newline and backslash as octal. */
function unescapeMount(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_whole, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}
