import type { Element } from '@xmldom/xmldom';
import { child, ensureChild, remove } from './dom.ts';
import { applyPaths, dropChains } from './edit-disks.ts';
import { applyIdentity, type Identity } from './identity.ts';
import { parseXml, serializeXml } from './safe-xml.ts';

export interface SnapshotEdit {
  /** Name, uuid and MACs of the domain the state is entered for. */
  identity?: Identity;
  /** Old → new path of every file that moved: disks, overlays, memory file, NVRAM. */
  paths?: ReadonlyMap<string, string>;
  /** New name of the parent state; null makes it a root. */
  parent?: string | null;
}

/**
 * Changes a `<domainsnapshot>` for SnapshotCreateXML(REDEFINE): libvirt refuses one whose domain has another uuid
 * (8/35), and later deletes need its paths to be those of the domain. Recorded chains are dropped, as in the domain.
 * @throws VirtkeepError xml_invalid
 */
export function editSnapshot(xml: string, edit: SnapshotEdit): string {
  const { root } = parseXml(xml, 'domainsnapshot', 'the saved state to be changed');
  applySnapshotEdit(root, edit);
  return serializeXml(root);
}

/** As `editSnapshot`, on a tree. */
export function applySnapshotEdit(root: Element, { identity, paths, parent }: SnapshotEdit): void {
  const domains = ['domain', 'inactiveDomain'].flatMap(name => child(root, name) ?? []);
  for (const domain of domains) {
    dropChains(domain);
    if (identity) applyIdentity(domain, identity);
  }
  if (paths) applyPaths(root, paths);
  if (parent !== undefined) setParent(root, parent);
}

function setParent(root: Element, parent: string | null): void {
  const old = child(root, 'parent');
  if (old) remove(old);
  if (parent === null) return;
  const element = ensureChild(root, 'parent', child(root, 'creationTime'));
  ensureChild(element, 'name').textContent = parent;
}
