import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { MiB } from '@virtkeep/shared/units';
import { DOMParser, type Document, type Element, XMLSerializer } from '@xmldom/xmldom';
import { SaxesParser } from 'saxes';

/**
 * Bounds of an XML text that may come from anywhere (an archive, an import, libvirt). What libvirt records below a disk is
 * counted apart: it nests a `<backingStore>` in a `<backingStore>` for each file of a chain, and may say so in archives, too.
 */
export const XML_LIMITS = {
  sizeBytes: 8 * MiB,
  /** `<backingStore>` not counted. */
  depth: 64,
  /** Of hundreds of devices; and little enough that whatever is done to a tree takes no time. */
  elements: 20_000,
  /** Of `<backingStore>` in each other: libvirt refuses chains of more than 200 files. */
  chainDepth: 256,
  /** Inside of all `<backingStore>`: more than libvirt's RPC carries in one text (4 MiB), which is indented. */
  chainElements: 60_000,
  attributesPerElement: 256,
  namespaceDeclarations: 1_000,
} as const;

const CHAIN = 'backingStore';

/**
 * Parses untrusted XML: a pass with a strict parser refuses DTDs, entities and whatever breaks the bounds before the
 * tree is built (the tree builder alone is too lenient and can be made slow).
 * @param subject names the text in the error: a domain, an archive's member.
 * @throws VirtkeepError xml_invalid, nothing else.
 */
export function parseXml(
  xml: string,
  rootName: string,
  subject: string,
): { document: Document; root: Element } {
  refuseUnsafe(xml, subject);
  let document: Document;
  try {
    document = new DOMParser({ onError: throwOn }).parseFromString(xml, 'text/xml');
  } catch (error) {
    throw invalid(subject, reasonOf(error), error);
  }
  const root = document.documentElement;
  if (root?.localName !== rootName) throw invalid(subject, `the root element is not <${rootName}>`);
  return { document, root };
}

/** The text of a tree; carriage returns are written as references, or the next parser would drop them. */
export function serializeXml(node: Document | Element): string {
  return new XMLSerializer().serializeToString(node).replaceAll('\r', '&#13;');
}

/** The one error of this folder. */
export function invalid(subject: string, reason: string, cause?: unknown): VirtkeepError {
  return new VirtkeepError('xml_invalid', { subject, reason: reason.slice(0, 500) }, { cause });
}

function throwOn(level: string, message: string): void {
  if (level !== 'warning') throw new Error(message);
}

function refuseUnsafe(xml: string, subject: string): void {
  if (xml.length > XML_LIMITS.sizeBytes)
    throw invalid(subject, `it is larger than ${XML_LIMITS.sizeBytes} bytes`);
  const parser = new SaxesParser({ xmlns: true });
  const count = { depth: 0, elements: 0, chainDepth: 0, chainElements: 0, attributes: 0, namespaces: 0 };
  const refuse = (reason: string): never => {
    throw invalid(subject, reason);
  };
  parser.on('error', error => refuse(error.message));
  parser.on('doctype', () => refuse('it has a DOCTYPE'));
  const within = (what: 'depth' | 'elements' | 'chainDepth' | 'chainElements', reason: string) => {
    count[what] += 1;
    if (count[what] > XML_LIMITS[what]) refuse(reason.replace('%', String(XML_LIMITS[what])));
  };
  parser.on('opentagstart', tag => {
    count.attributes = 0;
    if (count.chainDepth === 0) within('elements', 'it has more than % elements');
    else within('chainElements', 'its chains have more than % elements');
    if (tag.name === CHAIN) within('chainDepth', 'it has a chain of more than % files');
    else within('depth', 'it is nested deeper than %');
  });
  parser.on('attribute', attribute => {
    count.attributes += 1;
    if (attribute.name === 'xmlns' || attribute.name.startsWith('xmlns:')) count.namespaces += 1;
    if (count.attributes > XML_LIMITS.attributesPerElement) refuse('an element has too many attributes');
    if (count.namespaces > XML_LIMITS.namespaceDeclarations) refuse('it declares too many namespaces');
  });
  parser.on('closetag', tag => {
    count[tag.name === CHAIN ? 'chainDepth' : 'depth'] -= 1;
  });
  try {
    parser.write(xml).close();
  } catch (error) {
    throw error instanceof VirtkeepError ? error : invalid(subject, reasonOf(error), error);
  }
}
