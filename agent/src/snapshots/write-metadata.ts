import { Affect, type Domain, MetadataType } from '@virtkeep/node-libvirt';
import {
  type DomainMetadata,
  lastingMetadata,
  METADATA_NAMESPACE,
  METADATA_PREFIX,
  metadataElement,
} from '../domain-xml/index.ts';

/** Replaces virtkeep's own element, in the definition and in the running domain. @throws LibvirtError */
export async function writeMetadata(domain: Domain, metadata: DomainMetadata): Promise<void> {
  const live = (await domain.isActive()) ? Affect.LIVE : 0;
  const config = (await domain.isPersistent()) ? Affect.CONFIG : 0;
  const element = metadataElement(metadata);
  const lasting = metadataElement(lastingMetadata(metadata));
  if (element === lasting) return setElement(domain, element, live | config);
  if (config) await setElement(domain, lasting, config);
  if (live) await setElement(domain, element, live);
}

function setElement(domain: Domain, element: string | null, flags: number): Promise<void> {
  return domain.setMetadata(MetadataType.ELEMENT, element, METADATA_PREFIX, METADATA_NAMESPACE, flags);
}
