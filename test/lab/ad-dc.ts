/**
 * A directory domain to join: a Samba domain controller for lab.test in namespaces of its own, with a bridge to which guests
 * are connected. Its system is built and provisioned once; each start works on an overlay of it. Run as a program it builds.
 *
 * The bridge has no address of the machine, so worlds do not meet: who wants to reach a guest goes through the controller's
 * network namespace (`argvInside`).
 */
import type { ChildProcess } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  closeSync,
  existsSync,
  mkdirSync,
  openSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { debianGuest, debianSuite, debianTree } from './debian-guest.ts';
import { CACHE } from './paths.ts';
import { isRunning, signalProcess } from './processes.ts';
import { type RunResult, run, start, succeeds, waitFor } from './run.ts';

export const DIRECTORY = {
  name: 'lab.test',
  login: 'Administrator',
  password: 'Passw0rd.Lab',
  /** A unit that is there from the start. */
  unit: 'OU=Servers,DC=lab,DC=test',
  address: '10.77.0.1',
  /** For the guests: any other of this network. */
  prefix: '10.77.0.',
} as const;

const PACKAGES = ['samba-ad-dc', 'samba-ad-provision', 'ldb-tools'];
/** The interface by which the controller is on the bridge. */
const INTERFACE = 'dc0';
const HOSTS = `127.0.0.1 localhost\n${DIRECTORY.address} dc1.${DIRECTORY.name} dc1\n`;

/** The provisioned system as a directory; built once, about two minutes, then cached. */
export async function domainController(): Promise<string> {
  const suite = debianSuite();
  const recipe = JSON.stringify([suite, PACKAGES, HOSTS, PROVISION]);
  const key = createHash('sha256').update(recipe).digest('hex').slice(0, 16);
  const tree = join(CACHE, 'guest', `ad-dc-${suite}-${key}`);
  if (!existsSync(tree)) await build(suite, tree);
  return tree;
}

