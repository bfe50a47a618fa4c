/**
 * A hypervisor node for tests and the lab: a private libvirtd in a mount and UTS namespace of its own. The machine's own
 * libvirtd is never seen: /etc/libvirt, /var/lib/libvirt, /run/libvirt and their kin are the node's own directories.
 *
 * A holder process keeps the namespace; libvirtd, its QEMU processes and whatever `spawnInside` starts live in it.
 * Stopping a node ends every process of the namespace, and with the last one its mounts are gone too.
 */
import type { ChildProcess, SpawnOptions } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { enterPrivateDirectories, OWN_DIRECTORIES, writeLibvirtConfig } from './node-files.ts';
import { isRunning, listProcesses, mountNamespaceOf, type Process, signalProcess } from './processes.ts';
import { reaping } from './reaping.ts';
import { type RunOptions, type RunResult, run, start, succeeds, waitFor } from './run.ts';
import { endVirsh, virsh } from './virsh.ts';

export interface PoolSpec {
  name: string;
  /** Default: `<node dir>/pools/<name>`. Two nodes with the same uuid and path share the pool. */
  path?: string;
  uuid?: string;
}

export interface NodeOptions {
  name: string;
  /** The node's files; made if need be, and removed by `stop` unless `keepDir`. Short: it holds unix sockets. */
  dir: string;
  /** Default: two pools, "fast" and "bulk". */
  pools?: PoolSpec[];
  keepDir?: boolean;
}

export interface Pool {
  name: string;
  uuid: string;
  path: string;
}

/** What a stopped or another process needs to take over a node; stands in `<dir>/node.json`. */
interface NodeState {
  name: string;
  hostUuid: string;
  holderPid: number;
  mountNamespace: string;
  pools: Pool[];
}

export class LabNode {
  readonly name: string;
  readonly dir: string;
  readonly pools: Pool[];
  readonly #state: NodeState;
  readonly #keepDir: boolean;

  constructor(state: NodeState, dir: string, keepDir: boolean) {
    this.name = state.name;
    this.dir = dir;
    this.pools = state.pools;
    this.#state = state;
    this.#keepDir = keepDir;
  }

  /** libvirt's socket as seen from outside of the node. */
  get socket(): string {
    return join(this.dir, 'run', 'libvirt-sock');
  }

  /** Connection URI for programs outside of the node; inside it is `qemu:///system`. */
  get uri(): string {
    return `qemu+unix:///system?socket=${this.socket}`;
  }

  /** Pid of the running libvirtd, undefined while it is down. */
  get libvirtdPid(): number | undefined {
    const path = join(this.dir, 'run', 'libvirtd.pid');
    const pid = existsSync(path) ? Number(readFileSync(path, 'utf8')) : Number.NaN;
    return Number.isInteger(pid) && isRunning(pid) ? pid : undefined;
  }

  /** @param which index or name of a pool */
  pool(which: number | string): Pool {
    const pool =
      typeof which === 'number' ? this.pools[which] : this.pools.find(({ name }) => name === which);
    if (!pool) throw new Error(`the node ${this.name} has no pool ${which}`);
    return pool;
  }

  /** Prefix that puts a program into the node: there all paths are as in production. */
  insideArgv(argv: readonly string[]): [string, ...string[]] {
    return [
      'nsenter',
      `--target=${this.#state.holderPid}`,
      '--mount',
      '--uts',
      `--wd=${process.cwd()}`,
      '--',
      ...argv,
    ];
  }

  /** Starts a program inside the node, which `stop` ends if nobody did before. Its pid is the program's own. */
  spawnInside(argv: readonly string[], options: SpawnOptions = {}): ChildProcess {
    return start(this.insideArgv(argv), options);
  }

  runInside(argv: readonly string[], options: RunOptions = {}): Promise<RunResult> {
    return run(this.insideArgv(argv), options);
  }

  /** Runs virsh on this node and returns what it printed, without the closing newline. */
  async virsh(...args: string[]): Promise<string> {
    return (await virsh(this.uri, this.libvirtdPid, args)).trimEnd();
  }

  /** The node's uuid in libvirt. */
  get hostUuid(): string {
    return this.#state.hostUuid;
  }

