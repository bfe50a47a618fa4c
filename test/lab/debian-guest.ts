/**
 * The Debian guest of lab, demo and the tests of a guest's own commands: systemd, qemu-guest-agent and small tools on an ext4
 * disk, 13 s from start to answer under emulation. It boots the same kernel as the tiny guest, whose initramfs loads the
 * modules and hands over. Run as a program it builds the guest.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { makeExt4 } from './disks.ts';
import { CACHE } from './paths.ts';
import { run } from './run.ts';

const PACKAGES = [
  'systemd-sysv',
  'udev',
  'dbus',
  'qemu-guest-agent',
  'iproute2',
  'procps',
  'util-linux-extra',
];
/** What a guest needs beyond that to be logged in to, and to join a directory domain. */
const DIRECTORY_PACKAGES = [
  'adcli',
  'libnss-sss',
  'libpam-sss',
  'openssh-server',
  'polkitd',
  'realmd',
  'sssd-ad',
  'sssd-tools',
];
const SIZE_MIB = 1024;
/** Background work of a server that only costs time in a guest that lives for minutes. */
const MASKED_UNITS = [
  'apt-daily.timer',
  'apt-daily-upgrade.timer',
  'dev-hugepages.mount',
  'dev-mqueue.mount',
  'dpkg-db-backup.timer',
  'e2scrub_all.timer',
  'e2scrub_reap.service',
  'fstrim.timer',
  'getty@tty1.service',
  'modprobe@configfs.service',
  'modprobe@drm.service',
  'modprobe@efi_pstore.service',
  'modprobe@fuse.service',
  'proc-sys-fs-binfmt_misc.automount',
  'sys-fs-fuse-connections.mount',
  'sys-kernel-debug.mount',
  'sys-kernel-tracing.mount',
  'systemd-networkd-wait-online.service',
  'systemd-pstore.service',
  'systemd-timesyncd.service',
];

/** Kernel command line with which the tiny guest's initramfs starts the Debian system on vda. */
export const DEBIAN_CMDLINE = 'switch_root=/dev/vda';

/** `plain`: systemd and the agent; `directory`: also sshd and what joining a directory domain needs. */
export type DebianVariant = 'plain' | 'directory';

/** The bootable root disk (qcow2, to be copied for each guest). Built once, about half a minute, then cached. */
export async function debianGuest(variant: DebianVariant = 'plain'): Promise<string> {
  const suite = debianSuite();
  const recipe = readFileSync(fileURLToPath(import.meta.url));
  const key = createHash('sha256').update(suite).update(variant).update(recipe).digest('hex').slice(0, 16);
  const image = join(CACHE, 'guest', `debian-${suite}-${variant}-${key}.qcow2`);
  const packages = variant === 'plain' ? PACKAGES : [...PACKAGES, ...DIRECTORY_PACKAGES];
  if (!existsSync(image)) await build(suite, packages, image);
  return image;
}

async function build(suite: string, packages: string[], image: string): Promise<void> {
  mkdirSync(dirname(image), { recursive: true });
  const root = join(CACHE, 'guest', `.debian-root-${process.pid}`);
  const raw = `${image}.${process.pid}.raw`;
  try {
    const slim = ['doc', 'man', 'locale', 'info'].map(name => `--dpkgopt=path-exclude=/usr/share/${name}/*`);
    await debianTree(suite, packages, root, slim);
    customize(root);
    await makeExt4(raw, root, SIZE_MIB, 'root');
    await run(['qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2', raw, `${image}.${process.pid}`]);
    renameSync(`${image}.${process.pid}`, image);
  } finally {
    rmSync(root, { recursive: true, force: true });
    rmSync(raw, { force: true });
  }
}

/** Installs a small Debian of this machine's suite, with packages, into a directory that does not exist yet. */
export async function debianTree(
  suite: string,
  packages: string[],
  root: string,
  options: string[] = [],
): Promise<void> {
  const include = `--include=${packages.join(',')}`;
  const argv = [
    'mmdebstrap',
    '--quiet',
    '--mode=root',
    '--variant=minbase',
    include,
    ...options,
    suite,
    root,
  ];
  await run([argv[0]!, ...argv.slice(1), ...(await sources(suite))], { timeoutMs: 900_000 });
}

function customize(root: string): void {
  const put = (path: string, text: string) => writeFileSync(join(root, path), text);
  put('etc/hostname', 'lab-guest\n');
  put('etc/machine-id', '');
  put(
    'etc/fstab',
    '/dev/vda / ext4 defaults,noatime 0 0\nLABEL=data /mnt/data ext4 defaults,nofail,x-systemd.device-timeout=300 0 0\n',
  );
  mkdirSync(join(root, 'mnt', 'data'));
  // newer than /usr: the first boot rebuilds no caches (systemd-update-done.service)
  for (const path of ['etc/.updated', 'var/.updated']) put(path, '');
  for (const unit of MASKED_UNITS) symlinkSync('/dev/null', join(root, 'etc', 'systemd', 'system', unit));
}

/** Code name of the Debian that this machine runs. */
export function debianSuite(): string {
  const suite = readFileSync('/etc/os-release', 'utf8').match(/^VERSION_CODENAME=(\w+)/m)?.[1];
  if (!suite)
    throw new Error('this machine does not say which Debian it is (/etc/os-release, VERSION_CODENAME)');
  return suite;
}

/** Where this machine gets its own Debian packages from, as sources.list lines: that is known to be reachable. */
async function sources(suite: string): Promise<string[]> {
  const format = '$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(COMPONENT)';
  const { stdout } = await run(['apt-get', 'indextargets', '--format', format, 'Created-By: Packages']);
  const lines = stdout
    .split('\n')
    .map(line => line.split('|'))
    .filter(
      ([origin, codename, , component]) => origin === 'Debian' && codename === suite && component === 'main',
    )
    .map(([, , uri]) => `deb ${uri} ${suite} main`);
  return [...new Set(lines)];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const image = await debianGuest();
  process.stdout.write(`setup: Debian guest ready (${image.slice(CACHE.length + 1)})\n`);
}
