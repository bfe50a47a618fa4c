/**
 * One run of the agent inside of the test's process, which outlives it: what a kill ends with a process must be ended here by
 * hand. Its promises never go on, its locks on files are given back, its threads end. And the points of a run: each call of the
 * file system that changes something in the world, also of modules that were loaded before.
 */
import { AsyncLocalStorage } from 'node:async_hooks';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { basename } from 'node:path';

/** What a run of the agent meets before and after each call; may reject, or never resolve. */
export type Reach = (point: string) => Promise<void>;

const runs = new AsyncLocalStorage<RunOfAgent>();
const never = () => new Promise<never>(() => {});

export class RunOfAgent {
  readonly #root: string;
  readonly #reach: Reach;
  readonly #handles = new Set<fs.promises.FileHandle>();
  readonly #threads = new Set<{ terminate(): Promise<unknown> }>();
  #dead = false;

  /** @param root calls of the file system outside of it are no points */
  constructor(root: string, reach: Reach) {
    this.#root = root;
    this.#reach = reach;
  }

  within<T>(work: () => Promise<T>): Promise<T> {
    return runs.run(this, work);
  }

  /** Of the run that the caller belongs to; what belongs to a dead one ends here. */
  static async reach(point: string): Promise<void> {
    const run = runs.getStore();
    if (!run) return;
    if (run.#dead) await never();
    await run.#reach(point);
  }

  /** Inside of another process, libvirt's: it goes on when the agent is dead. */
  static async reachOutside(point: string): Promise<void> {
    const run = runs.getStore();
    if (run && !run.#dead) await run.#reach(point);
  }

  static get current(): RunOfAgent | undefined {
    return runs.getStore();
  }

  isOf(path: unknown): path is string {
    return typeof path === 'string' && path.startsWith(this.#root);
  }

  keep(handle: fs.promises.FileHandle): void {
    this.#handles.add(handle);
  }

  keepThread(thread: { terminate(): Promise<unknown> }): void {
    this.#threads.add(thread);
  }

  /** The kill. @param unlock gives back all locks of a descriptor */
  async die(unlock: (fd: number) => Promise<unknown>): Promise<void> {
    this.#dead = true;
    for (const { fd } of this.#handles) if (fd >= 0) await unlock(fd);
    await Promise.all([...this.#threads].map(thread => thread.terminate()));
  }

  /** When nothing of it is needed any more. */
  async close(): Promise<void> {
    for (const handle of this.#handles) if (handle.fd >= 0) await handle.close().catch(() => {});
    this.#handles.clear();
  }
}

const CHANGING = ['rename', 'link', 'rm', 'unlink', 'rmdir', 'mkdir', 'writeFile', 'chmod', 'chown'] as const;
const { O_WRONLY, O_RDWR, O_CREAT } = fs.constants;

/** Puts the points into Node's own file system calls. @returns what takes them out again */
export function patchNode(): () => void {
  const { promises } = fs;
  const threads = process.getBuiltinModule('node:worker_threads');
  const former = { ...promises };
  const { Worker } = threads;
  for (const name of CHANGING) {
    const call = former[name] as (...args: unknown[]) => Promise<unknown>;
    const patched = (...args: unknown[]) => around(name, args.slice(0, 2), () => call(...args));
    Object.assign(promises, { [name]: patched });
  }
  const open = async (path: string, flags: string | number = 'r', mode?: number) => {
    const changes =
      typeof flags === 'number' ? (flags & (O_WRONLY | O_RDWR | O_CREAT)) !== 0 : !/^r[es]?$/.test(flags);
    const handle = await (changes
      ? around('open', [path], () => former.open(path, flags, mode))
      : former.open(path, flags, mode));
    const run = RunOfAgent.current;
    if (run?.isOf(path)) {
      run.keep(handle);
      pointsOfHandle(handle, path);
    }
    return handle;
  };
  Object.assign(promises, { open });
  threads.Worker = class extends Worker {
    constructor(...args: ConstructorParameters<typeof Worker>) {
      super(...args);
      RunOfAgent.current?.keepThread(this);
    }
  } as typeof Worker;
  syncBuiltinESMExports();
  return () => {
    Object.assign(promises, former);
    threads.Worker = Worker;
    syncBuiltinESMExports();
  };
}

function pointsOfHandle(handle: fs.promises.FileHandle, path: string): void {
  for (const name of ['sync', 'truncate'] as const) {
    const call = handle[name].bind(handle) as (length?: number) => Promise<void>;
    handle[name] = (length?: number) => around(name, [path], () => call(length)) as Promise<void>;
  }
}

async function around<T>(name: string, paths: readonly unknown[], call: () => Promise<T>): Promise<T> {
  const run = RunOfAgent.current;
  const path = paths.filter(one => run?.isOf(one)).at(-1);
  if (path === undefined) return call();
  const point = `${name} ${basename(path as string)}`;
  await RunOfAgent.reach(`${point}.before`);
  const result = await call();
  await RunOfAgent.reach(`${point}.after`);
  return result;
}
