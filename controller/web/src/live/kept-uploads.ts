/**
 * Where uploads that are not done are sent to, as this browser remembers it: they go on after the page was loaded anew. They are of one
 * user; of somebody else, or after a logout, nothing of them stays.
 */

const NAME = 'virtkeep.uploads';
const MOST = 50;

interface Kept {
  /** Id of the user. */
  of: string;
  /** By key. */
  paths: Record<string, string>;
}

const NOTHING: Kept = { of: '', paths: {} };

function read(): Kept {
  try {
    const { of, paths } = JSON.parse(localStorage.getItem(NAME) ?? '{}') as Partial<Kept>;
    return typeof of === 'string' && typeof paths === 'object' ? { of, paths } : NOTHING;
  } catch {
    return NOTHING; // storage is forbidden, or somebody else wrote there
  }
}

function write(kept: Kept): void {
  try {
    if (Object.keys(kept.paths).length === 0) localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, JSON.stringify(kept));
  } catch {
    // it lasts until the page is closed
  }
}

/** Whose uploads they are from now on. */
let owner = '';

/** Forgets those of everybody else. @param user id of who is logged in; empty: somebody logged out */
export function keepFor(user: string): void {
  owner = user;
  if (read().of !== user) write(NOTHING);
}

export function kept(key: string): string | undefined {
  const { of, paths } = read();
  const path = of === owner ? paths[key] : undefined;
  return typeof path === 'string' && path.startsWith('/api/library/upload/') ? path : undefined;
}

/** @param path undefined: it is over */
export function keep(key: string, path: string | undefined): void {
  const { of, paths } = read();
  const { [key]: _old, ...others } = of === owner ? paths : {};
  const entries = Object.entries(path === undefined ? others : { ...others, [key]: path }).slice(-MOST);
  write({ of: owner, paths: Object.fromEntries(entries) });
}
