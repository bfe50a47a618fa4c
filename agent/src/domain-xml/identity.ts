import { randomBytes } from 'node:crypto';
import type { Element } from '@xmldom/xmldom';
import { attr, child, children, childrenAt, ensureChild } from './dom.ts';

export interface Identity {
  name: string;
  /** Lower-case UUID. */
  uuid: string;
  /** Old MAC (lower case) → new one; a MAC that is not in it stays. Use one map for a domain and all its states. */
  macs?: ReadonlyMap<string, string>;
}

/**
 * Gives a domain another name and uuid, and other MACs when asked. What repeats the uuid follows it (SMBIOS: libvirt
 * refuses a domain whose sysinfo names another uuid); a generation id is left to libvirt to make anew when the uuid
 * changes, since a copy must not bear the original's.
 */
export function applyIdentity(domain: Element, { name, uuid, macs }: Identity): void {
  ensureChild(domain, 'name', domain.firstChild as Element | null).textContent = name;
  const element = ensureChild(domain, 'uuid', child(domain, 'name')?.nextSibling as Element | null);
  const changed = element.textContent?.trim().toLowerCase() !== uuid;
  element.textContent = uuid;
  for (const entry of childrenAt(domain, 'sysinfo/system').flatMap(system => children(system, 'entry'))) {
    if (attr(entry, 'name') === 'uuid') entry.textContent = uuid;
  }
  const generation = child(domain, 'genid');
  if (changed && generation) generation.textContent = '';
  if (macs) applyMacs(domain, macs);
}

function applyMacs(domain: Element, macs: ReadonlyMap<string, string>): void {
  for (const net of childrenAt(domain, 'devices/interface')) {
    const mac = child(net, 'mac');
    const next = macs.get(attr(mac, 'address')?.toLowerCase() ?? '');
    if (mac && next) mac.setAttribute('address', next);
  }
}

/** A fresh MAC of QEMU's range (52:54:00) for each of the old ones. */
export function newMacs(
  old: Iterable<string>,
  random: (size: number) => Buffer = randomBytes,
): Map<string, string> {
  const macs = new Map<string, string>();
  for (const mac of old) {
    const tail = [...random(3)].map(byte => byte.toString(16).padStart(2, '0'));
    macs.set(mac.toLowerCase(), ['52', '54', '00', ...tail].join(':'));
  }
  return macs;
}
