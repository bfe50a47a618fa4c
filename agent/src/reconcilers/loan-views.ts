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

/**
 * A domain that cannot be read may have a disk of whom its texts name, by id or by one of the files of their disks.
 * @throws LibvirtError; what `poolsNow` throws
 */
export async function readViews(
  libvirt: Libvirt,
  onZfs: ZfsHoldings,
  poolsNow: () => Promise<PoolRecord[]>,
): Promise<{ views: PartyView[]; unread: UnreadDomains }> {
  const views: PartyView[] = [];
  const unreadDomains: Domain[] = [];
  for (const domain of await libvirt.domains()) {
    const view = await viewOf(libvirt, domain, onZfs).catch((error: unknown) => {
      if (!hasKey(error, 'xml_invalid')) throw error;
      unreadDomains.push(domain);
    });
    if (view) views.push(view);
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

async function viewOf(
  libvirt: Libvirt,
  { uuid }: Domain,
  onZfs: ZfsHoldings,
): Promise<PartyView | undefined> {
  const party = await readParty(libvirt, uuid);
  if (!party) return undefined;
  const { domain, name, metadata } = party;
  const hasInstant = onZfs.releasable.has(uuid) || (await domain.findSnapshot(LENDING_STATE)) !== null;
  const attachments = attachmentsOfParty(party);
  const { attachments: noted } = metadata;
  // a clone that was kept and is still there needs nothing
  const loans = (metadata.loans ?? []).filter(
    ({ diskId, borrowerId, cloneKept }) => !cloneKept || !onZfs.hasClone(uuid, diskId, borrowerId),
  );
  const running = (await domain.state()).state === DomainStateCode.RUNNING;
  return { id: uuid, name, running, attachments, noted, loans, hasInstant };
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
