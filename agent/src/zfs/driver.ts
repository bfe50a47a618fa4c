/**
 * What virtkeep does with zfs: find the dataset or volume of a disk, snapshot it, clone the snapshot, destroy both.
 *
 * All facts about our snapshots and clones are user properties on them (`virtkeep:…`), so nothing else is needed to find them
 * again. This works with OpenZFS and with zfs-fuse, whose `zfs` has neither `-p` nor the property `clones`, and takes one
 * snapshot at a time.
 */
import { posix } from 'node:path';
import { sleep } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import { hasDatasets, mountOf, mountPointOf } from './mounts.ts';
import { poolOf, requireDataset, requireSnapshot } from './names.ts';
import { localTools, type ZfsAnswer, type ZfsTools } from './tools.ts';

/** What of zfs holds a path. */
export type ZfsPlace =
  | {
      kind: 'filesystem';
      dataset: string;
      /** Where it is mounted, and the path below that. */
      mountPoint: string;
      inside: string;
    }
  | { kind: 'volume'; dataset: string };

/** Our properties, without the prefix. */
export type Properties = Readonly<Record<string, string>>;

export interface Snapshot {
  /** `dataset@name`. */
  name: string;
  properties: Properties;
}

export interface Clone {
  dataset: string;
  /** The snapshot it was made of: `dataset@name`. */
  origin: string;
  properties: Properties;
}

const PREFIX = 'virtkeep:';
const PROPERTY = /^[a-z][a-z-]{0,40}$/;
/** A value is one word: it stands between tabs in the lists. */
const VALUE = /^[A-Za-z0-9_.:/-]{1,512}$/;
const VOLUMES = '/dev/zvol/';

/** zfs-fuse unmounts in the background; udev makes and removes the devices of volumes in its own time. */
const PATIENCE_MS = 30_000;
const RETRY_MS = 100;

export class ZfsDriver {
  readonly #tools: ZfsTools;

  constructor(tools: ZfsTools = localTools()) {
    this.#tools = tools;
  }

