import type { Element } from '@xmldom/xmldom';
import { attr, child, children, ensureChild, remove } from './dom.ts';
import { editDomain, removeChildren, removeEverywhere } from './edit.ts';
import { type DomainMetadata, lastingMetadata, writeMetadata } from './metadata.ts';

/** Names the file of the UEFI variables; null lets libvirt make them anew from the template. */
export function setNvram(xml: string, path: string | null): string {
  return editDomain(xml, domain => applyNvram(domain, path));
}

/** As `setNvram`, on a tree. */
export function applyNvram(domain: Element, path: string | null): void {
  const nvram = child(domain, 'os/nvram');
  if (path === null) {
    if (!nvram) return;
    for (const inner of children(nvram)) remove(inner);
    nvram.textContent = '';
    if (nvram.attributes.length === 0) remove(nvram);
    return;
  }
  const os = child(domain, 'os');
  if (!os) return;
  const next = nvram ?? ensureChild(os, 'nvram', child(os, 'loader')?.nextSibling as Element | null);
  const source = child(next, 'source');
  if (source) source.setAttribute('file', path);
  else next.textContent = path;
}

/** Sets virtkeep's own metadata element. */
export function setMetadata(xml: string, metadata: DomainMetadata): string {
  return editDomain(xml, domain => applyMetadata(domain, metadata));
}

/** As `setMetadata`, on a tree. */
export function applyMetadata(domain: Element, metadata: DomainMetadata): void {
  writeMetadata(domain.ownerDocument!, domain, lastingMetadata(metadata));
}

/**
 * Drops what a live XML says about the running process and no definition should: domain id, device aliases that libvirt
 * gave, dynamic labels, recorded chains, mirrors, ports and ttys that were chosen at start, agent state.
 */
export function stripRuntime(xml: string): string {
  return editDomain(xml, applyStripRuntime);
}

/** As `stripRuntime`, on a tree. */
export function applyStripRuntime(domain: Element): void {
  domain.removeAttribute('id');
  for (const label of children(domain, 'seclabel')) {
    if ((attr(label, 'type') ?? 'dynamic') === 'dynamic') remove(label);
  }
  const devices = child(domain, 'devices');
  if (!devices) return;
  removeEverywhere(devices, 'mirror');
  for (const disk of children(devices, 'disk')) {
    removeChildren(disk, 'backingStore');
    child(disk, 'source')?.removeAttribute('index');
  }
  for (const device of children(devices)) stripDevice(device);
}

function stripDevice(device: Element): void {
  for (const alias of children(device, 'alias')) {
    // names that a user gave begin with "ua-"; libvirt's own are made anew at each start
    if (!attr(alias, 'name')?.startsWith('ua-')) remove(alias);
  }
  const target = child(device, 'target');
  if (device.localName === 'channel') {
    target?.removeAttribute('state');
    const source = child(device, 'source');
    if (attr(source, 'mode') === 'bind' && attr(target, 'name')?.startsWith('org.qemu.')) remove(source!);
  }
  if (device.localName === 'interface' && /^(vnet|macvtap)\d+$/.test(attr(target, 'dev') ?? ''))
    remove(target!);
  if (attr(device, 'type') === 'pty') {
    device.removeAttribute('tty');
    for (const source of children(device, 'source')) source.removeAttribute('path');
  }
  if (device.localName === 'graphics' && attr(device, 'autoport') === 'yes') {
    device.removeAttribute('port');
    device.removeAttribute('tlsPort');
  }
}
