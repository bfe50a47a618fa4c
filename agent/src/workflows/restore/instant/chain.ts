/**
 * A disk that stands on layers inside a plain archive, in the words of libvirt and of QEMU; pure.
 *
 * The whole chain is always given explicitly: the headers of the layers name the files that they stood on when the backup
 * was made, which may be another VM's by now, so nothing may ever open what they say.
 */
import type { Element } from '@xmldom/xmldom';
import { attr, child, childrenAt, parseXml, serializeXml } from '../../../domain-xml/index.ts';
import type { InstantDisk, Slice } from '../../effect.ts';

/** Unit of QEMU's slices and of a tar, so that the padding that follows a member is zeros. */
const BLOCK = 512;

const sliceLength = (slice: Slice): number => Math.ceil(slice.sizeBytes / BLOCK) * BLOCK;

/**
 * What the overlay's header says to stand below: nothing that can be opened. A program that does not know the chain is
 * refused, instead of finding zeros where data are not pulled in yet.
 */
export const UNFINISHED_BACKING = 'json:{"driver":"unfinished-instant-restore"}';

/** A layer alone, for qemu-img: nothing below it is opened. */
export function sliceSource(archivePath: string, slice: Slice): string {
  const file = { driver: 'file', filename: archivePath };
  const raw = { driver: 'raw', offset: slice.offset, size: sliceLength(slice), file };
  return `json:${JSON.stringify({ driver: 'qcow2', file: raw, backing: null })}`;
}

/** The lowest layer as it is written into a header: it stands on nothing, so its own header may be believed. */
export function bottomBacking(archivePath: string, slice: Slice): string {
  const file = { driver: 'file', filename: archivePath };
  const raw = { driver: 'raw', offset: slice.offset, size: sliceLength(slice), file };
  return `json:${JSON.stringify({ driver: 'qcow2', file: raw })}`;
}

/** Puts the disks of a `<domain>`, which name their overlays already, onto the archive. */
export function withArchiveChain(xml: string, archivePath: string, disks: InstantDisk[]): string {
  const { root } = parseXml(xml, 'domain', 'the domain to be restored');
  for (const disk of childrenAt(root, 'devices/disk')) {
    const target = attr(child(disk, 'target'), 'dev');
    const instant = disks.find(candidate => candidate.targetDev === target);
    const source = child(disk, 'source');
    if (!instant || !source) continue;
    for (const old of childrenAt(disk, 'backingStore')) disk.removeChild(old);
    disk.insertBefore(chainOf(disk, archivePath, instant.slices), source.nextSibling);
  }
  return serializeXml(root);
}

/** `<backingStore>` of a chain, top first; an empty one ends it, so that libvirt looks for nothing further. */
function chainOf(disk: Element, archivePath: string, slices: Slice[]): Element {
  const make = (name: string, attributes: Record<string, string> = {}, ...inner: Element[]) => {
    const element = disk.ownerDocument!.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    for (const one of inner) element.appendChild(one);
    return element;
  };
  return slices.reduce((below, slice) => {
    const range = { type: 'storage', offset: String(slice.offset), size: String(sliceLength(slice)) };
    const source = make(
      'source',
      { file: archivePath },
      make('slices', {}, make('slice', range)),
      // libvirt would give the archive to QEMU's user otherwise
      make('seclabel', { model: 'dac', relabel: 'no' }),
    );
    return make('backingStore', { type: 'file' }, make('format', { type: 'qcow2' }), source, below);
  }, make('backingStore'));
}
