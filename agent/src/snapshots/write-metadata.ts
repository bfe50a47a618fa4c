import { Affect, type Domain, MetadataType } from '@virtkeep/node-libvirt';
import {
  type DomainMetadata,
  lastingMetadata,
  METADATA_NAMESPACE,
  METADATA_PREFIX,
  metadataElement,
} from '../domain-xml/index.ts';
import { LIBVIRT_PLACES, requireRoomIn } from '../libvirt/room.ts';

/**
 * Replaces virtkeep's own element, in the definition and in the running domain. What a note allows (a merge, say) is done as soon as
 * it stands there, so it is not made where libvirt could only remember it.
 * @throws LibvirtError; VirtkeepError disk_full, io_failed
 */
export async function writeMetadata(domain: Domain, metadata: DomainMetadata): Promise<void> {
  const { live, config } = await requireRoomFor(domain);
  const element = metadataElement(metadata);
  const lasting = metadataElement(lastingMetadata(metadata));
  if (element === lasting) return setElement(domain, element, live | config);
  if (config) await setElement(domain, lasting, config);
  if (live) await setElement(domain, element, live);
}

/**
 * Room for libvirt to write a change of the domain down.
 * @returns which of its definitions there are, as flags
 * @throws LibvirtError; VirtkeepError disk_full, io_failed
 */
export async function requireRoomFor(domain: Domain): Promise<{ live: number; config: number }> {
  const live = (await domain.isActive()) ? Affect.LIVE : 0;
  const config = (await domain.isPersistent()) ? Affect.CONFIG : 0;
  if (live) await requireRoomIn(LIBVIRT_PLACES.running);
  if (config) await requireRoomIn(LIBVIRT_PLACES.definitions);
  return { live, config };
}

function setElement(domain: Domain, element: string | null, flags: number): Promise<void> {
  const place = { type: MetadataType.ELEMENT, key: METADATA_PREFIX, uri: METADATA_NAMESPACE };
  return domain.setMetadata({ ...place, value: element }, flags);
}
