/** A Debian guest that can be logged in to, changed while it is off, and joined to a directory. */
import { defineDebianGuest, type Guest } from '../lab/guest.ts';
import type { LabNode } from '../lab/node.ts';

/** Defines it on a node, connected to a bridge if there is one; it is off. */
export function defineDebian(node: LabNode, name: string, bridge?: string): Promise<Guest> {
  const nic = `<interface type='bridge'><source bridge='${bridge}'/><model type='virtio'/></interface>`;
  return defineDebianGuest(node, { name, memoryMiB: 512, devices: bridge ? nic : '' }, 'directory');
}