  /** Whether this node has zfs at all: a mounted dataset, or the kernel's device. @throws VirtkeepError io_failed */
  async isPresent(): Promise<boolean> {
    if ((await this.#tools.realPath('/dev/zfs')) !== null) return true;
    return hasDatasets(await this.#tools.mountInfo());
  }

  /**
   * The dataset or volume that holds a file or device, or null when it is not on zfs. Asks the zfs program only for
   * `/dev/zd*`, so a node without zfs is asked nothing.
   * @throws VirtkeepError zfs_failed, io_failed
   */
  async placeOf(path: string, signal: AbortSignal): Promise<ZfsPlace | null> {
    if (path.startsWith(VOLUMES))
      return { kind: 'volume', dataset: requireDataset(path.slice(VOLUMES.length)) };
    const real = (await this.#tools.realPath(path)) ?? path;
    if (/^\/dev\/zd\d+$/.test(real)) return this.#volumeOf(real, signal);
    const mount = await this.#mountOf(real);
    if (!mount) return null;
    const inside = posix.join(mount.root, posix.relative(mount.mountPoint, real));
    return {
      kind: 'filesystem',
      dataset: mount.dataset,
      mountPoint: mount.mountPoint,
      inside: inside.slice(1),
    };
  }

  /** Name of the dataset that holds a file, or null; asks the table of mounts only. @throws VirtkeepError io_failed */
  async datasetOf(path: string): Promise<string | null> {
    return (await this.#mountOf((await this.#tools.realPath(path)) ?? path))?.dataset ?? null;
  }

  async #mountOf(real: string) {
    return mountOf(await this.#tools.mountInfo(), real);
  }

  async #volumeOf(device: string, signal: AbortSignal): Promise<ZfsPlace | null> {
    const names = await this.#read(['list', '-H', '-o', 'name', '-t', 'volume'], signal);
    for (const name of lines(names)) {
      if ((await this.#tools.realPath(VOLUMES + name)) === device) return { kind: 'volume', dataset: name };
    }
    return null;
  }

  /**
   * Snapshots datasets under one name: those of one pool at one instant where the program can do that, else one after
   * the other. When it fails, none is left.
   * @throws VirtkeepError zfs_failed
   */
  async snapshot(
    datasets: readonly string[],
    name: string,
    properties: Properties,
    signal: AbortSignal,
  ): Promise<void> {
    const names = datasets.map(dataset => requireSnapshot(`${requireDataset(dataset)}@${name}`));
    const created: string[] = [];
    try {
      for (const pool of new Set(names.map(poolOf))) {
        const ofPool = names.filter(snapshot => poolOf(snapshot) === pool);
        created.push(...(await this.#snapshotPool(ofPool, options(properties), signal)));
      }
    } catch (error) {
      const undo = AbortSignal.timeout(PATIENCE_MS);
      for (const snapshot of created) await this.destroySnapshot(snapshot, '', undo).catch(() => {});
      throw error;
    }
  }

  async #snapshotPool(names: string[], set: string[], signal: AbortSignal): Promise<string[]> {
    const answer = await this.#tools.zfs(['snapshot', ...set, ...names], signal);
    if (answer.code === 0) return names;
    if (names.length === 1 || !/too many arguments/.test(answer.stderr)) throw refused('snapshot', answer);
    const created: string[] = [];
    try {
      for (const name of names) created.push(...(await this.#snapshotPool([name], set, signal)));
    } catch (error) {
      const undo = AbortSignal.timeout(PATIENCE_MS);
      for (const name of created) await this.destroySnapshot(name, '', undo).catch(() => {});
      throw error;
    }
    return created;
  }

  /**
   * Makes a read-only clone of a snapshot, mounted where it is told (a file system), and waits until it can be opened.
   * @param like where the original is
   * @returns path of the file or device in the clone that is the original's `like`
   * @throws VirtkeepError zfs_failed
   */
  async clone(
    snapshot: string,
    like: ZfsPlace,
    { dataset, properties }: { dataset: string; properties: Properties },
    signal: AbortSignal,
  ): Promise<string> {
    const mount = like.kind === 'filesystem' ? ['-o', `mountpoint=${mountPointBeside(like, dataset)}`] : [];
    const set = ['-o', 'readonly=on', ...mount, ...options(properties)];
    await this.#read(['clone', ...set, requireSnapshot(snapshot), requireDataset(dataset)], signal);
    return this.#patiently('clone', `${dataset} does not appear`, signal, () => this.pathIn(dataset, like));
  }

  /**
   * Path in a clone that exists already, mounted if it is not.
   * @throws VirtkeepError zfs_failed
   */
  async open(dataset: string, like: ZfsPlace, signal: AbortSignal): Promise<string> {
    const path = await this.pathIn(dataset, like);
    if (path !== null) return path;
    if (like.kind === 'filesystem') await this.#read(['mount', requireDataset(dataset)], signal);
    return this.#patiently('mount', `${dataset} does not appear`, signal, () => this.pathIn(dataset, like));
  }

  /** Path in a clone of what the original is; null while the clone is not mounted, or its device is not there. */
  async pathIn(dataset: string, like: ZfsPlace): Promise<string | null> {
    if (like.kind === 'volume') {
      const device = VOLUMES + requireDataset(dataset);
      return (await this.#tools.realPath(device)) === null ? null : device;
    }
    const mountPoint = mountPointOf(await this.#tools.mountInfo(), dataset);
    return mountPoint === null ? null : posix.join(mountPoint, like.inside);
  }

  /** Snapshots with our properties, in all pools of the node. @throws VirtkeepError zfs_failed */
  async snapshots(keys: readonly string[], signal: AbortSignal): Promise<Snapshot[]> {
    const rows = await this.#list('snapshot', ['name'], keys, signal);
    return rows.map(({ fields: [name], properties }) => ({ name: name!, properties }));
  }

  /** Clones of datasets and volumes in all pools of the node, with our properties. @throws VirtkeepError zfs_failed */
  async clones(keys: readonly string[], signal: AbortSignal): Promise<Clone[]> {
    const rows = await this.#list('filesystem,volume', ['name', 'origin'], keys, signal);
    return rows
      .filter(({ fields: [, origin] }) => origin !== '-' && origin !== '')
      .map(({ fields: [dataset, origin], properties }) => ({
        dataset: dataset!,
        origin: origin!,
        properties,
      }));
  }

  async #list(type: string, columns: string[], keys: readonly string[], signal: AbortSignal) {
    const columnList = [...columns, ...keys.map(propertyName)].join(',');
    const answer = await this.#tools.zfs(['list', '-H', '-t', type, '-o', columnList], signal);
    if (answer.code !== 0 && !/no datasets available/.test(answer.stderr)) throw refused('list', answer);
    return lines(answer.stdout).map(line => {
      const fields = line.split('\t');
      // an absent property is "-"
      const set = keys.map((key, index) => [key, fields[columns.length + index] ?? '-'] as const);
      return {
        fields: fields.slice(0, columns.length),
        properties: Object.fromEntries(set.filter(([, value]) => value !== '-' && value !== '')),
      };
    });
  }

  /**
   * Destroys a clone with its own snapshots: a program that snapshots all datasets makes them of clones, too. One that does not exist is
   * destroyed already. Waits for whom it is being closed by.
   * @throws VirtkeepError zfs_failed when it stays busy, has datasets below it, or is not a clone: an original is never destroyed;
   *   zfs_clone_exists for a clone of one of its snapshots
   */
  async destroyClone(dataset: string, signal: AbortSignal): Promise<void> {
    const origin = await this.#tools.zfs(['list', '-H', '-o', 'origin', requireDataset(dataset)], signal);
    if (isAbsent(origin)) return;
    if (origin.code !== 0) throw refused('list', origin);
    if (origin.stdout.trim() === '-')
      throw new VirtkeepError('zfs_failed', { command: 'destroy', reason: `${dataset} is not a clone` });
    let last = '';
    await this.#patiently(
      'destroy',
      () => last,
      signal,
      async () => {
        const answer = await this.#tools.zfs(['destroy', dataset], signal);
        if (answer.code === 0 || isAbsent(answer)) return true;
        const wasHeld =
          /has children/.test(answer.stderr) && (await this.#destroySnapshotsOf(dataset, signal));
        if (!wasHeld && !/busy/.test(answer.stderr)) throw refused('destroy', answer);
        last = reasonIn(answer);
        return null;
      },
    );
  }

  /** @returns whether there was one */
  async #destroySnapshotsOf(dataset: string, signal: AbortSignal): Promise<boolean> {
    const own = (await this.snapshots([], signal)).filter(({ name }) => name.startsWith(`${dataset}@`));
    for (const { name } of own) await this.destroySnapshot(name, '', signal);
    return own.length > 0;
  }

  /**
   * Destroys a snapshot; one that does not exist is destroyed already.
   * @param domain whose saved state it is, for the text
   * @throws VirtkeepError zfs_clone_exists, zfs_failed
   */
  async destroySnapshot(snapshot: string, domain: string, signal: AbortSignal): Promise<void> {
    const answer = await this.#tools.zfs(['destroy', requireSnapshot(snapshot)], signal);
    if (answer.code === 0 || isAbsent(answer)) return;
    if (!/dependent clones/.test(answer.stderr)) throw refused('destroy', answer);
    const clone = (await this.clones([], signal)).find(({ origin }) => origin === snapshot)?.dataset;
    throw new VirtkeepError('zfs_clone_exists', { domain, clone: clone ?? `of ${snapshot}` });
  }

  async #read(args: string[], signal: AbortSignal): Promise<string> {
    const answer = await this.#tools.zfs(args, signal);
    if (answer.code !== 0) throw refused(args[0]!, answer);
    return answer.stdout;
  }

  /** Tries until something comes of it. @throws VirtkeepError zfs_failed when nothing does in time */
  async #patiently<T>(
    command: string,
    reason: string | (() => string),
    signal: AbortSignal,
    attempt: () => Promise<T | null>,
  ): Promise<T> {
    for (const deadline = Date.now() + PATIENCE_MS; ; ) {
      const result = await attempt();
      if (result !== null) return result;
      if (Date.now() > deadline)
        throw new VirtkeepError('zfs_failed', {
          command,
          reason: typeof reason === 'string' ? reason : reason(),
        });
      await sleep(RETRY_MS, signal);
    }
  }
}

/** Beside the original's own mount point, or below it when the original is the pool itself. */
function mountPointBeside(like: ZfsPlace & { kind: 'filesystem' }, dataset: string): string {
  const parent = like.dataset.includes('/') ? posix.dirname(like.mountPoint) : like.mountPoint;
  return posix.join(parent, posix.basename(dataset));
}

function propertyName(key: string): string {
  if (PROPERTY.test(key)) return PREFIX + key;
  throw new VirtkeepError('zfs_failed', { command: 'set', reason: `"${key}" is not a name of a property` });
}

function options(properties: Properties): string[] {
  return Object.entries(properties).flatMap(([key, value]) => {
    if (!VALUE.test(value))
      throw new VirtkeepError('zfs_failed', { command: 'set', reason: `${key} cannot be "${value}"` });
    return ['-o', `${propertyName(key)}=${value}`];
  });
}

function lines(text: string): string[] {
  return text.split('\n').filter(line => line !== '');
}

/** zfs says it in several ways: "dataset does not exist", "could not find any snapshots to destroy". */
function isAbsent({ code, stderr }: ZfsAnswer): boolean {
  return code !== 0 && /does not exist|could not find any snapshots/.test(stderr);
}

function refused(command: string, answer: ZfsAnswer): VirtkeepError {
  return new VirtkeepError('zfs_failed', { command, reason: reasonIn(answer) });
}

function reasonIn({ code, stderr }: ZfsAnswer): string {
  const said = stderr.trim().split('\n')[0]!.slice(0, 500).replace(/\.$/, '');
  return said || (code === null ? 'it was ended by a signal' : `it ended with ${code}`);
}
