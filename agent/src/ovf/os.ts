/** Which system a guest runs, by the names of VMware and VirtualBox and by the numbers of CIM, as libosinfo's ids. */
import { type GuestOs, guestOsOf } from '../domain-xml/index.ts';
import type { OvfSystem } from './model.ts';

export interface ApplianceOs extends GuestOs {
  /** The descriptor's own words, empty when it has none. */
  description: string;
}

const WINDOWS = 'http://microsoft.com/win/';
/** Of no distribution, or of one whose version is not told. */
const LINUX = 'http://libosinfo.org/linux/2022';

/**
 * The first that fits the name, in lower case and without `guest` and the width. VMware named two systems before their maker
 * did: windows9 is Windows 10, windows2019srvnext is 2022.
 */
const BY_NAME: [RegExp, string][] = [
  [/^windows2019srvnext|^windows2022/, `${WINDOWS}2k22`],
  [/^windows2019/, `${WINDOWS}2k19`],
  [/^windows9server|^windows2016/, `${WINDOWS}2k16`],
  [/^windows8server|^windows2012/, `${WINDOWS}2k12`],
  [/^windows7server|^windows2008r2/, `${WINDOWS}2k8r2`],
  [/^winlonghorn|^windows2008/, `${WINDOWS}2k8`],
  [/^winnet|^windows2003/, `${WINDOWS}2k3`],
  [/^windows1[12]/, `${WINDOWS}11`],
  [/^windows9|^windows10/, `${WINDOWS}10`],
  [/^windows8/, `${WINDOWS}8`],
  [/^windows7/, `${WINDOWS}7`],
  [/^win(dows)?vista/, `${WINDOWS}vista`],
  [/^win(dows)?xp/, `${WINDOWS}xp`],
  [/^win(dows)?2000/, `${WINDOWS}2k`],
  [/^win/, `${WINDOWS}10`],
  [/^(rhel|redhat)/, 'http://redhat.com/rhel/*'],
  [/^centos/, 'http://centos.org/centos/*'],
  [/^debian/, 'http://debian.org/debian/*'],
  [/^sles/, 'http://suse.com/sles/*'],
  [
    /linux|ubuntu|fedora|suse|oracle|mandr|photon|coreos|arch|gentoo|almalinux|rocky|turbo|asianux|amazon|crxpod/,
    LINUX,
  ],
];

/** CIM_OperatingSystem.OsType. */
const BY_NUMBER: Record<string, string> = {
  36: LINUX, 79: 'rhel', 80: 'rhel', 84: LINUX, 85: LINUX, 93: LINUX, 94: LINUX, 95: 'debian', 96: 'debian',
  99: LINUX, 100: LINUX, 101: LINUX, 106: 'centos', 107: 'centos', 108: LINUX, 109: LINUX,
  67: 'xp', 71: 'xp', 69: '2k3', 70: '2k3', 73: 'vista', 74: 'vista', 76: '2k8', 77: '2k8', 103: '2k8r2', 105: '7',
  112: '2k12', 115: '2k12', 116: '2k16', 119: '10', 120: '10', 121: '2k19', 122: '11', 123: '2k22',
}; // biome-ignore format: a table

/** What libosinfo calls a version that is told by its major number alone, and one that is not told. */
const VERSIONS: Record<string, { of: (major: number) => string; unknown: string }> = {
  rhel: {
    of: major => (major >= 6 ? `${major}-unknown` : `${major}.0`),
    unknown: 'http://redhat.com/rhel/8-unknown',
  },
  centos: { of: major => (major >= 8 ? `${major}` : `${major}.0`), unknown: 'http://centos.org/centos/7.0' },
  debian: { of: String, unknown: 'http://debian.org/debian/12' },
  sles: { of: String, unknown: 'http://suse.com/sles/12' },
};

/** VMware's name, else VirtualBox's, else CIM's number: the first that says something. */
export function osOf({ os }: OvfSystem): ApplianceOs {
  const id = byName(os.vmwareType) ?? byName(os.virtualBoxType) ?? byNumber(os.cimId) ?? '';
  return { ...guestOsOf(id), description: os.description || os.vmwareType || os.virtualBoxType };
}

function byName(name: string): string | undefined {
  const plain = name
    .toLowerCase()
    .replace(/guest$/, '')
    .replace(/_?64$/, '')
    .replaceAll('_', '');
  const id = BY_NAME.find(([pattern]) => pattern.test(plain))?.[1];
  if (!id?.endsWith('*')) return id;
  const family = id.split('/').at(-2)!;
  const major = /\d{1,2}$/.exec(plain)?.[0];
  return major ? id.replace('*', VERSIONS[family]!.of(Number(major))) : VERSIONS[family]!.unknown;
}

function byNumber(number: string): string | undefined {
  const id = Object.hasOwn(BY_NUMBER, number) ? BY_NUMBER[number]! : undefined;
  if (id === undefined || id.startsWith('http:')) return id;
  return Object.hasOwn(VERSIONS, id) ? VERSIONS[id]!.unknown : `${WINDOWS}${id}`;
}
