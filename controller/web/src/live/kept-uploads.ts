/** Where uploads that are not done are sent to, as this browser remembers it: they go on after the page was loaded anew. */

const NAME = 'virtkeep.uploads';
const MOST = 50;

function all(): Record<string, string> {
  try {
    return JSON.parse(localStorage.getItem(NAME) ?? '{}') as Record<string, string>;
  } catch {
    return {}; // storage is forbidden, or somebody else wrote there
  }
}

export function kept(key: string): string | undefined {
  const path = all()[key];
  return typeof path === 'string' && path.startsWith('/api/library/upload/') ? path : undefined;
}

/** @param path undefined: it is over */
export function keep(key: string, path: string | undefined): void {
  const { [key]: _old, ...others } = all();
  const entries = Object.entries(path === undefined ? others : { ...others, [key]: path }).slice(-MOST);
  try {
    if (entries.length === 0) localStorage.removeItem(NAME);
    else localStorage.setItem(NAME, JSON.stringify(Object.fromEntries(entries)));
  } catch {
    // it lasts until the page is closed
  }
}
