import { Affect, type Domain, MetadataType } from '@virtkeep/node-libvirt';
import {
  type DomainMetadata,
  METADATA_NAMESPACE,
  METADATA_PREFIX,
  metadataElement,
} from '../domain-xml/index.ts';

/** Replaces virtkeep's own element, in the definition and in the running domain. @throws LibvirtError */
export async function writeMetadata(domain: Domain, metadata: DomainMetadata): Promise<void> {
  const live = (await domain.isActive()) ? Affect.LIVE : 0;
  const flags = live | ((await domain.isPersistent()) ? Affect.CONFIG : 0);
  const element = metadataElement(metadata);
  await domain.setMetadata(MetadataType.ELEMENT, element, METADATA_PREFIX, METADATA_NAMESPACE, flags);
}
