/**
 * The one gate that XML of an archive passes before libvirt gets it: definitions, saved states, and the definitions inside
 * memory files. An archive lies where others may write, and libvirt does as root what a definition says.
 *
 * Of every archive: a disk names a file that the restore made or has judged, or a device that it looked at, and nothing else;
 * a saved state's memory and overlays likewise; and what libvirt and this agent might read differently (an element that
 * stands twice) is not there. Of an archive that this node does not vouch for, moreover: nothing but what the tables allow.
 */
import type { Element } from '@xmldom/xmldom';
import { children, remove } from '../dom.ts';
import { invalid, parseXml, serializeXml } from '../safe-xml.ts';
import { DOMAIN_RULE } from './domain-rules.ts';
import type { Rule } from './rule.ts';
import { SNAPSHOT_RULE } from './snapshot-rules.ts';

/** What a file is for: who removes a saved state removes its memory, and never what a drive shows. */
export type FileUse = 'disk' | 'drive' | 'memory' | 'nvram';

export interface XmlGate {
  /** Nothing but what the tables allow stays; else only paths are judged. */
  strict: boolean;
  /** Whether this file may be named as that. */
  isAllowed(path: string, use: FileUse): boolean;
  /** By target the sources of disks that are no files, as `sourceText` has them; null: all of them. */
  devices: ReadonlyMap<string, string> | null;
}

export interface Sanitized {
  xml: string;
  /** Where in the XML something was left out: `devices/serial@path`, each once, in the order found. */
  leftOut: string[];
}

const RULES: Record<string, Rule> = { domain: DOMAIN_RULE, domainsnapshot: SNAPSHOT_RULE };

/**
 * Leaves out whatever an archive's XML must not bring to the node; pure.
 * @param rootName `domain`, or `domainsnapshot`
 * @throws VirtkeepError xml_invalid
 */
export function sanitizeForeign(
  xml: string,
  gate: XmlGate,
  rootName: 'domain' | 'domainsnapshot' = 'domain',
): Sanitized {
  const subject = 'the XML of a backup';
  const { root } = parseXml(xml, rootName, subject);
  if (root.namespaceURI) throw invalid(subject, `the root element <${root.tagName}> has a namespace`);
  const leftOut = new Set<string>();
  if (!prune(root, RULES[rootName]!, '', { gate, leftOut }))
    throw invalid(subject, `its <${rootName}> is of a kind that is not restored`);
  return { xml: serializeXml(root), leftOut: [...leftOut] };
}

/** Of these libvirt takes another one than we do when there are several. */
const ONCE = new Set(
  'name uuid os nvram metadata devices source target driver disks domain inactiveDomain memory parent'.split(
    ' ',
  ),
);

interface Walk {
  gate: XmlGate;
  leftOut: Set<string>;
}

/** @returns false: the element itself is to go */
function prune(element: Element, rule: Rule, path: string, walk: Walk): boolean {
  const { gate, leftOut } = walk;
  if (gate.strict && !pruneAttributes(element, rule, path, walk)) return false;
  if (gate.strict && !hasAllowedText(element, rule)) return false;
  const seen = new Set<string>();
  for (const inner of children(element)) {
    const name = inner.localName ?? '';
    const at = path === '' ? inner.tagName : `${path}/${inner.tagName}`;
    const own = inner.namespaceURI ? undefined : rule.children.get(name);
    if (own?.isRuntime) {
      remove(inner);
      continue;
    }
    if (own === undefined) {
      // libvirt takes one of an own name for its own in some places, whatever its namespace
      const isKept = gate.strict
        ? rule.namespaces?.includes(inner.namespaceURI ?? '')
        : !rule.children.has(name);
      if (isKept) continue;
    } else if (!seen.has(name) || own.many || !(gate.strict || ONCE.has(name))) {
      seen.add(name);
      if (prune(inner, own, at, walk)) continue;
    }
    leftOut.add(at);
    remove(inner);
  }
  for (const judge of [rule.always, gate.strict ? rule.judge : undefined]) {
    const verdict = judge?.(element, gate) ?? true;
    if (verdict === false) return false;
    if (verdict !== true) for (const part of verdict) leftOut.add(`${path}${part}`);
  }
  return true;
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

/** Text beside elements is only their layout; anything else goes, comments and the like, too. */
function hasAllowedText(element: Element, rule: Rule): boolean {
  let words = '';
  for (const node of Array.from(element.childNodes)) {
    const isText = node.nodeType === node.TEXT_NODE || node.nodeType === node.CDATA_SECTION_NODE;
    const content = isText ? (node.nodeValue ?? '').trim() : '';
    const isKept = isText ? content === '' || rule.text !== false : node.nodeType === node.ELEMENT_NODE;
    if (!isKept) element.removeChild(node);
    words += content;
  }
  return typeof rule.text === 'boolean' || words === '' || rule.text.includes(words);
}
