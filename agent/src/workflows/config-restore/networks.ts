/** What an adapter is connected to when the node has not the network that a file names; pure. */
import type { Element } from '@xmldom/xmldom';
import { attr, child, childrenAt, ensureChild, remove } from '../../domain-xml/index.ts';
import { type Appliance, type DomainTarget, type NetworkTarget, networkText } from '../../ovf/index.ts';
import type { NodeFacts, NodeNetworks } from './node-facts.ts';

/** The network or bridge of that name; undefined: the node has none. */
export function networkHere(name: string, { networks, bridges }: NodeNetworks): NetworkTarget | undefined {
  if (networks.includes(name)) return { type: 'network', name };
  return bridges.includes(name) ? { type: 'bridge', name } : undefined;
}

/** The network `default` of libvirt, else the first one, else the first bridge; of a node with none, one that QEMU makes. */
function defaultNetwork({ networks, bridges }: NodeNetworks): NetworkTarget {
  const network = networks.includes('default') ? 'default' : networks[0];
  if (network !== undefined) return { type: 'network', name: network };
  return bridges[0] === undefined ? { type: 'user' } : { type: 'bridge', name: bridges[0] };
}

/** What the domain of an appliance gets of this node. MAC addresses stay: whoever defines it decides about them. */
export function targetHere(
  names: readonly string[],
  facts: NodeFacts,
): Pick<DomainTarget, 'arch' | 'domainType' | 'networks' | 'defaultNetwork' | 'nicMac'> {
  const here = names.flatMap(name => {
    const target = networkHere(name, facts);
    return target ? [[name, target] as const] : [];
  });
  return {
    arch: 'x86_64',
    domainType: facts.hasKvm ? 'kvm' : 'qemu',
    networks: Object.fromEntries(here),
    defaultNetwork: defaultNetwork(facts),
    nicMac: 'keep',
  };
}

/** Networks of the other host that its adapters name, each once. */
export const networksOf = ({ nics }: Appliance): string[] => [
  ...new Set(nics.flatMap(({ network }) => network ?? [])),
];

export interface Connected {
  /** Of the networks and bridges that the adapters named, each once. */
  names: string[];
  /** One for each adapter that named what the node does not have. */
  warnings: { element: string; text: string }[];
}

/** Connects the adapters of a definition to what was chosen, else to what this node has. */
export function applyNetworks(
  domain: Element,
  chosen: Readonly<Record<string, NetworkTarget>>,
  here: NodeNetworks,
): Connected {
  const names = new Set<string>();
  const warnings: Connected['warnings'] = [];
  for (const net of childrenAt(domain, 'devices/interface')) {
    const { type, name } = sourceOf(net);
    if (name !== '') names.add(name);
    const isHere =
      type === 'network' ? here.networks.includes(name) : type === 'bridge' && here.bridges.includes(name);
    const own = Object.hasOwn(chosen, name) ? chosen[name] : undefined;
    if (own === undefined && (isHere || type === 'user')) continue;
    const target = own ?? defaultNetwork(here);
    connect(net, target);
    if (own !== undefined) continue;
    const text = `The node does not have it: its adapters are connected to ${networkText(target)}.`;
    warnings.push({ element: `Network ${type} "${name}"`, text });
  }
  return { names: [...names], warnings };
}

/** Networks and bridges that the adapters of a definition name, each once. */
export const networkNamesOf = (domain: Element): string[] =>
  [...new Set(childrenAt(domain, 'devices/interface').map(net => sourceOf(net).name))].filter(
    name => name !== '',
  );

/** Where libvirt reads the name; other attributes may say something else. */
const NAMED_BY: Readonly<Record<string, string>> = { network: 'network', bridge: 'bridge', direct: 'dev' };

/** `direct` names an interface of the other node, which is another one's here. */
function sourceOf(net: Element): { type: string; name: string } {
  const type = attr(net, 'type') ?? '';
  return { type, name: attr(child(net, 'source'), NAMED_BY[type] ?? 'network') ?? '' };
}

/** What belonged to the former network goes with it; libvirt filters none that QEMU makes. */
function connect(net: Element, target: NetworkTarget): void {
  for (const name of ['source', 'virtualport', 'vlan', ...(target.type === 'user' ? ['filterref'] : [])]) {
    const part = child(net, name);
    if (part) remove(part);
  }
  net.setAttribute('type', target.type);
  if (target.type !== 'user') ensureChild(net, 'source').setAttribute(target.type, target.name);
}
