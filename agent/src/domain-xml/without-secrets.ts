import type { Element } from '@xmldom/xmldom';
import { children, descendants } from './dom.ts';
import { parseXml, serializeXml } from './safe-xml.ts';

/** What stands in place of a secret. */
const HIDDEN = 'hidden';

const NAMES_A_SECRET = /pass(w|phrase)|secret|token|credential|private|(^|[._-])key([._-]|=|$)/i;

/** Namespace of the attributes that declare namespaces. */
const DECLARATIONS = 'http://www.w3.org/2000/xmlns/';

/** Elements whose text, with that of what is in them, is somebody's secret or may hold one. */
const SECRET_TEXT = new Set(['cookie', 'session', 'dhCert', 'oemStrings']);

/**
 * A definition without what opens something: passwords of displays, names and secrets of network storage, arguments and
 * environment of QEMU, what is handed to the guest by its firmware, queries of addresses. Which secret of libvirt a disk needs is no secret.
 * One that has none is returned letter by letter: people compare it with what libvirt prints.
 * @throws VirtkeepError xml_invalid
 */
export function withoutSecrets(xml: string): string {
  const { root } = parseXml(xml, 'domain', 'the domain to be shown');
  const whole = serializeXml(root);
  for (const element of descendants(root)) hide(element);
  const shown = serializeXml(root);
  return shown === whole ? xml : shown;
}

function hide(element: Element): void {
  const name = element.localName ?? '';
  if (element.namespaceURI) hideForeign(element);
  if (name === 'auth') element.removeAttribute('username');
  if (name.startsWith('passw')) element.textContent = HIDDEN;
  for (const attribute of Array.from(element.attributes))
    if (attribute.localName?.startsWith('passw') && attribute.localName !== 'passwdValidTo')
      attribute.value = HIDDEN;
  if (SECRET_TEXT.has(name)) hideTexts(element);
  if (name === 'cmdline') hideWords(element);
  // -object secret,data=…; every other argument may hold one, too
  if (element.namespaceURI && ['arg', 'env', 'property'].includes(name) && element.hasAttribute('value'))
    element.setAttribute('value', HIDDEN);
  if (name === 'sysinfo' && element.getAttribute('type') === 'fwcfg') hideTexts(element);
  if (name === 'entry') hideEntry(element);
  if (name === 'source' && !element.namespaceURI) hideInSource(element);
  if (name === 'secret' && !element.hasAttribute('uuid') && !element.hasAttribute('usage'))
    hideTexts(element);
}

/** Metadata of other programs: cockpit keeps the passwords of a guest there until it is installed. libvirt's own elements have no namespace. */
function hideForeign(element: Element): void {
  const isSecret = NAMES_A_SECRET.test(element.localName ?? '');
  if (isSecret && element.firstChild) element.textContent = HIDDEN;
  for (const attribute of Array.from(element.attributes))
    if (
      attribute.namespaceURI !== DECLARATIONS &&
      (isSecret || NAMES_A_SECRET.test(attribute.localName ?? ''))
    )
      attribute.value = HIDDEN;
}

/** What SMBIOS tells the guest: a serial number may be the address of its first configuration. */
function hideEntry(entry: Element): void {
  const text = entry.textContent ?? '';
  if (text === '') return;
  const shown = NAMES_A_SECRET.test(entry.getAttribute('name') ?? '') ? HIDDEN : hiddenInUrl(text);
  if (shown !== text) entry.textContent = shown;
}

function hideInSource(source: Element): void {
  if (source.hasAttribute('query')) source.setAttribute('query', HIDDEN);
  const name = source.getAttribute('name') ?? '';
  if (hiddenInUrl(name) !== name) source.setAttribute('name', hiddenInUrl(name));
}

/** An address without its query, which may hold a token, and without the user's name and password. */
function hiddenInUrl(text: string): string {
  return text.replace(/\/\/[^/?#@\s]*@/g, `//${HIDDEN}@`).replace(/\?[^\s]+/g, `?${HIDDEN}`);
}

function hideTexts(element: Element): void {
  const inner = children(element);
  if (inner.length === 0) {
    if (element.textContent) element.textContent = HIDDEN;
    return;
  }
  for (const one of inner) hideTexts(one);
}

/** Words of a kernel's command line: `name=value`. */
function hideWords(element: Element): void {
  element.textContent = (element.textContent ?? '')
    .split(' ')
    .map(word =>
      NAMES_A_SECRET.test(word) && word.includes('=')
        ? `${word.split('=', 1)[0]}=${HIDDEN}`
        : hiddenInUrl(word),
    )
    .join(' ');
}
