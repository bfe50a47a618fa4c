// What all edits share: text in, text out, everything else preserved.
import type { Document, Element } from '@xmldom/xmldom';
import { attr, child, childrenAt, descendants, remove } from './dom.ts';
import { invalid, parseXml, serializeXml } from './safe-xml.ts';

/**
 * Applies a change to a `<domain>` text.
 * @throws VirtkeepError xml_invalid
 */
export function editDomain(xml: string, change: (domain: Element, document: Document) => void): string {
  const { document, root } = parseXml(xml, 'domain', 'the domain to be changed');
  change(root, document);
  return serializeXml(root);
}

/** The `<disk>` with that target. @throws VirtkeepError xml_invalid when there is none */
export function diskElement(domain: Element, targetDev: string): Element {
  const found = childrenAt(domain, 'devices/disk').find(
    disk => attr(child(disk, 'target'), 'dev') === targetDev,
  );
  if (!found) throw invalid('the domain to be changed', `it has no disk ${targetDev}`);
  return found;
}

/** Removes every direct child element of one of these names. */
export function removeChildren(parent: Element, ...names: string[]): void {
  for (const name of names) {
    for (const element of childrenAt(parent, name)) remove(element);
  }
}

/** Removes every element of that name anywhere below. */
export function removeEverywhere(root: Element, name: string): void {
  for (const element of descendants(root)) {
    if (element !== root && element.localName === name && !element.namespaceURI) remove(element);
  }
}
