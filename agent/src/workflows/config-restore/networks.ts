/** Which networks a node has, and what an adapter is connected to when it has not the one that a file names. */
import { access, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Libvirt } from '@virtkeep/node-libvirt';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Element } from '@xmldom/xmldom';
import { attr, child, childrenAt, ensureChild, remove } from '../../domain-xml/index.ts';
import { type NetworkTarget, networkText } from '../../ovf/index.ts';

export interface NodeNetworks {
  node: string;
  /** Of libvirt, running or not. */
  networks: readonly string[];
  bridges: readonly string[];
}

const INTERFACES = '/sys/class/net';

/** @throws LibvirtError */
export async function readNetworks(libvirt: Libvirt, node: string): Promise<NodeNetworks> {
  const links = await readdir(INTERFACES).catch(() => []);
  const isBridge = async (name: string) =>
    access(join(INTERFACES, name, 'bridge')).then(
      () => true,
      () => false,
    );
  const found = await Promise.all(links.map(async name => ((await isBridge(name)) ? [name] : [])));
  return { node, networks: (await libvirt.networks()).sort(), bridges: found.flat().sort() };
}

/** The network `default` of libvirt, else the first one, else the first bridge; of a node with none, one that QEMU makes. */
export function defaultNetwork({ networks, bridges }: NodeNetworks): NetworkTarget {
  const network = networks.includes('default') ? 'default' : networks[0];
  if (network !== undefined) return { type: 'network', name: network };
  return bridges[0] === undefined ? { type: 'user' } : { type: 'bridge', name: bridges[0] };
}

/**
 * What a user has chosen, by the names of the file.
 * @throws VirtkeepError network_not_found
 */
export function chosenNetworks(
  chosen: Readonly<Record<string, string>>,
  { node, networks, bridges }: NodeNetworks,
): Record<string, NetworkTarget> {
  const targetOf = (name: string): NetworkTarget => {
    if (networks.includes(name)) return { type: 'network', name };
    if (bridges.includes(name)) return { type: 'bridge', name };
    const names = [...networks, ...bridges].join(', ') || 'none';
    throw new VirtkeepError('network_not_found', { node, name, names });
  };
  return Object.fromEntries(Object.entries(chosen).map(([name, to]) => [name, targetOf(to)]));
}

/**
 * Connects the adapters of a definition to what this node has.
 * @returns a warning for each that names something else
 */
export function applyNetworks(
  domain: Element,
  chosen: Readonly<Record<string, NetworkTarget>>,
  here: NodeNetworks,
): { element: string; text: string }[] {
  const warnings: { element: string; text: string }[] = [];
  for (const net of childrenAt(domain, 'devices/interface')) {
    const { type, name } = sourceOf(net);
    const isHere =
      type === 'network' ? here.networks.includes(name) : type === 'bridge' && here.bridges.includes(name);
    const own = Object.hasOwn(chosen, name) ? chosen[name] : undefined;
    if (own === undefined && (isHere || type === 'user' || type === 'internal')) continue;
    const target = own ?? defaultNetwork(here);
    connect(net, target);
    if (own !== undefined) continue;
    const text = `The node does not have it: its adapters are connected to ${networkText(target)}.`;
    warnings.push({ element: `Network ${type} "${name}"`, text });
  }
  return warnings;
}

/** `direct` names an interface of the other node, which is another one's here. */
function sourceOf(net: Element): { type: string; name: string } {
  const type = attr(net, 'type') ?? '';
  const source = child(net, 'source');
  const name = attr(source, 'network') ?? attr(source, 'bridge') ?? attr(source, 'dev') ?? '';
  return { type, name };
}

/** What belonged to the former network goes with it. */
function connect(net: Element, target: NetworkTarget): void {
  for (const name of ['source', 'virtualport', 'vlan']) {
    const part = child(net, name);
    if (part) remove(part);
  }
  net.setAttribute('type', target.type);
  if (target.type !== 'user') ensureChild(net, 'source').setAttribute(target.type, target.name);
}
