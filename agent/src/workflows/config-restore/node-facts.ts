/** What of a node a VM without disks depends on. */
import { access, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Libvirt } from '@virtkeep/node-libvirt';

export interface NodeNetworks {
  /** Of libvirt, running or not. */
  networks: readonly string[];
  bridges: readonly string[];
}

export interface NodeFacts extends NodeNetworks {
  hasKvm: boolean;
}

const INTERFACES = '/sys/class/net';

/** @throws LibvirtError */
export async function readFacts(libvirt: Libvirt): Promise<NodeFacts> {
  const links = await readdir(INTERFACES).catch(() => []);
  const isBridge = async (name: string) =>
    access(join(INTERFACES, name, 'bridge')).then(
      () => true,
      () => false,
    );
  const bridges = await Promise.all(links.map(async name => ((await isBridge(name)) ? [name] : [])));
  return {
    networks: (await libvirt.networks()).sort(),
    bridges: bridges.flat().sort(),
    hasKvm: /<domain type=['"]kvm['"]/.test(await libvirt.capabilities()),
  };
}
