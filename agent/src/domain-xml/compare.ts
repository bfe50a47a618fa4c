import type { Element, Node } from '@xmldom/xmldom';
import { attr, children } from './dom.ts';
import { applyStripRuntime } from './edit-domain.ts';
import { parseXml } from './safe-xml.ts';

/** Parts of a definition that a restore changes by design: identity, and what libvirt notes for itself. */
const IGNORED_TOP = new Set([
  'name',
  'uuid',
  'genid',
  'metadata',
  'title',
  'description',
  'currentMemory',
  'seclabel',
]);
/** Attributes of elements below `<devices>` that name files, or follow from identity. */
const IGNORED_SOURCE = new Set(['file', 'dev', 'pool', 'volume', 'path', 'index', 'startupPolicy']);

/**
 * How two definitions differ as machines: firmware, CPU, memory and every device with its address and options. Names,
 * uuids, MACs, file paths, disk formats and runtime notes do not count. Empty: the same devices. The tests hold restored
 * machines against the lost ones with it.
 * @throws VirtkeepError xml_invalid
 */
export function deviceDifferences(first: string, second: string): string[] {
  const [a, b] = [canonicalParts(first), canonicalParts(second)];
  return [
    ...minus(a, b).map(part => `only in the first: ${part}`),
    ...minus(b, a).map(part => `only in the second: ${part}`),
  ];
}

function canonicalParts(xml: string): string[] {
  const { root } = parseXml(xml, 'domain', 'a domain to be compared');
  applyStripRuntime(root);
  const parts: string[] = [];
  for (const element of children(root)) {
    if (IGNORED_TOP.has(element.localName ?? '')) continue;
    const isDevices = element.localName === 'devices';
    parts.push(...(isDevices ? children(element) : [element]).map(canonical));
  }
  return parts;
}

function canonical(element: Element): string {
  const name = element.localName ?? '';
  const attributes = Array.from(element.attributes)
    .filter(attribute => !attribute.name.startsWith('xmlns') && isCompared(element, attribute.name))
    .map(attribute => ` ${attribute.name}=${JSON.stringify(attribute.value)}`)
    .sort();
  return `<${name}${attributes.join('')}>${canonicalContent(element)}</${name}>`;
}

function canonicalContent(element: Element): string {
  if (['nvram', 'entry'].includes(element.localName ?? '')) return '';
  const inner = children(element);
  if (inner.length > 0)
    return inner
      .map(canonical)
      .filter(part => part !== '<source></source>')
      .sort()
      .join('');
  let own = '';
  for (let node: Node | null = element.firstChild; node; node = node.nextSibling) own += node.nodeValue ?? '';
  return own.trim();
}

function isCompared(element: Element, name: string): boolean {
  const parent = element.parentNode as Element | null;
  if (element.localName === 'source') return !IGNORED_SOURCE.has(name);
  if (element.localName === 'mac') return name !== 'address';
  if (parent?.localName === 'disk' && element.localName === 'driver') return name !== 'type';
  if (element.localName === 'disk') return name !== 'type';
  if (element.localName === 'nvram') return attr(element, 'template') !== undefined && name === 'template';
  return true;
}

function minus(a: string[], b: string[]): string[] {
  const left = [...b];
  return a.filter(part => {
    const at = left.indexOf(part);
    if (at >= 0) left.splice(at, 1);
    return at < 0;
  });
}
