/** A Debian guest that can be logged in to, changed while it is off, and joined to a directory. */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { defineDebianGuest, type Guest } from '../lab/guest.ts';
import type { LabNode } from '../lab/node.ts';

/** Defines it on a node, connected to a bridge if there is one; it is off. */
export function defineDebian(node: LabNode, name: string, bridge?: string): Promise<Guest> {
  const nic = `<interface type='bridge'><source bridge='${bridge}'/><model type='virtio'/></interface>`;
  return defineDebianGuest(node, { name, memoryMiB: 512, devices: bridge ? nic : '' }, 'directory');
}

/** Takes KVM from a node, as on a machine without it. Where it is there but hangs, nothing would end a test. */
export async function withoutKvm(node: LabNode): Promise<void> {
  const nothing = join(node.dir, 'no-kvm');
  writeFileSync(nothing, '');
  await node.runInside(['sh', '-c', '[ ! -e /dev/kvm ] || mount --bind "$1" /dev/kvm', 'sh', nothing]);
}