  /** Counts a pool that was defined later among the node's own, also for who adopts the node. */
  rememberPool(pool: Pool): void {
    this.pools.push(pool);
    writeFileSync(join(this.dir, 'node.json'), JSON.stringify(this.#state));
  }

  /** Everything that lives in the node, the holder included. */
  processes(): Process[] {
    return listProcesses().filter(({ mountNamespace }) => mountNamespace === this.#state.mountNamespace);
  }

  pids(): number[] {
    return this.processes().map(({ pid }) => pid);
  }

  /** kill -9 of libvirtd; its guests run on. */
  async killLibvirtd(): Promise<void> {
    await this.#endLibvirtd('SIGKILL');
  }

  async startLibvirtd(): Promise<void> {
    let libvirtd = this.#spawnLibvirtd();
    const answers = () => {
      // threads of one that was killed may hold its pid file for a while after it is gone: then the new one ends at once
      if (libvirtd.exitCode !== null) libvirtd = this.#spawnLibvirtd();
      return succeeds(['virsh', '-q', '-c', this.uri, 'list'], { timeoutMs: 60_000 });
    };
    await waitFor(`libvirtd of ${this.name}`, answers, 120_000).catch(error => {
      throw new Error(
        `${error.message}\n${readFileSync(join(this.dir, 'log', 'libvirtd.log'), 'utf8').slice(-2000)}`,
      );
    });
  }

  #spawnLibvirtd(): ChildProcess {
    const log = openSync(join(this.dir, 'log', 'libvirtd.log'), 'a');
    const child = this.spawnInside(reaping(['libvirtd', '-p', '/run/libvirt/libvirtd.pid']), {
      stdio: ['ignore', log, log],
      detached: true,
    });
    closeSync(log);
    return child;
  }

  async restartLibvirtd(): Promise<void> {
    await this.#endLibvirtd('SIGTERM');
    await this.startLibvirtd();
  }

  async #endLibvirtd(signal: NodeJS.Signals): Promise<void> {
    const pid = this.libvirtdPid;
    if (pid === undefined) return;
    signalProcess(pid, signal);
    await waitFor(`the end of libvirtd of ${this.name}`, () => !isRunning(pid), 120_000, 20);
  }

  /** Ends every process of the node and removes its files. May be called twice. */
  async stop(): Promise<void> {
    const { holderPid, mountNamespace } = this.#state;
    // a recycled pid must not be taken for ours
    const mine = () =>
      this.pids().filter(pid => mountNamespace !== mountNamespaceOf('self') && pid !== holderPid);
    await waitFor(
      `the end of the processes of ${this.name}`,
      () => {
        const left = mine();
        for (const pid of left) signalProcess(pid, 'SIGKILL');
        return left.length === 0;
      },
      120_000,
      30,
    );
    if (mountNamespaceOf(holderPid) === mountNamespace) signalProcess(holderPid, 'SIGKILL');
    await waitFor(`the end of ${this.name}`, () => this.pids().length === 0, 120_000, 20);
    // last: somebody may have asked meanwhile
    await endVirsh(this.uri);
    if (!this.#keepDir && !this.#holdsMounts()) rmSync(this.dir, { recursive: true, force: true });
  }

  /** Those of a world outlast the node, and go with the world. */
  #holdsMounts(): boolean {
    return readFileSync('/proc/self/mounts', 'utf8').includes(` ${this.dir}/`);
  }
}

/** Makes and starts a node (0.3–0.6 s); one that was in `dir` before keeps its uuids and its guests' definitions. */
export async function startNode(options: NodeOptions): Promise<LabNode> {
  const { dir } = options;
  const before = readState(dir);
  for (const own of ['', ...OWN_DIRECTORIES]) mkdirSync(join(dir, own), { recursive: true });
  // the directory itself may be a mount point
  for (const name of readdirSync(join(dir, 'run'))) rmSync(join(dir, 'run', name), { recursive: true });
  const hostUuid = before?.hostUuid ?? randomUUID();
  writeLibvirtConfig(dir, hostUuid);
  const { holderPid, mountNamespace } = await startHolder();
  const pools = (options.pools ?? [{ name: 'fast' }, { name: 'bulk' }]).map(spec => ({
    name: spec.name,
    uuid: spec.uuid ?? before?.pools.find(({ name }) => name === spec.name)?.uuid ?? randomUUID(),
    path: spec.path ?? join(dir, 'pools', spec.name),
  }));
  const state: NodeState = { name: options.name, hostUuid, holderPid, mountNamespace, pools };
  writeFileSync(join(dir, 'node.json'), JSON.stringify(state));
  const node = new LabNode(state, dir, options.keepDir ?? false);
  try {
    await enterPrivateDirectories(node);
    await node.startLibvirtd();
    for (const pool of pools) await definePool(node, pool);
  } catch (error) {
    await node.stop();
    throw error;
  }
  return node;
}

/** Starts the process that keeps the namespaces of a node. */
async function startHolder(): Promise<{ holderPid: number; mountNamespace: string }> {
  const holder = start(['unshare', '--mount', '--uts', '--propagation', 'private', 'sleep', 'infinity'], {
    detached: true,
  });
  const holderPid = holder.pid;
  if (holderPid === undefined) throw new Error('unshare could not be started');
  const outside = mountNamespaceOf('self');
  const mountNamespace = await waitFor(
    'the namespace of the node',
    () => {
      if (!isRunning(holderPid)) throw new Error('unshare failed: root and mount namespaces are needed');
      const namespace = mountNamespaceOf(holderPid);
      const entered =
        namespace !== outside && readFileSync(`/proc/${holderPid}/comm`, 'utf8').trim() === 'sleep';
      return entered ? namespace : undefined;
    },
    120_000,
    5,
  );
  return { holderPid, mountNamespace };
}

/** Takes over a node that another process started; undefined when there is none alive in `dir`. */
export function adoptNode(dir: string, keepDir = false): LabNode | undefined {
  const state = readState(dir);
  if (!state || mountNamespaceOf(state.holderPid) !== state.mountNamespace) return undefined;
  return new LabNode(state, dir, keepDir);
}

function readState(dir: string): NodeState | undefined {
  const path = join(dir, 'node.json');
  return existsSync(path) ? (JSON.parse(readFileSync(path, 'utf8')) as NodeState) : undefined;
}

/** Defines, starts and autostarts a directory pool. */
export async function definePool(node: LabNode, pool: Pool): Promise<void> {
  mkdirSync(pool.path, { recursive: true });
  const file = join(node.dir, `pool-${pool.name}.xml`);
  writeFileSync(
    file,
    `<pool type='dir'><name>${pool.name}</name><uuid>${pool.uuid}</uuid><target><path>${pool.path}</path></target></pool>\n`,
  );
  await node.virsh('pool-define', file);
  // one that starts by itself may run already
  const info = await node.virsh('pool-info', pool.name);
  if (!/^State:\s+running/m.test(info)) await node.virsh('pool-start', pool.name);
  await node.virsh('pool-autostart', pool.name);
  rmSync(file);
  if (!node.pools.includes(pool)) node.rememberPool(pool);
}
