// A private libvirtd for one test file: own mount namespace, configuration, state and socket; no daemon of the machine is
// touched. It runs in the foreground as a child, so it ends by its pid.

import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { cp, mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type ConnectOptions, connect, type Libvirt } from '../src/index.ts';

/** The directory's parts with the place of each in the daemon's namespace. */
const PARTS = {
  etc: '/etc/libvirt',
  lib: '/var/lib/libvirt',
  run: '/run/libvirt',
  log: '/var/log/libvirt',
};
/** What QEMU can do takes libvirt 4 s to find out: all test daemons share that knowledge (libvirt checks that it still holds). */
const SHARED_CACHE = join(import.meta.dirname, '../../../.cache/libvirt');
const START_MS = 240_000;

/**
 * Arguments: the directory, the shared cache, then pairs of part and place. libvirt 9 does not start without the user it was built for,
 * although no guest runs as it; where no package has made that user, this daemon alone has it. KVM is taken from it: libvirt takes
 * what QEMU can do under KVM for outdated whenever it is started on another processor of some machines.
 */
const SCRIPT = `
d=$1; cache=$2; shift 2
mkdir -p "$cache" /var/cache/libvirt; mount --bind "$cache" /var/cache/libvirt || exit 1
if [ -e /dev/kvm ]; then : > "$d/no-kvm"; mount --bind -o ro "$d/no-kvm" /dev/kvm || exit 1; fi
while [ $# -gt 0 ]; do mkdir -p "$2"; mount --bind "$d/$1" "$2" || exit 1; shift 2; done
if ! getent passwd libvirt-qemu >/dev/null; then
  { cat /etc/passwd; echo 'libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin'; } > "$d/passwd"
  { cat /etc/group; echo 'libvirt-qemu:x:64055:'; } > "$d/group"
  mount --bind "$d/passwd" /etc/passwd && mount --bind "$d/group" /etc/group || exit 1
fi
exec libvirtd -p /run/libvirt/libvirtd.pid`;

export class TestLibvirtd {
  readonly dir: string;
  readonly #hostUuid = randomUUID();
  #child: ChildProcess | undefined;

  constructor(dir: string) {
    this.dir = dir;
  }

  static async start(): Promise<TestLibvirtd> {
    const daemon = new TestLibvirtd(await mkdtemp(join(tmpdir(), 'node-libvirt-')));
    await daemon.#prepare();
    await daemon.up();
    return daemon;
  }

  get uri(): string {
    return `qemu+unix:///system?socket=${this.dir}/run/libvirt-sock`;
  }

  get pid(): number {
    return this.#child!.pid!;
  }

  async #prepare(): Promise<void> {
    for (const part of Object.keys(PARTS)) await mkdir(join(this.dir, part));
    await cp('/etc/libvirt', join(this.dir, 'etc'), { recursive: true });
    for (const used of ['qemu', 'storage', 'autostart'])
      await rm(join(this.dir, 'etc', used), { recursive: true, force: true });
    for (const sub of ['images', 'qemu', 'boot', 'dnsmasq']) await mkdir(join(this.dir, 'lib', sub));
    const qemu = ['user = "root"', 'group = "root"', 'security_driver = "none"', 'stdio_handler = "file"'];
    await writeFile(
      join(this.dir, 'etc/qemu.conf'),
      [...qemu, 'cgroup_controllers = [ ]', 'namespaces = [ ]', ''].join('\n'),
    );
    const daemon = [
      `host_uuid = "${this.#hostUuid}"`,
      'auth_unix_rw = "none"',
      'unix_sock_rw_perms = "0700"',
    ];
    await writeFile(join(this.dir, 'etc/libvirtd.conf'), [...daemon, ''].join('\n'));
  }

  get hostUuid(): string {
    return this.#hostUuid;
  }

  /** Starts the daemon; running domains of a former one are taken over. */
  async up(): Promise<void> {
    await rm(join(this.dir, 'run/libvirt-sock'), { force: true });
    const args = ['-m', '--propagation', 'private', 'bash', '-c', SCRIPT, 'libvirtd', this.dir, SHARED_CACHE];
    this.#child = spawn('unshare', [...args, ...Object.entries(PARTS).flat()], { stdio: 'ignore' });
    const deadline = Date.now() + START_MS;
    for (;;) {
      const probe = await connect(this.uri, { events: false, connectTimeoutMs: 20_000 }).catch(
        () => undefined,
      );
      if (probe) return probe.close();
      if (Date.now() > deadline || this.#child.exitCode !== null) throw new Error('libvirtd did not start');
      await delay(50);
    }
  }

  /** Ends the daemon with a signal; its domains run on. */
  async kill(signal: NodeJS.Signals = 'SIGKILL'): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const exit = once(child, 'exit');
    child.kill(signal);
    await exit;
  }

  /** Ends the daemon and what is left of its domains, and removes everything. */
  async stop(): Promise<void> {
    await this.kill('SIGKILL');
    for (const file of await readdir(join(this.dir, 'run/qemu')).catch(() => [])) {
      if (!file.endsWith('.pid')) continue;
      const pid = Number(await readFile(join(this.dir, 'run/qemu', file), 'utf8'));
      if (pid > 1) killQuietly(pid);
    }
    await rm(this.dir, { recursive: true, force: true, maxRetries: 5 });
  }

  connect(options: ConnectOptions = {}): Promise<Libvirt> {
    return connect(this.uri, options);
  }
}

function killQuietly(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // Gone already.
  }
}
