/** What the reconciler of loans sees of the domains of its node. */
import { type Domain, DomainStateCode, type Libvirt } from '@virtkeep/node-libvirt';
import { hasKey } from '@virtkeep/shared/errors';
import { isLent } from '../domain-xml/index.ts';
import { chainOf, type Definition, definitionsOf, referredTo } from '../images/index.ts';
import type { PoolRecord } from '../pools/index.ts';
import type { ZfsHoldings } from '../snapshots/index.ts';
import { LENDING_STATE } from '../snapshots/index.ts';
import { attachmentsOfParty, readParty } from '../workflows/lend/lender.ts';
import type { PartyView, UnreadDomains } from '../workflows/lend/reconcile-plan.ts';

/** A domain, but for what zfs says of it. */
interface PartyFacts extends Omit<PartyView, 'hasInstant'> {
  /** It has the saved state that lent disks have, and no saved memory that would keep it from being merged. */
  hasState: boolean;
}

/**
 * What was read of domains of which nothing was heard since: when one changes, that one is read again, and not all of the node. Whoever acts
 * on it, or has not looked for a while, forgets it first: not all that happens is told.
 */
export class SeenParties {
  readonly #facts = new Map<string, PartyFacts>();
  /** Those that are being read, and have not changed since that began. */
  readonly #reading = new Set<string>();

  changed(id: string): void {
    this.#facts.delete(id);
    this.#reading.delete(id);
  }

  forget(): void {
    this.#facts.clear();
    this.#reading.clear();
  }

  /** @returns what `read` does, which is asked where nothing is known */
  async of(id: string, read: () => Promise<PartyFacts | undefined>): Promise<PartyFacts | undefined> {
    const known = this.#facts.get(id);
    if (known !== undefined) return known;
    this.#reading.add(id);
    const facts = await read();
    if (this.#reading.delete(id) && facts !== undefined) this.#facts.set(id, facts);
    return facts;
  }
}

/**
 * A domain that cannot be read may have a disk of whom its texts name, by id or by one of the files of their disks.
 * @param seen what need not be read again; all is when it is not given
 * @throws LibvirtError; what `poolsNow` throws
 */
export async function readViews(
  libvirt: Libvirt,
  onZfs: ZfsHoldings,
  poolsNow: () => Promise<PoolRecord[]>,
  seen = new SeenParties(),
): Promise<{ views: PartyView[]; unread: UnreadDomains }> {
  const views: PartyView[] = [];
  const unreadDomains: Domain[] = [];
  for (const domain of await libvirt.domains()) {
    const facts = await seen
      .of(domain.uuid, () => readFacts(libvirt, domain))
      .catch((error: unknown) => {
        if (!hasKey(error, 'xml_invalid')) throw error;
        unreadDomains.push(domain);
      });
    if (facts) views.push(viewOf(facts, onZfs));
  }
  const unread = new Map(unreadDomains.map(({ uuid }) => [uuid, new Set<string>()]));
  const idle = views.filter(({ hasInstant, loans }) => hasInstant && loans.length === 0);
  if (unread.size === 0 || idle.length === 0) return { views, unread };
  const pools = await poolsNow();
  const owners = new Map<string, Set<string>>();
  for (const { id } of idle) owners.set(id, await ownLayers(libvirt.domain(id), pools));
  for (const domain of unreadDomains) {
    const definitions = await definitionsOf(domain);
    const named = await referredTo(definitions, pools);
    for (const [id, files] of owners)
      if (
        definitions.some(definition => namesOwner(definition, id)) ||
        [...named].some(path => files.has(path))
      )
        unread.get(domain.uuid)!.add(id);
  }
  return { views, unread };
}

async function readFacts(libvirt: Libvirt, { uuid }: Domain): Promise<PartyFacts | undefined> {
  const party = await readParty(libvirt, uuid);
  if (!party) return undefined;
  const { domain, name, metadata, saved } = party;
  const hasState = saved === undefined && (await domain.findSnapshot(LENDING_STATE)) !== null;
  const running = (await domain.state()).state === DomainStateCode.RUNNING;
  const attachments = attachmentsOfParty(party);
  const { attachments: noted, loans = [] } = metadata;
  return { id: uuid, name, running, attachments, noted, loans, hasState };
}

function viewOf({ hasState, loans, ...facts }: PartyFacts, onZfs: ZfsHoldings): PartyView {
  const { id } = facts;
  return {
    ...facts,
    hasInstant: hasState || onZfs.releasable.has(id),
    // a clone that was kept and is still there needs nothing
    loans: loans.filter(
      ({ diskId, borrowerId, cloneKept }) => !cloneKept || !onZfs.hasClone(id, diskId, borrowerId),
    ),
  };
}

/** The layers of its own disks, without the file of its template. */
async function ownLayers(domain: Domain, pools: readonly PoolRecord[]): Promise<Set<string>> {
  const found = new Set<string>();
  for (const { config, isPresent } of await definitionsOf(domain))
    for (const disk of config?.disks ?? []) {
      if (!isPresent || disk.device !== 'disk' || isLent(disk, config!.metadata)) continue;
      const chain = await chainOf(disk, pools);
      const own = config!.metadata.parent && chain.length > 1 ? chain.slice(0, -1) : chain;
      for (const path of own) found.add(path);
    }
  return found;
}

const namesOwner = ({ config, unread }: Definition, ownerId: string): boolean =>
  unread?.xml.toLowerCase().includes(ownerId.toLowerCase()) === true ||
  config?.metadata.attachments.some(attachment => attachment.ownerId === ownerId) === true;
