/** The definition of a clone from that of its original; pure. */
import {
  attr,
  child,
  childrenAt,
  type DomainMetadata,
  ensureChild,
  type Identity,
  parseXml,
  remove,
  removeDisk,
  serializeXml,
  setDiskSource,
  setIdentity,
  setMetadata,
  setNvram,
  stripBackingStore,
  stripRuntime,
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
  let next = setIdentity(stripBackingStore(stripRuntime(xml)), own);
  for (const { targetDev, path, format } of disks) next = setDiskSource(next, targetDev, { path, format });
  for (const targetDev of left) next = removeDisk(next, targetDev);
  next = setNvram(next, own.nvramPath);
  next = setMetadata(next, {
    template: false,
    templateVersion: 0,
    ...(own.parent ? { parent: own.parent } : {}),
    attachments: [],
  });
  const { root } = parseXml(next, 'domain', 'the clone');
  for (const device of childrenAt(root, 'devices/hostdev'))
    if (attr(device, 'type') === 'mdev') remove(device);
  if (own.description !== '')
    ensureChild(root, 'description', child(root, 'memory')).textContent = own.description;
  return serializeXml(root);
}
