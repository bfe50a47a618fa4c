import type { Element } from '@xmldom/xmldom';
import { attr, children } from './dom.ts';

export type OsType = 'Windows' | 'Linux' | 'Other';

export interface GuestOs {
  type: OsType;
  /** The tail of the libosinfo id, e.g. "debian/12"; empty when unknown. */
  version: string;
  /** libosinfo's id, e.g. "http://debian.org/debian/12"; empty when unknown. */
  id: string;
}

const LIBOSINFO = /^http:\/\/libosinfo\.org\/xmlns\/libvirt\/domain\//;
/** Vendors of libosinfo's database whose systems run a Linux kernel. */
const LINUX_VENDORS =
  /(^|\.)(almalinux|alpinelinux|alt(linux|\.)|amazon|archlinux|astralinux|asianux|basealt|centos|cirros|clearlinux|debian|deepin|elementary|endless|eurolinux|fedoraproject|gentoo|getsol|guix|kali|linuxmint|mageia|mandriva|manjaro|miraclelinux|mxlinux|nixos|opensuse|oracle|pop-os|popos|purism|redhat|rockylinux|rosalinux|scientificlinux|slackware|slitaz|suse|system76|turbolinux|ubuntu|voidlinux)/;

/** The guest's operating system by the libosinfo element of the metadata. */
export function readGuestOs(domain: Element): GuestOs {
  return guestOsOf(osinfoId(domain) ?? '');
}

/** The system that libosinfo's id names; empty: unknown. */
export function guestOsOf(id: string): GuestOs {
  const parts = id.match(/^https?:\/\/([^/]+)\/(.*)$/);
  const [vendor, version] = [parts?.[1]?.toLowerCase() ?? '', parts?.[2] ?? ''];
  return { type: typeOf(vendor, version), version, id };
}

function osinfoId(domain: Element): string | undefined {
  const holder = children(domain, 'metadata')[0];
  if (!holder) return undefined;
  const info = children(holder).find(element => LIBOSINFO.test(element.namespaceURI ?? ''));
  const os = info && children(info).find(element => element.localName === 'os');
  return attr(os, 'id');
}

function typeOf(vendor: string, version: string): OsType {
  if (vendor === 'microsoft.com') return /^(msdos|os\/2)/.test(version) ? 'Other' : 'Windows';
  if (/^(solaris|opensolaris|netware)/.test(version)) return 'Other';
  if (vendor === 'libosinfo.org') return version.startsWith('linux') ? 'Linux' : 'Other';
  return LINUX_VENDORS.test(vendor) ? 'Linux' : 'Other';
}
