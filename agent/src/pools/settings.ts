/** The node's durable settings (a table of the agent's journal); values are plain JSON. */
export interface Settings {
  get(key: string): unknown;
  /** Durable when it returns. @throws VirtkeepError journal_failed */
  set(key: string, value: unknown): void;
}

/** What an administrator, or the agent itself, noted about a pool on this node. */
export interface PoolMarks {
  readonly: boolean;
  outside: boolean;
  description: string;
  /** The pool was seen on a network file system with our marker file on it: without the file it is not mounted. */
  marker: boolean;
}

/** What is undefined is not changed. */
type PoolMarkChange = { [Mark in keyof PoolMarks]?: PoolMarks[Mark] | undefined };

const NO_MARKS: PoolMarks = { readonly: false, outside: false, description: '', marker: false };
const BASE_KEY = 'pools.base';
const markKey = (poolId: string) => `pools.marks.${poolId}`;

/** What an administrator said of a pool; the defaults where nothing was said. */
export function poolMarks(settings: Settings, poolId: string): PoolMarks {
  const stored = settings.get(markKey(poolId));
  return { ...NO_MARKS, ...(typeof stored === 'object' ? (stored as Partial<PoolMarks> | null) : {}) };
}

/** Changes some marks of a pool. */
export function setPoolMarks(settings: Settings, poolId: string, change: PoolMarkChange): void {
  const given = Object.fromEntries(Object.entries(change).filter(([, value]) => value !== undefined));
  settings.set(markKey(poolId), { ...poolMarks(settings, poolId), ...given });
}

/** The base data pool that was chosen, if any. */
export function chosenBase(settings: Settings): string | undefined {
  const stored = settings.get(BASE_KEY);
  return typeof stored === 'string' && stored !== '' ? stored : undefined;
}

/** Chooses the pool for backups that name none; null takes the choice back. */
export function setChosenBase(settings: Settings, poolId: string | null): void {
  settings.set(BASE_KEY, poolId ?? '');
}
