import { cleanPath } from '@virtkeep/shared/clean-path';
import type { Element } from '@xmldom/xmldom';
import { attr, child, children, childrenAt, ensureChild, pathAttr, remove } from './dom.ts';
import { editDomain, removeChildren } from './edit.ts';

export interface NewSource {
  /** Absolute path of the file. */
  path: string;
  /** "qcow2" or "raw"; always written, since libvirt takes a missing one for raw. */
  format: string;
}

/**
 * Points a disk at a file, whatever its source was (file, block device, network, volume). Encryption stays; slices,
 * labels, credentials of a network source, runtime indexes, the recorded chain and a mirror go: they belonged to the
 * old source.
 */
export function applySource(disk: Element, { path, format }: NewSource): void {
  disk.setAttribute('type', 'file');
  removeChildren(disk, 'backingStore', 'mirror', 'auth');
  const target = child(disk, 'target')!;
  const driver = ensureChild(disk, 'driver', disk.firstChild as Element | null);
  if (!attr(driver, 'name')) driver.setAttribute('name', 'qemu');
  driver.setAttribute('type', format);
  const source = ensureChild(disk, 'source', target);
  for (const name of Array.from(source.attributes, attribute => attribute.name)) {
    if (name !== 'startupPolicy') source.removeAttribute(name);
  }
  for (const inner of children(source)) {
    if (inner.localName !== 'encryption') remove(inner);
  }
  source.setAttribute('file', path);
}

/** Puts an image into a CD-ROM or floppy drive, or empties it (null). */
export function applyImage(drive: Element, path: string | null): void {
  if (path !== null) applySource(drive, { path, format: 'raw' });
  else {
    drive.setAttribute('type', 'file');
    removeChildren(drive, 'source', 'backingStore', 'auth');
  }
}

/**
 * Drops the recorded chain (and mirror) of every disk, so that libvirt reads it from the files: it must go after any
 * change of a chain made outside libvirt, else the start fails.
 */
export function stripBackingStore(xml: string): string {
  return editDomain(xml, dropChains);
}

/** As `stripBackingStore`, on a tree. */
export function dropChains(domain: Element): void {
  for (const disk of childrenAt(domain, 'devices/disk')) removeChildren(disk, 'backingStore', 'mirror');
}

/**
 * Replaces paths wherever a `<domain>`, or any part of it, names a file: disks with their chains, NVRAM, kernel and initrd.
 * @param paths old → new, the old ones as they are read; a path that is not in it stays.
 */
export function applyPaths(root: Element, paths: ReadonlyMap<string, string>): void {
  for (const element of children(root)) applyPaths(element, paths);
  if (root.localName === 'source') replaceAttributes(root, ['file', 'dev'], paths);
  if (root.localName === 'memory') replaceAttributes(root, ['file'], paths);
  const isPathText = ['nvram', 'loader', 'kernel', 'initrd'].includes(root.localName ?? '');
  const next =
    isPathText && children(root).length === 0
      ? paths.get(cleanPath(root.textContent?.trim() ?? ''))
      : undefined;
  if (next !== undefined) root.textContent = next;
}

function replaceAttributes(element: Element, names: string[], paths: ReadonlyMap<string, string>): void {
  for (const name of names) {
    const next = paths.get(pathAttr(element, name) ?? '');
    if (next !== undefined) element.setAttribute(name, next);
  }
}
