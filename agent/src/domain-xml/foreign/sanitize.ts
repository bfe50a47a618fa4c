/**
 * The one gate that XML of an archive passes before libvirt gets it: definitions, saved states, and the definitions inside
 * memory files. An archive lies where others may write, and libvirt does as root what a definition says.
 *
 * Of every archive: a disk names a file that the restore made or has judged, or a device that it looked at, and nothing else;
 * a saved state's memory and overlays likewise; and what libvirt and this agent might read differently (an element that
 * stands twice) is not there. Of an archive that this node does not vouch for, moreover: nothing but what the tables allow.
 */
import type { Element, Node } from '@xmldom/xmldom';
import { invalid, parseXml, serializeXml } from '../safe-xml.ts';
import { DOMAIN_RULE } from './domain-rules.ts';
import type { Rule } from './rule.ts';
import { SNAPSHOT_RULE } from './snapshot-rules.ts';

/** What a file is for: who removes a saved state removes its memory, and never what a drive shows. */
export type FileUse = 'disk' | 'drive' | 'memory' | 'nvram';

export interface GateFile {
  /**
   * Its format, which is written into the XML: in another one QEMU would take bytes of the archive for the header of an image, and open
   * the files named there. null: the XML's own stays, of a file that is not placed yet, of UEFI variables, and of what is no file.
   */
  format: 'raw' | 'qcow2' | null;
  /** The node's own: the VM may look at it and never write to it. */
  isReadonly?: boolean;
}

export interface XmlGate {
  /** Nothing but what the tables allow stays; else only paths are judged. */
  strict: boolean;
  /** What is known of a file that may be named as that; undefined: it may not. */
  fileAt(path: string, use: FileUse): GateFile | undefined;
  /** By target the sources of disks that are no files, as `sourceText` has them; null: all of them. */
  devices: ReadonlyMap<string, string> | null;
}

export interface Sanitized {
  xml: string;
  /** Where in the XML something was left out: `devices/serial@path`, each once, in the order found. */
  leftOut: string[];
}

export type SanitizedTree = Pick<Sanitized, 'leftOut'> & { root: Element };

type RootName = 'domain' | 'domainsnapshot';

const SUBJECT = 'the XML of a backup';

const RULES: Record<RootName, Rule> = { domain: DOMAIN_RULE, domainsnapshot: SNAPSHOT_RULE };

/**
 * Leaves out whatever an archive's XML must not bring to the node; pure.
 * @param rootName `domain`, or `domainsnapshot`
 * @throws VirtkeepError xml_invalid
 */
export function sanitizeForeign(xml: string, gate: XmlGate, rootName: RootName = 'domain'): Sanitized {
  const { root, leftOut } = sanitizeTree(parseXml(xml, rootName, SUBJECT).root, gate, rootName);
  return { xml: serializeXml(root), leftOut };
}

/** As `sanitizeForeign`, on a tree, which stays as it is. */
export function sanitizeTree(root: Element, gate: XmlGate, rootName: RootName = 'domain'): SanitizedTree {
  if (root.namespaceURI) throw invalid(SUBJECT, `the root element <${root.tagName}> has a namespace`);
  const leftOut = new Set<string>();
  const kept = pruned(root, RULES[rootName], '', { gate, leftOut });
  if (!kept) throw invalid(SUBJECT, `its <${rootName}> is of a kind that is not restored`);
  return { root: kept, leftOut: [...leftOut] };
}

interface Walk {
  gate: XmlGate;
  leftOut: Set<string>;
}

/**
 * The element with what may stay of it, built anew: each removal from the old one would take time for all its children.
 * @returns undefined: the element itself is to go
 */
