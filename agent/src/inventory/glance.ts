/**
 * What libvirt tells of all domains at once: a look at hundreds of them asks a handful of questions for it, and not three more
 * about each.
 */
import { type Domain, type Libvirt, ListDomains } from '@virtkeep/node-libvirt';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';

export interface Glance {
  /** Undefined: it has one of the rarer states, or changed it between the questions. */
  power: PowerState | undefined;
  persistent: boolean;
  hasStates: boolean;
}

/**
 * All domains, and by uuid what is known of them without asking each. The answers are of different moments: what came into being between
 * them is in no list, what changed may be in two.
 * @throws LibvirtError
 */
export async function glanceAtAll(
  libvirt: Pick<Libvirt, 'domains'>,
): Promise<{ domains: Domain[]; glances: Map<string, Glance> }> {
  const { RUNNING, PAUSED, SHUTOFF, PERSISTENT, HAS_SNAPSHOT } = ListDomains;
  const idsOf = async (filter: number) => new Set((await libvirt.domains(filter)).map(({ uuid }) => uuid));
  const domains = await libvirt.domains();
  const [running, suspended, off, persistent, withStates] = await Promise.all(
    [RUNNING, PAUSED, SHUTOFF, PERSISTENT, HAS_SNAPSHOT].map(idsOf),
  );
  const powers = [
    [running!, PowerState.RUNNING],
    [suspended!, PowerState.SUSPENDED],
    [off!, PowerState.OFF],
  ] as const;
  const told = ({ uuid }: Domain): Glance => {
    const [power, ...others] = powers.flatMap(([ids, state]) => (ids.has(uuid) ? [state] : []));
    return {
      power: others.length === 0 ? power : undefined,
      persistent: persistent!.has(uuid),
      hasStates: withStates!.has(uuid),
    };
  };
  return { domains, glances: new Map(domains.map(domain => [domain.uuid, told(domain)])) };
}
