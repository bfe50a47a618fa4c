/** Walking a descriptor, whose elements and attributes bear prefixes at their writer's choice. */
import { withoutHidden } from '@virtkeep/shared/hidden-characters';
import type { Element } from '@xmldom/xmldom';
import { children } from '../domain-xml/index.ts';

/** The namespace of OVF 1.0 and 1.1. */
export const OVF = 'http://schemas.dmtf.org/ovf/envelope/1';
const MAX_TEXT = 4096;
const MAX_QUOTED = 120;

/** Child elements of OVF itself with that name. */
export function ovfChildren(parent: Element, name: string): Element[] {
  return children(parent).filter(child => child.localName === name && child.namespaceURI === OVF);
}

/** The trimmed text of the first child of OVF with that name, empty when there is none; cut at 4,096 characters. */
export function ovfText(parent: Element, name: string): string {
  const [found] = ovfChildren(parent, name);
  return found ? textOf(found) : '';
}

/** Trimmed, and cut at 4,096 characters. */
export function textOf(element: Element): string {
  return cut(element.textContent?.trim() ?? '', MAX_TEXT);
}

/** An attribute by its local name: OVF's own, else without prefix, else any; undefined when absent or empty. */
export function value(element: Element, name: string): string | undefined {
  const own = element.getAttributeNS(OVF, name) || element.getAttributeNS(null, name);
  if (own) return own;
  return Array.from(element.attributes).find(({ localName }) => localName === name)?.value || undefined;
}

/** A name of the descriptor within a sentence: one visible line of at most 120 characters. */
export function quoted(text: string): string {
  return `"${cut(withoutHidden(text), MAX_QUOTED)}"`;
}

/** Several of them; of more than ten only the number of the rest. */
export function listed(texts: readonly string[]): string {
  const rest = texts.length > 10 ? ` and ${texts.length - 10} more` : '';
  return `${texts.slice(0, 10).map(quoted).join(', ')}${rest}`;
}

/** The first characters, none of them cut in half. */
export function cut(text: string, length: number): string {
  return text.length <= length ? text : text.slice(0, length).toWellFormed();
}
