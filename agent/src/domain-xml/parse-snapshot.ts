import type { Element } from '@xmldom/xmldom';
import type { SnapshotConfig, SnapshotDisk } from './config.ts';
import { attr, child, childrenAt, descendants, pathAttr, text } from './dom.ts';
import { sourcePath } from './parse-disk.ts';
import { readDomain } from './parse-domain.ts';
import { invalid, parseXml } from './safe-xml.ts';

/**
 * Reads a saved state as libvirt tells it (`virDomainSnapshotGetXMLDesc`).
 * @throws VirtkeepError xml_invalid
 */
export function parseSnapshot(xml: string, subject = 'a saved state'): SnapshotConfig {
  const { root } = parseXml(xml, 'domainsnapshot', subject);
  const name = text(root, 'name');
  if (!name) throw invalid(subject, 'it has no name');
  const domain = child(root, 'domain');
  const inactive = child(root, 'inactiveDomain');
  const created = Number(text(root, 'creationTime') ?? 0);
  return {
    name,
    description: text(root, 'description') ?? '',
    parent: text(root, 'parent/name'),
    creationTime: Number.isSafeInteger(created) ? created : 0,
    memory: readMemory(child(root, 'memory')),
    disks: childrenAt(root, 'disks/disk').flatMap(readDisk),
    ...(domain ? { domain: readDomain(domain, subject) } : {}),
    ...(inactive ? { inactiveDomain: readDomain(inactive, subject) } : {}),
    deleteInProgress: isDeleteInProgress(root),
  };
}

function readMemory(memory: Element | undefined): SnapshotConfig['memory'] {
  const mode = attr(memory, 'snapshot');
  if (mode === 'external') return { mode, path: pathAttr(memory, 'file') };
  return { mode: mode === 'internal' ? 'internal' : 'no' };
}

function readDisk(disk: Element): SnapshotDisk[] {
  const name = attr(disk, 'name');
  if (!name) return [];
  const mode = attr(disk, 'snapshot');
  return [
    {
      name,
      mode:
        mode === 'no' || mode === 'internal' || mode === 'external' || mode === 'manual' ? mode : 'default',
      path: sourcePath(attr(disk, 'type') ?? 'file', child(disk, 'source')),
    },
  ];
}

/** libvirt marks the state, or the disk of it, it was merging when it died. */
function isDeleteInProgress(root: Element): boolean {
  const places = [root, ...childrenAt(root, 'disks/disk')];
  return places.some(place =>
    descendants(place).some(element => element.localName === 'snapshotDeleteInProgress'),
  );
}