async function build(suite: string, tree: string): Promise<void> {
  mkdirSync(dirname(tree), { recursive: true });
  const work = `${tree}.${process.pid}`;
  try {
    await debianTree(
      suite,
      PACKAGES,
      work,
      ['doc', 'man', 'locale'].map(name => `--dpkgopt=path-exclude=/usr/share/${name}/*`),
    );
    rmSync(join(work, 'etc', 'samba', 'smb.conf'), { force: true });
    writeFileSync(join(work, 'etc', 'hosts'), HOSTS);
    writeFileSync(
      join(work, 'etc', 'resolv.conf'),
      `search ${DIRECTORY.name}\nnameserver ${DIRECTORY.address}\n`,
    );
    await run(['unshare', '-n', '-u', '-m', 'sh', '-ec', PROVISION, 'sh', work], { timeoutMs: 900_000 });
    renameSync(work, tree);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
}

const PROVISION = `
hostname dc1
ip link set lo up
ip link add ${INTERFACE} type bridge
ip addr add ${DIRECTORY.address}/24 dev ${INTERFACE}
ip link set ${INTERFACE} up
mount -t proc proc "$1/proc"
rm -rf "$1"/var/lib/samba "$1"/var/cache/samba
mkdir -p "$1/var/lib/samba/private" "$1/var/cache/samba" "$1/var/log/samba"
chroot "$1" samba-tool domain provision --use-rfc2307 --realm=LAB.TEST --domain=LAB --server-role=dc \\
  --dns-backend=SAMBA_INTERNAL --adminpass='${DIRECTORY.password}' --host-ip=${DIRECTORY.address} \\
  --option='interfaces=lo ${INTERFACE}' --option='bind interfaces only=yes'
chroot "$1" cp /var/lib/samba/private/krb5.conf /etc/krb5.conf
chroot "$1" samba-tool ou create '${DIRECTORY.unit}'
`;

/** $1: the system, $2: a directory for this run. */
const SERVE = `
hostname dc1
ip link set lo up
i=0
until ip link show ${INTERFACE} >/dev/null 2>&1; do sleep 0.1; i=$((i + 1)); [ $i -lt 600 ]; done
ip addr add ${DIRECTORY.address}/24 dev ${INTERFACE}
ip link set ${INTERFACE} up
mkdir -p "$2/upper" "$2/work" "$2/root"
mount -t overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" dc "$2/root"
mount -t proc proc "$2/root/proc"
mount --bind /dev "$2/root/dev"
mkdir -p "$2/root/run/samba"
exec chroot "$2/root" samba --foreground --no-process-group
`;

/** A running controller. */
export class DomainController {
  /** Bridge for `<interface type='bridge'>` of guests. */
  readonly bridge: string;
  readonly #dir: string;
  readonly #process: ChildProcess;

  constructor(dir: string, bridge: string, process: ChildProcess) {
    this.#dir = dir;
    this.bridge = bridge;
    this.#process = process;
  }

  /** A command line that runs in the controller's network, with the programs of this machine. */
  argvInside(argv: readonly string[]): [string, ...string[]] {
    return ['nsenter', '-t', String(this.#process.pid), '-n', ...argv];
  }

  /** Runs samba-tool on the controller. */
  async sambaTool(...args: string[]): Promise<RunResult> {
    const where = ['nsenter', '-t', String(this.#process.pid), '-n', '-m', '-u'] as const;
    return run([...where, 'chroot', join(this.#dir, 'root'), 'samba-tool', ...args]);
  }

  /** Computer accounts, as the directory names them: DNs. */
  async computers(): Promise<string[]> {
    const { stdout } = await this.sambaTool('computer', 'list', '--full-dn');
    return stdout.trim().split('\n').filter(Boolean);
  }

  async stop(): Promise<void> {
    const { pid } = this.#process;
    if (pid !== undefined && isRunning(pid)) {
      // its child, the first process of a namespace, goes with it, and so do all others
      signalProcess(pid, 'SIGKILL');
      await waitFor('the end of the domain controller', () => !isRunning(pid), 60_000);
    }
    await succeeds(['ip', 'link', 'delete', this.bridge]);
  }
}

/** Starts a controller, a second or two. @param dir a directory of the test's world, for what it writes */
export async function startDomainController(dir: string): Promise<DomainController> {
  const tree = await domainController();
  mkdirSync(dir, { recursive: true });
  const log = openSync(join(dir, 'log'), 'a');
  const holder = [
    'unshare',
    '-n',
    '-u',
    '-m',
    '-p',
    '--fork',
    '--kill-child',
    '--',
    'sh',
    '-ec',
    SERVE,
    'sh',
    tree,
    dir,
  ];
  const child = start([holder[0]!, ...holder.slice(1)], { stdio: ['ignore', log, log], detached: true });
  closeSync(log);
  const bridge = `vkad${process.pid}`;
  const controller = new DomainController(dir, bridge, child);
  try {
    await connect(bridge, child.pid!);
    const isUp = () =>
      succeeds(controller.argvInside(['bash', '-c', `exec 3<>/dev/tcp/${DIRECTORY.address}/389`]));
    await waitFor('the domain controller', isUp, 240_000, 300);
    await waitFor(
      'the directory',
      () =>
        controller.computers().then(
          found => found.length > 0,
          () => false,
        ),
      240_000,
      300,
    );
  } catch (error) {
    await controller.stop();
    throw new Error(`${(error as Error).message}\n${readFileSync(join(dir, 'log'), 'utf8').slice(-2000)}`);
  }
  return controller;
}

async function connect(bridge: string, pid: number): Promise<void> {
  const ip = (...args: string[]) => run(['ip', ...args]);
  const port = `${bridge}p`;
  await succeeds(['ip', 'link', 'delete', bridge]);
  const network = (of: number | 'self') => readlinkSync(`/proc/${of}/ns/net`);
  await waitFor('a network of its own', () => network(pid) !== network('self'), 60_000);
  await ip('link', 'add', bridge, 'type', 'bridge');
  await ip('link', 'set', bridge, 'up');
  await ip('link', 'add', port, 'type', 'veth', 'peer', 'name', INTERFACE, 'netns', String(pid));
  await ip('link', 'set', port, 'master', bridge, 'up');
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const missing = await directoryLabMissing();
  process.stdout.write(
    `setup: ${missing ? `${missing}; tests of directories will be skipped` : 'directory domain ready'}\n`,
  );
}

/** Why no directory can be had on this machine, or null; builds it, and the guest that can join it. */
export async function directoryLabMissing(): Promise<string | null> {
  const both = Promise.all([domainController(), debianGuest('directory')]);
  return both.then(
    () => null,
    error => `a domain controller and its guest cannot be built: ${(error as Error).message.slice(0, 300)}`,
  );
}
