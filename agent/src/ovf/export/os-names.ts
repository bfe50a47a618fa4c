/** What other hypervisors call a system that libosinfo knows: the other way round of `os.ts`. */
import type { GuestOs } from '../../domain-xml/index.ts';
import type { ExportedOs } from './model.ts';

type Named = Omit<ExportedOs, 'description'>;

/** By the tail of libosinfo's id; of 64 bits where there are both. */
const WINDOWS: Record<string, Named> = {
  '2k': { cimId: 58, vmwareType: 'win2000ProGuest' },
  xp: { cimId: 67, vmwareType: 'winXPProGuest' },
  '2k3': { cimId: 70, vmwareType: 'winNetStandard64Guest' },
  vista: { cimId: 74, vmwareType: 'winVista64Guest' },
  '2k8': { cimId: 77, vmwareType: 'winLonghorn64Guest' },
  '2k8r2': { cimId: 103, vmwareType: 'windows7Server64Guest' },
  '7': { cimId: 105, vmwareType: 'windows7_64Guest' },
  '8': { cimId: 114, vmwareType: 'windows8_64Guest' },
  '8.1': { cimId: 114, vmwareType: 'windows8_64Guest' },
  '2k12': { cimId: 115, vmwareType: 'windows8Server64Guest' },
  '2k12r2': { cimId: 115, vmwareType: 'windows8Server64Guest' },
  '10': { cimId: 120, vmwareType: 'windows9_64Guest' },
  '2k16': { cimId: 116, vmwareType: 'windows9Server64Guest' },
  '2k19': { cimId: 121, vmwareType: 'windows2019srv_64Guest' },
  '11': { cimId: 122, vmwareType: 'windows11_64Guest' },
  '2k22': { cimId: 123, vmwareType: 'windows2019srvNext_64Guest' },
};

/** By the vendor's name in libosinfo's id; `#` stands for the major number. */
const DISTRIBUTIONS: [RegExp, number, string][] = [
  [/\/rhel\//, 80, 'rhel#_64Guest'],
  [/\/centos(-stream)?\//, 107, 'centos#_64Guest'],
  [/\/debian\//, 96, 'debian#_64Guest'],
  [/\/sle[sd]?\//, 85, 'sles#_64Guest'],
  [/\/ubuntu\//, 94, 'ubuntu64Guest'],
  [/\/fedora\//, 101, 'fedora64Guest'],
  [/\/opensuse\//, 101, 'opensuse64Guest'],
  [/\/ol\//, 101, 'oracleLinux64Guest'],
];
const LINUX: Named = { cimId: 101, vmwareType: 'otherLinux64Guest' };
const OTHER: Named = { cimId: 1, vmwareType: 'otherGuest64' };

/** The nearest names that there are; "other" for what is not known. */
export function osNamesOf(os: GuestOs): ExportedOs {
  return { ...namesOf(os), description: os.id };
}

function namesOf({ id, type }: GuestOs): Named {
  const tail = id.slice(id.lastIndexOf('/') + 1);
  if (type === 'Windows') return Object.hasOwn(WINDOWS, tail) ? WINDOWS[tail]! : WINDOWS['10']!;
  const [, cimId, pattern] = DISTRIBUTIONS.find(([known]) => known.test(id)) ?? [];
  if (cimId === undefined) return type === 'Linux' ? LINUX : OTHER;
  const major = /^\d{1,2}/.exec(tail)?.[0];
  if (pattern!.includes('#') && major === undefined) return { ...LINUX, cimId };
  return { cimId, vmwareType: pattern!.replace('#', major ?? '') };
}
