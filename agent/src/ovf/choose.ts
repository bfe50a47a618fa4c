/** Which VM and which configuration of a descriptor is meant. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Envelope, OvfConfiguration, OvfItem, OvfSystem } from './model.ts';
import { listed, quoted } from './tree.ts';

/**
 * @param wanted id of a VM, or the name that only it has; undefined: the only one
 * @throws VirtkeepError ovf_system_ambiguous, ovf_system_unknown, which list what there is
 */
export function chooseSystem({ subject, systems }: Envelope, wanted?: string): OvfSystem {
  const ids = wanted === undefined ? systems : systems.filter(({ id }) => id === wanted);
  const found = ids.length > 0 ? ids : systems.filter(({ name }) => name === wanted);
  if (found.length === 1) return found[0]!;
  const names = listed(systems.map(({ id, name }) => id || name));
  if (found.length > 1) throw new VirtkeepError('ovf_system_ambiguous', { subject, systems: names });
  throw new VirtkeepError('ovf_system_unknown', { subject, system: quoted(wanted!), systems: names });
}

/** Those that can be chosen for a VM: the declared ones, else those that its items name; exactly one is the default. */
export function configurationsOf({ configurations }: Envelope, { items }: OvfSystem): OvfConfiguration[] {
  const named = new Set(items.flatMap(item => item.configurations));
  const all =
    configurations.length > 0
      ? configurations
      : [...named].map(id => ({ id, label: '', description: '', isDefault: false }));
  const chosen = all.find(({ isDefault }) => isDefault) ?? all[0];
  return all.map(one => ({ ...one, isDefault: one === chosen }));
}

/**
 * @returns null: the descriptor has none
 * @throws VirtkeepError ovf_configuration_unknown, which lists what there is
 */
export function chooseConfiguration(envelope: Envelope, system: OvfSystem, wanted?: string): string | null {
  const all = configurationsOf(envelope, system);
  if (wanted === undefined) return all.find(({ isDefault }) => isDefault)?.id ?? null;
  if (all.some(({ id }) => id === wanted)) return wanted;
  const configurations = all.length > 0 ? listed(all.map(({ id }) => id)) : 'none';
  throw new VirtkeepError('ovf_configuration_unknown', {
    subject: envelope.subject,
    configuration: quoted(wanted),
    configurations,
  });
}

/**
 * The items of a configuration, in document order: those of all configurations and its own. Of two of one kind with the same
 * InstanceID its own replaces the general one (DSP0243 9.8: the element without configuration is the default).
 */
export function itemsOf({ items }: OvfSystem, configuration: string | null): OvfItem[] {
  const isOwn = (item: OvfItem) => configuration !== null && item.configurations.includes(configuration);
  const kindOf = ({ instanceId, resourceType }: OvfItem) => `${resourceType} ${instanceId}`;
  const own = new Set(items.filter(item => isOwn(item) && item.instanceId !== '').map(kindOf));
  return items.filter(item => isOwn(item) || (item.configurations.length === 0 && !own.has(kindOf(item))));
}
