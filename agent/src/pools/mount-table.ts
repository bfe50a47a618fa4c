/** What is mounted where, by the kernel's own table, which names places without links: those on the way to a place are followed first. */
import { readFile, readlink } from 'node:fs/promises';
import { join } from 'node:path';

/** The root of the node's own file system, which is always there. */
export const ROOT_MOUNT = '/';

/** As many as the kernel follows. */
const MAX_LINKS = 40;

/** True when something is mounted at exactly this path (also a bind mount of the same file system). Waits for a file system that hangs. */
export async function isMountPoint(path: string): Promise<boolean> {
  return (await mountPoints()).has(await withoutLinks(path));
}

/**
 * The place in the tree at which the file system that holds a path is mounted; the path need not exist. Waits for a file system that hangs.
 */
export async function mountPointOf(path: string): Promise<string> {
  const points = await mountPoints();
  for (let place = await withoutLinks(path); place !== ROOT_MOUNT; place = above(place))
    if (points.has(place)) return place;
  return ROOT_MOUNT;
}

async function mountPoints(): Promise<Set<string>> {
  const table = await readFile('/proc/self/mountinfo', 'utf8');
  return new Set(table.split('\n').map(line => unescapeMount(line.split(' ')[4] ?? '')));
}

/** Where a path leads. Also where a link leads to nothing: then what it leads to may be what is not mounted. */
async function withoutLinks(path: string): Promise<string> {
  let place = ROOT_MOUNT;
  let links = 0;
  for (let left = path.split('/'); left.length > 0; ) {
    const [name = '', ...rest] = left;
    left = rest;
    if (name === '' || name === '.') continue;
    const next = name === '..' ? above(place) : join(place, name);
    const target = name === '..' || links === MAX_LINKS ? undefined : await linkAt(next);
    if (target === undefined) {
      place = next;
      continue;
    }
    links += 1;
    if (target.startsWith('/')) place = ROOT_MOUNT;
    left = [...target.split('/'), ...rest];
  }
  return place;
}

/** undefined: there is none, or nothing at all. */
const linkAt = (path: string): Promise<string | undefined> => readlink(path).catch(() => undefined);

const above = (path: string): string => path.slice(0, path.lastIndexOf('/')) || ROOT_MOUNT;

/** mountinfo writes blank, tab, newline and backslash as octal. */
function unescapeMount(field: string): string {
  return field.replace(/\\([0-7]{3})/g, (_whole, octal: string) =>
    String.fromCharCode(Number.parseInt(octal, 8)),
  );
}
