/** The networks that a user has chosen for a file: those of the node must be there, and those of the file, too. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { listed, type NetworkTarget, quoted } from '../../ovf/index.ts';
import { networkHere } from './networks.ts';
import type { NodeNetworks } from './node-facts.ts';

/** By the names of the file. */
export type Chosen = Readonly<Record<string, string>>;

/** @throws VirtkeepError network_not_found */
export function chosenNetworks(
  chosen: Chosen,
  here: NodeNetworks,
  node: string,
): Record<string, NetworkTarget> {
  const targetOf = (name: string): NetworkTarget => {
    const target = networkHere(name, here);
    if (target) return target;
    const names = [...here.networks, ...here.bridges].join(', ') || 'none';
    throw new VirtkeepError('network_not_found', { node, name, names });
  };
  return Object.fromEntries(Object.entries(chosen).map(([name, to]) => [name, targetOf(to)]));
}

/**
 * Else a misspelt one would do nothing, and its adapter be where nobody wants it.
 * @param names those that the adapters of the VM are connected to
 * @throws VirtkeepError network_not_in_file
 */
export function requireInFile(chosen: Chosen, names: readonly string[], file: string): void {
  const wrong = Object.keys(chosen).find(name => !names.includes(name));
  if (wrong === undefined) return;
  const has = names.length > 0 ? listed(names) : 'none';
  throw new VirtkeepError('network_not_in_file', { file, name: quoted(wrong), names: has });
}
