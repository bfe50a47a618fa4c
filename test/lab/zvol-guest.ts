/**
 * A Debian guest with OpenZFS, for what zfs-fuse does not have: volumes. Its kernel modules are built once, by dkms in the
 * guest's own tree, which takes 7 minutes on a small machine; the image is cached. Nothing of it is needed unless
 * VIRTKEEP_ZVOL=1 asks for the tests of volumes.
 */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { debianSuite } from './debian-guest.ts';
import { makeExt4 } from './disks.ts';
import { cloudKernel } from './kernel.ts';
import { CACHE } from './paths.ts';
import { run } from './run.ts';

const PACKAGES = [
  'systemd-sysv', 'udev', 'dbus', 'kmod', 'procps', 'qemu-guest-agent', 'qemu-utils', 'zfs-dkms', 'zfsutils-linux',
]; // biome-ignore format: a list
const SIZE_MIB = 2048;
const BUILD_TIMEOUT_MS = 3_600_000;
/** The pool is made by the test; importing and mounting at boot only costs time. */
const MASKED_UNITS = [
  'apt-daily.timer',
  'apt-daily-upgrade.timer',
  'dpkg-db-backup.timer',
  'e2scrub_reap.service',
  'zfs-import-cache.service',
  'zfs-import-scan.service',
  'zfs-mount.service',
  'zfs-share.service',
  'zfs-zed.service',
];

/** The bootable root disk (qcow2, to be copied for each guest); started with `DEBIAN_CMDLINE`. */
export async function zvolGuest(): Promise<string> {
  const suite = debianSuite();
  const { version } = await cloudKernel();
  const recipe = readFileSync(fileURLToPath(import.meta.url));
  const key = createHash('sha256').update(suite).update(version).update(recipe).digest('hex').slice(0, 16);
  const image = join(CACHE, 'guest', `zvol-${suite}-${key}.qcow2`);
  if (!existsSync(image)) await build(suite, version, image);
  return image;
}

async function build(suite: string, kernel: string, image: string): Promise<void> {
  mkdirSync(dirname(image), { recursive: true });
  const root = join(CACHE, 'guest', `.zvol-root-${process.pid}`);
  const raw = `${image}.${process.pid}.raw`;
  const slim = ['doc', 'man', 'locale'].map(name => `--dpkgopt=path-exclude=/usr/share/${name}/*`);
  const include = `--include=${[...PACKAGES, `linux-headers-${kernel}`].join(',')}`;
  try {
    const argv = ['mmdebstrap', '--quiet', '--mode=root', '--variant=minbase', include, ...slim, suite, root];
    await run(['nice', ...argv, ...(await sources())], { timeoutMs: BUILD_TIMEOUT_MS });
    customize(root);
    await makeExt4(raw, root, SIZE_MIB, 'root');
    await run(['qemu-img', 'convert', '-f', 'raw', '-O', 'qcow2', raw, `${image}.${process.pid}`]);
    renameSync(`${image}.${process.pid}`, image);
  } finally {
    rmSync(root, { recursive: true, force: true });
    rmSync(raw, { force: true });
  }
}

function customize(root: string): void {
  writeFileSync(join(root, 'etc', 'hostname'), 'zvol\n');
  writeFileSync(join(root, 'etc', 'machine-id'), '');
  writeFileSync(join(root, 'etc', 'fstab'), '/dev/vda / ext4 defaults,noatime 0 0\n');
  for (const path of ['etc/.updated', 'var/.updated']) writeFileSync(join(root, path), '');
  for (const unit of MASKED_UNITS) symlinkIfAbsent('/dev/null', join(root, 'etc', 'systemd', 'system', unit));
}

function symlinkIfAbsent(target: string, path: string): void {
  rmSync(path, { force: true });
  symlinkSync(target, path);
}

/** Debian's sources of this machine, with contrib: there zfs-dkms is. */
async function sources(): Promise<string[]> {
  const format = '$(ORIGIN)|$(CODENAME)|$(REPO_URI)|$(COMPONENT)';
  const { stdout } = await run(['apt-get', 'indextargets', '--format', format, 'Created-By: Packages']);
  const lines = stdout
    .split('\n')
    .map(line => line.split('|'))
    .filter(([origin, , , component]) => origin === 'Debian' && component === 'main')
    .map(([, codename, uri]) => `deb ${uri} ${codename} main contrib`);
  return [...new Set(lines)];
}
