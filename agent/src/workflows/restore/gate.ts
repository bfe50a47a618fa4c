/**
 * What of an archive's XML libvirt may get: the last thing done to each definition and saved state of a restore, whatever was
 * done to them before. Files are those that the restore made, or found and judged; devices those that it looked at.
 */
import { hasKey, reasonOf } from '@virtkeep/shared/errors';
import type { ArchiveTrust } from '../../archive/index.ts';
import {
  attr,
  child,
  childrenAt,
  type FileUse,
  type GateFile,
  parseXml,
  type Sanitized,
  sanitizeForeign,
  sourceText,
  type XmlGate,
} from '../../domain-xml/index.ts';
import { formatOf, type Placement } from './placement.ts';

export interface GateInput {
  trust: ArchiveTrust;
  placement: Placement;
  /** New file of the UEFI variables; null: libvirt makes it from the template. */
  nvramPath: string | null;
  /** By target the sources of LUNs and disks of other storage that are there and used by nobody. */
  attachable: ReadonlyMap<string, string>;
  /** Images of drives that are proven to be qcow2 images which need no other file; what any other holds is shown byte for byte. */
  qcow2Images: ReadonlySet<string>;
}

/** The gate of a restore. @param memoryPaths files of the saved states' memory */
export function gateOf(
  { trust, placement, nvramPath, attachable, qcow2Images }: GateInput,
  memoryPaths: Iterable<string> = [],
): XmlGate {
  const written = new Set(placement.images.map(({ path }) => path));
  const layers = placement.disks.flatMap(placed =>
    placed.layers.map(({ path }): [string, GateFile] => [path, { format: formatOf(placed.disk) }]),
  );
  const images = [...placement.drives.values()].filter(path => path !== null);
  const image = (path: string): GateFile => ({
    format: qcow2Images.has(path) ? 'qcow2' : 'raw',
    isReadonly: !written.has(path),
  });
  const ours: Record<FileUse, ReadonlyMap<string | null, GateFile>> = {
    disk: new Map(layers),
    drive: new Map(images.map(path => [path, image(path)])),
    memory: new Map(Array.from(memoryPaths, path => [path, { format: 'raw' }])),
    nvram: new Map([[nvramPath, { format: null }]]),
  };
  const fileAt: XmlGate['fileAt'] = (path, use) => ours[use].get(path);
  return { strict: trust !== 'own', fileAt, devices: attachable };
}

/** Judges what is said beside the files, which are not placed yet. */
const anyFile = (trust: ArchiveTrust): XmlGate => ({
  strict: trust !== 'own',
  fileAt: () => ({ format: null }),
  devices: null,
});

/** What of a definition would reach this node, and a warning of what would not. @throws VirtkeepError xml_invalid */
export function screenDefinition(xml: string, trust: ArchiveTrust): { xml: string; warnings: string[] } {
  const screened = sanitizeForeign(xml, anyFile(trust));
  return { xml: screened.xml, warnings: leftOutWarnings('the definition', screened) };
}

/** As `screenDefinition`, for the warnings of a saved state alone. */
export function screenState(xml: string, name: string, trust: ArchiveTrust): string[] {
  try {
    return leftOutWarnings(stateSubject(name), sanitizeForeign(xml, anyFile(trust), 'domainsnapshot'));
  } catch (error) {
    if (!hasKey(error, 'xml_invalid')) throw error;
    return [`${stateSubject(name)} cannot be read: ${reasonOf(error)}`];
  }
}

/** A saved state in such a warning. */
export const stateSubject = (name: string): string => `the saved state "${name}"`;

/** Named in a warning; the rest is counted. */
const MOST_NAMED = 30;

/** None when nothing was left out. @param subject what it was left out of */
export function leftOutWarnings(subject: string, { leftOut }: Pick<Sanitized, 'leftOut'>): string[] {
  if (leftOut.length === 0) return [];
  const named = leftOut.slice(0, MOST_NAMED).map(place => place.slice(0, 100));
  const rest = leftOut.length > MOST_NAMED ? ` and ${leftOut.length - MOST_NAMED} more` : '';
  return [
    `Left out of ${subject}, since an archive must not bring it to a node: ${named.join(', ')}${rest}.`,
  ];
}

/** What the disks of these targets stand on, to be known again. */
export function sourcesOf(xml: string, targets: ReadonlySet<string>): Map<string, string> {
  const { root } = parseXml(xml, 'domain', 'the domain to be restored');
  const sources = new Map<string, string>();
  for (const disk of childrenAt(root, 'devices/disk')) {
    const target = attr(child(disk, 'target'), 'dev') ?? '';
    if (targets.has(target) && !sources.has(target)) sources.set(target, sourceText(disk));
  }
  return sources;
}
