import { type Domain, DomainStateCode, type Snapshot, SnapshotList } from '@virtkeep/node-libvirt';
import { hasKey } from '@virtkeep/shared/errors';
import { PowerState } from '@virtkeep/shared/gen/virtkeep/agent/v1/domain';
import { type DomainConfig, parseDomain } from '../domain-xml/index.ts';
import { savedXml } from '../images/index.ts';
import { snapshotXml } from '../libvirt/domains.ts';
import { isNoDomain, isUnlistable } from '../libvirt/errors.ts';
import { type SavedState, savedStateOf } from '../snapshots/index.ts';
import type { Glance } from './glance.ts';
import { keepIfEqual } from './shown.ts';

/** A saved state; of one that cannot be read hardly more than its name and time is known. */
export type ListedState = SavedState & { unread?: true };

/** A domain as libvirt tells it. */
export interface DomainFacts {
  uuid: string;
  name: string;
  /** Live XML of a running domain, else the definition. */
  xml: string;
  /** Undefined when the XML cannot be read (the domain is listed with its name alone). */
  config?: DomainConfig | undefined;
  /** What it goes on with, when its memory was saved while it had disks of others. */
  saved?: DomainConfig | undefined;
  power: PowerState;
  persistent: boolean;
  /** The saved states, parents first. */
  savedStates: ListedState[];
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
 * @param old facts from before: an unchanged XML is not parsed again; they are the answer when nothing is different
 * @param glance what was told of it with all the others, maybe seconds ago
 * @throws LibvirtError
 */
export async function readDomainFacts(
  domain: Domain,
  old?: DomainFacts,
  glance?: Glance,
): Promise<DomainFacts | undefined> {
  const believed = believable(glance, old);
  try {
    const [power, xml, persistent, savedStates] = await Promise.all([
      believed.power ?? readPower(domain),
      domain.xml(),
      believed.persistent ?? domain.isPersistent(),
      believed.hasStates === false ? [] : readStates(domain, old?.savedStates),
    ]);
    const config = old?.xml === xml ? old.config : tryParse(xml);
    const saved = config && power === PowerState.OFF ? await readSaved(domain, config) : undefined;
    return keepIfEqual(old, {
      uuid: domain.uuid,
      name: config?.name ?? domain.name,
      xml,
      config,
      saved,
      power,
      persistent,
      savedStates,
    });
  } catch (error) {
    if (isNoDomain(error)) return undefined;
    throw error;
  }
}

async function readPower(domain: Domain): Promise<PowerState> {
  return powerStateOf((await domain.state()).state);
}

/** Asked only where the metadata tells of disks of others: what a guest kept is in its memory alone, and stays noted for as long. */
async function readSaved(domain: Domain, { metadata }: DomainConfig): Promise<DomainConfig | undefined> {
  if (metadata.attachments.length === 0) return undefined;
  const [xml] = await savedXml(domain);
  return xml === undefined ? undefined : tryParse(xml);
}

/**
 * What a glance says and what is known agree, or it is asked anew: the glance may be older than an event that was read since. So what it
 * spares is the questions about what has not changed; the first look of all asks them. Power and definition that change after it have
 * an event, our own states a look of their own; the first state that somebody else makes just then is seen with the next look.
 */
function believable(glance: Glance | undefined, old: DomainFacts | undefined): Partial<Glance> {
  if (!glance || !old) return {};
  const { power, persistent, hasStates } = glance;
  return {
    ...(power === old.power && { power }),
    ...(persistent === old.persistent && { persistent }),
    ...(hasStates === old.savedStates.length > 0 && { hasStates }),
  };
}

/** A state that goes away meanwhile is left out; one whose XML has not changed is not parsed again. */
async function readStates(domain: Domain, old?: ListedState[]): Promise<ListedState[]> {
  let snapshots: Snapshot[];
  try {
    snapshots = await domain.snapshots(SnapshotList.TOPOLOGICAL);
  } catch (error) {
    if (old && isUnlistable(error)) return old;
    throw error;
  }
  if (snapshots.length === 0) return [];
  const current = (await domain.currentSnapshot())?.name;
  const states: ListedState[] = [];
  for (const snapshot of snapshots) {
    const xml = await snapshotXml(snapshot);
    if (xml === null) continue;
    const unchanged = old?.find(state => state.xml === xml);
    states.push({ ...(unchanged ?? stateOr(xml, snapshot.name)), current: snapshot.name === current });
  }
  return states;
}

/** One that cannot be read is listed by its name, or the whole node were not. */
function stateOr(xml: string, name: string): ListedState {
  try {
    return savedStateOf(xml, false);
  } catch (error) {
    if (!hasKey(error, 'xml_invalid')) throw error;
    const unknown = {
      parent: null,
      description: '',
      createdUnix: createdIn(xml),
      memory: 'no',
      memoryPath: null,
    } as const;
    const nothing = { overlays: {}, frozen: {}, internalDisks: [], deleting: false };
    return { name, current: false, ...unknown, ...nothing, xml, unread: true };
  }
}

/** Its id is made of the time, which libvirt writes before what others put into the definition inside. */
function createdIn(xml: string): number {
  return Number(/<creationTime>\s*(\d{1,15})\s*<\/creationTime>/.exec(xml)?.[1] ?? 0);
}

function tryParse(xml: string): DomainConfig | undefined {
  try {
    return parseDomain(xml);
  } catch {
    return undefined;
  }
}
