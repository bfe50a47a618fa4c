/** The definition of a clone from that of its original; pure. */
import {
  applyIdentity,
  applyMetadata,
  applyNvram,
  applySource,
  applyStripRuntime,
  attr,
  child,
  childrenAt,
  type DomainMetadata,
  diskElement,
  dropChains,
  ensureChild,
  type Identity,
  parseXml,
  remove,
  serializeXml,
} from '../../domain-xml/index.ts';
import type { ClonePlan } from './clone-plan.ts';

export interface CloneIdentity extends Identity {
  /** Empty: the original's. */
  description: string;
  /** The template of a thin clone, with its version; null for a full one. */
  parent: NonNullable<DomainMetadata['parent']> | null;
  /** New file of the UEFI variables; null: libvirt makes it from the firmware's own. */
  nvramPath: string | null;
}

/** A clone is neither a template nor has it anything of another VM; ISO images stay in its drives. */
export function cloneDefinition(xml: string, { disks, left }: ClonePlan, own: CloneIdentity): string {
  const { root } = parseXml(xml, 'domain', 'the clone');
  applyStripRuntime(root);
  dropChains(root);
  applyIdentity(root, own);
  for (const { targetDev, path, format } of disks)
    applySource(diskElement(root, targetDev), { path, format });
  for (const targetDev of left) remove(diskElement(root, targetDev));
  applyNvram(root, own.nvramPath);
  applyMetadata(root, {
    template: false,
    templateVersion: 0,
    ...(own.parent ? { parent: own.parent } : {}),
    attachments: [],
  });
  // with the original's place both would write there, and the removal of one would take it from the other
  for (const place of childrenAt(root, 'devices/tpm/backend/source')) remove(place);
  for (const device of childrenAt(root, 'devices/hostdev'))
    if (attr(device, 'type') === 'mdev') remove(device);
  if (own.description !== '')
    ensureChild(root, 'description', child(root, 'memory')).textContent = own.description;
  return serializeXml(root);
}
