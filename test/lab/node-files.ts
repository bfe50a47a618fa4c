/** What makes a node's libvirt its own: settings, directories, and the user it insists on. */
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { displayPorts } from './free-port.ts';
import type { LabNode } from './node.ts';
import { CACHE } from './paths.ts';

/** Directories of the host that the node sees its own version of. */
const PRIVATE_DIRECTORIES: Record<string, string> = {
  etc: '/etc/libvirt',
  lib: '/var/lib/libvirt',
  run: '/run/libvirt',
  log: '/var/log/libvirt',
  tpmca: '/var/lib/swtpm-localca',
};
/** What QEMU can do takes libvirt 4 s to find out; all nodes share that knowledge (libvirt checks that it still holds). */
const SHARED_CACHE = join(CACHE, 'libvirt');
const QEMU_USER = 'libvirt-qemu';
/** Hidden where they exist, so that no machine manager of the host hears of our guests. */
const HIDDEN_DIRECTORIES = ['/run/dbus', '/run/systemd'];

export const OWN_DIRECTORIES = Object.keys(PRIVATE_DIRECTORIES);

/** Settings of the node's libvirtd: everything as root, nothing that a container does not have. */
export function writeLibvirtConfig(dir: string, hostUuid: string): void {
  const { first, last } = displayPorts();
  // no cgroups, no second namespace, no log daemon: none of them is there in a container, and none is under test
  writeFileSync(
    join(dir, 'etc', 'qemu.conf'),
    `stdio_handler = "file"\ncgroup_controllers = [ ]\nsecurity_driver = "none"\nnamespaces = [ ]\n` +
      `user = "root"\ngroup = "root"\nswtpm_user = "root"\nswtpm_group = "root"\nremember_owner = 0\n` +
      `remote_display_port_min = ${first}\nremote_display_port_max = ${last}\n`,
  );
  writeFileSync(
    join(dir, 'etc', 'libvirtd.conf'),
    `host_uuid = "${hostUuid}"\nunix_sock_group = "root"\nunix_sock_rw_perms = "0770"\nauth_unix_rw = "none"\nauth_unix_ro = "none"\n`,
  );
}

/** Puts the node's own directories, inside its namespace, where programs look for libvirt's. */
export async function enterPrivateDirectories(node: LabNode): Promise<void> {
  for (const [own, host] of Object.entries(PRIVATE_DIRECTORIES)) {
    mkdirSync(host, { recursive: true });
    // with what is mounted inside of it
    await node.runInside(['mount', '--rbind', join(node.dir, own), host]);
  }
  mkdirSync(SHARED_CACHE, { recursive: true });
  mkdirSync('/var/cache/libvirt', { recursive: true });
  await node.runInside(['mount', '--bind', SHARED_CACHE, '/var/cache/libvirt']);
  for (const hidden of HIDDEN_DIRECTORIES) {
    if (existsSync(hidden)) await node.runInside(['mount', '-t', 'tmpfs', 'none', hidden]);
  }
  await withoutKvm(node);
  await addBuiltInUser(node);
  await node.runInside(['hostname', node.name]);
}

/**
 * Takes KVM from the node, as on a machine without it: where it is there but hangs, nothing would end a test. libvirt also takes
 * what QEMU can do under KVM for outdated, and finds it out anew for 4 to 8 s, whenever it is started on another processor of a
 * machine whose processors tell their numbers. A file that nobody can write is no KVM for libvirt, not even for root.
 */
async function withoutKvm(node: LabNode): Promise<void> {
  if (!existsSync('/dev/kvm')) return;
  const nothing = join(node.dir, 'etc', 'no-kvm');
  writeFileSync(nothing, '');
  await node.runInside(['mount', '--bind', '-o', 'ro', nothing, '/dev/kvm']);
}

/**
 * libvirt 9 does not start without the user it was built for, although no guest of ours runs as it. Where no package has
 * made that user, the node alone has it.
 */
async function addBuiltInUser(node: LabNode): Promise<void> {
  const lines = {
    passwd: `${QEMU_USER}:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n`,
    group: `${QEMU_USER}:x:64055:\n`,
  };
  for (const [name, line] of Object.entries(lines)) {
    const text = readFileSync(`/etc/${name}`, 'utf8');
    if (text.split('\n').some(entry => entry.startsWith(`${QEMU_USER}:`))) continue;
    const own = join(node.dir, 'etc', name);
    writeFileSync(own, `${text.trimEnd()}\n${line}`);
    await node.runInside(['mount', '--bind', own, `/etc/${name}`]);
  }
}
