import {
  type Domain,
  DomainStateCode,
  ErrorCode,
  isLibvirtError,
  SnapshotList,
} from '@virtkeep/node-libvirt';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type DomainConfig, parseDomain } from '../domain-xml/index.ts';

/** A domain as libvirt tells it. */
export interface DomainFacts {
  uuid: string;
  name: string;
  /** Live XML of a running domain, else the definition. */
  xml: string;
  /** Undefined when the XML cannot be read (never seen from libvirt; the domain is listed with its name alone). */
  config?: DomainConfig;
  power: PowerState;
  persistent: boolean;
  /** Names of the saved states, parents first. */
  snapshots: string[];
}

/** What libvirt's state numbers mean for a user. A domain that shuts down still runs. */
export function powerStateOf(state: number): PowerState {
  const { RUNNING, BLOCKED, SHUTDOWN, PAUSED, PMSUSPENDED, SHUTOFF, CRASHED } = DomainStateCode;
  if (state === RUNNING || state === BLOCKED || state === SHUTDOWN) return PowerState.RUNNING;
  if (state === PAUSED || state === PMSUSPENDED) return PowerState.SUSPENDED;
  if (state === SHUTOFF || state === CRASHED) return PowerState.OFF;
  return PowerState.UNSPECIFIED;
}

/**
 * Reads a domain; undefined when it does not exist (any more).
 * @param old facts from before: an unchanged XML is not parsed again
 * @throws LibvirtError
 */
export async function readDomainFacts(domain: Domain, old?: DomainFacts): Promise<DomainFacts | undefined> {
  try {
    const [{ state }, xml, persistent, snapshots] = await Promise.all([
      domain.state(),
      domain.xml(),
      domain.isPersistent(),
      domain.snapshots(SnapshotList.TOPOLOGICAL),
    ]);
    const config = old?.xml === xml ? old.config : tryParse(xml);
    return {
      uuid: domain.uuid,
      name: config?.name ?? domain.name,
      xml,
      config,
      power: powerStateOf(state),
      persistent,
      snapshots: snapshots.map(snapshot => snapshot.name),
    };
  } catch (error) {
    if (isLibvirtError(error) && error.is(ErrorCode.NO_DOMAIN)) return undefined;
    throw error;
  }
}

function tryParse(xml: string): DomainConfig | undefined {
  try {
    return parseDomain(xml);
  } catch {
    return undefined;
  }
}