function pruned(element: Element, rule: Rule, path: string, walk: Walk): Element | undefined {
  const { gate, leftOut } = walk;
  const copy = element.cloneNode(false) as Element;
  if (gate.strict && !pruneAttributes(copy, rule, path, walk)) return undefined;
  if (gate.strict && !hasAllowedText(element, rule)) return undefined;
  for (const node of keptNodes(element, rule, path, walk)) copy.appendChild(node);
  for (const judge of [rule.always, gate.strict ? rule.judge : undefined]) {
    const verdict = judge?.(copy, gate) ?? true;
    if (verdict === false) return undefined;
    if (verdict !== true) for (const part of verdict) leftOut.add(`${path}${part}`);
  }
  return copy;
}

/** What goes takes the blank before it along, so that no empty line is left. */
function* keptNodes(from: Element, rule: Rule, path: string, walk: Walk): Generator<Node> {
  const seen = new Set<string>();
  let blank: Node | undefined;
  for (let node: Node | null = from.firstChild; node; node = node.nextSibling) {
    if (node.nodeType === node.ELEMENT_NODE) {
      const inner = node as Element;
      const at = path === '' ? inner.tagName : `${path}/${inner.tagName}`;
      const kept = keptChild(inner, { rule, seen }, at, walk);
      if (kept && blank) yield blank;
      if (kept) yield kept;
      blank = undefined;
    } else if (!walk.gate.strict || isKeptText(node, rule)) {
      if (blank) yield blank;
      const copy = node.cloneNode(false);
      const isBlank = node.nodeType === node.TEXT_NODE && !node.nodeValue?.trim();
      blank = isBlank ? copy : undefined;
      if (!isBlank) yield copy;
    }
  }
  if (blank) yield blank;
}

/** @param inner a child of an element of that rule, of which children with the names `seen` were kept before */
function keptChild(
  inner: Element,
  { rule, seen }: { rule: Rule; seen: Set<string> },
  at: string,
  walk: Walk,
): Element | undefined {
  const { gate, leftOut } = walk;
  const name = inner.localName ?? '';
  const own = inner.namespaceURI ? undefined : rule.children.get(name);
  if (own?.isRuntime) return undefined;
  if (own === undefined) {
    // libvirt takes one of an own name for its own in some places, whatever its namespace
    const isKept = gate.strict
      ? rule.namespaces?.includes(inner.namespaceURI ?? '')
      : !rule.children.has(name);
    if (isKept) return inner.cloneNode(true) as Element;
  } else if (!seen.has(name) || own.many || !(gate.strict || own.once)) {
    const kept = pruned(inner, own, at, walk);
    if (kept) seen.add(name);
    if (kept) return kept;
  }
  leftOut.add(at);
  return undefined;
}

function pruneAttributes(element: Element, rule: Rule, path: string, { leftOut }: Walk): boolean {
  for (const attribute of Array.from(element.attributes)) {
    const { name, value } = attribute;
    const allowed = attribute.namespaceURI ? undefined : rule.attributes.get(name);
    if (allowed === undefined || (value.startsWith('/') && !allowed.isPath)) {
      element.removeAttributeNode(attribute);
      if (name !== 'xmlns' && !name.startsWith('xmlns:')) leftOut.add(`${path}@${name}`);
    } else if (allowed.values !== null && !allowed.values.includes(value)) return false;
  }
  return true;
}

/** Text beside elements is only their layout. */
function hasAllowedText(element: Element, rule: Rule): boolean {
  if (typeof rule.text === 'boolean') return true;
  let words = '';
  for (let node = element.firstChild; node; node = node.nextSibling) words += wordsOf(node);
  return words === '' || rule.text.includes(words);
}

/** Anything else beside elements goes, comments and the like, too. */
function isKeptText(node: Node, rule: Rule): boolean {
  return isText(node) && (wordsOf(node) === '' || rule.text !== false);
}

const isText = (node: Node): boolean =>
  node.nodeType === node.TEXT_NODE || node.nodeType === node.CDATA_SECTION_NODE;

const wordsOf = (node: Node): string => (isText(node) ? (node.nodeValue ?? '').trim() : '');
