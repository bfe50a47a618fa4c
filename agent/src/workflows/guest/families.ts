/**
 * The families of guest systems (specification 4.6): how each is known, what it must have installed to join a directory, and
 * the commands that do it. All that differs between Linux guests stands in this table.
 */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Guest, Program, ProgramResult } from './guest.ts';
import type { Rdn } from './names.ts';

export type FamilyId = 'redhat' | 'debian' | 'alt' | 'astra';

export interface Login {
  directory: string;
  login: string;
  password: string;
}

export interface Join extends Login {
  /** The name in the directory: the host name's first part. */
  computer: string;
  /** Innermost part first; empty: the directory's default. */
  unit: Rdn[];
}

export interface Family {
  id: FamilyId;
  title: string;
  /** `ID` or `ID_LIKE` of /etc/os-release. */
  osIds: readonly string[];
  /**
   * Needed to join; the specification's lists, for Debian those that realmd itself asks for, and polkit, without which it
   * lets not even root do anything. `a|b`: one of them.
   */
  packages: readonly string[];
  /** Lists installed packages among the given ones. */
  packageQuery: (packages: readonly string[]) => Program;
  missingPackages: (packages: readonly string[], answer: ProgramResult) => string[];
  /** The unit of the computer's account can be chosen. */
  takesUnit: boolean;
  /** Succeeds when the directory is found. */
  find: (directory: string) => Program;
  join: (join: Join) => Program;
  leave: (leave: Login) => Program;
  /** Tells the directory that the guest is in. */
  current: Program;
  /** `current` succeeds in a guest that is in none too, so that its failure tells nothing. */
  alwaysTells: boolean;
  directoryIn: (answer: ProgramResult) => string | null;
  /** Succeeds when the directory knows the guest's own account. */
  proof: (directory: string) => Program;
}

/** Joining asks several servers and starts services; slow links and emulated guests take minutes. */
const JOIN_TIMEOUT_MS = 600_000;
const LOOK_TIMEOUT_MS = 120_000;

/** Texts are read: no translations. */
function english(path: string, ...args: string[]): Program {
  return { path: '/usr/bin/env', args: ['LC_ALL=C', path, ...args], timeoutMs: LOOK_TIMEOUT_MS };
}

const withPassword = (program: Program, password: string): Program => ({
  ...program,
  input: `${password}\n`,
  timeoutMs: JOIN_TIMEOUT_MS,
});

const rpm = {
  packageQuery: (packages: readonly string[]) => english('rpm', '-q', ...packages),
  missingPackages: (packages: readonly string[], { out }: ProgramResult) =>
    packages.filter(name => new RegExp(`^package ${escaped(name)} is not installed`, 'm').test(out)),
};

const dpkg = {
  packageQuery: (packages: readonly string[]) => {
    const names = packages.flatMap(entry => entry.split('|'));
    return english('dpkg-query', '-W', '-f', `\${Package} \${db:Status-Status}\\n`, ...names);
  },
  missingPackages: (packages: readonly string[], { out }: ProgramResult) => {
    const isInstalled = (name: string) => new RegExp(`^${escaped(name)} installed$`, 'm').test(out);
    return packages
      .filter(entry => !entry.split('|').some(isInstalled))
      .map(entry => entry.replaceAll('|', ' or '));
  },
};

/** The host name need not have the directory's name in it, so that is given. */
const testJoin = (directory: string) => english('adcli', 'testjoin', `--domain=${directory}`);

function realmJoin({ login, computer, unit, directory }: Join): string[] {
  const place = unit.length > 0 ? [`--computer-ou=${unitText(unit)}`] : [];
  return ['--verbose', '--unattended', `--user=${login}`, `--computer-name=${computer}`, ...place, directory];
}

const realmLeave = ({ login, directory }: Login) => [
  '--verbose',
  '--unattended',
  '--remove',
  `--user=${login}`,
  directory,
];

const realmd = {
  takesUnit: true,
  find: (directory: string) => english('realm', 'discover', '--name-only', directory),
  join: (join: Join) => withPassword(english('realm', 'join', ...realmJoin(join)), join.password),
  leave: (leave: Login) => withPassword(english('realm', 'leave', ...realmLeave(leave)), leave.password),
  current: english('realm', 'list', '--name-only'),
  alwaysTells: true,
  directoryIn: ({ out }: ProgramResult) => out.trim().split('\n')[0] || null,
  proof: testJoin,
};

/**
 * Debian's realmd lets PackageKit look whether its packages are there, and refuses to work where that is not installed. What is
 * needed was looked at before, so it is told to leave that out; then it leaves out starting sssd too.
 */
const DEBIAN_JOIN = 'realm join --install=/ "$@" && systemctl restart sssd';
const DEBIAN_LEAVE = 'realm leave --install=/ "$@" && { systemctl stop sssd || :; }';

const debian = {
  ...realmd,
  join: (join: Join) =>
    withPassword(english('/bin/sh', '-c', DEBIAN_JOIN, 'sh', ...realmJoin(join)), join.password),
  leave: (leave: Login) =>
    withPassword(english('/bin/sh', '-c', DEBIAN_LEAVE, 'sh', ...realmLeave(leave)), leave.password),
};

/** `system-auth` of Alt takes the password as an argument only; it comes to the shell in secret. */
const ALT_JOIN =
  'IFS= read -r p; d=$1 h=$2 w=$3 u=$4; shift 4; exec system-auth write ad "$d" "$h" "$w" "$u" "$p" "$@"';
/** Alt leaves by itself; the account in the directory is deleted with the login. */
const ALT_LEAVE =
  'IFS= read -r p; printf "%s\\n" "$p" | adcli delete-computer --domain="$1" --login-user="$2" --stdin-password && exec system-auth write local';

const alt = {
  takesUnit: true,
  find: (directory: string) => english('getent', 'ahosts', directory),
  join: ({ directory, login, password, computer, unit }: Join) => {
    const workgroup = directory.split('.')[0]!.toUpperCase().slice(0, 15);
    const place = unit.length > 0 ? [`--createcomputer=${unitPath(unit)}`] : [];
    const args = ['-c', ALT_JOIN, 'sh', directory, computer, workgroup, login, ...place];
    return withPassword(english('/bin/sh', ...args), password);
  },
  leave: ({ directory, login, password }: Login) =>
    withPassword(english('/bin/sh', '-c', ALT_LEAVE, 'sh', directory, login), password),
  current: english('system-auth', 'status'),
  alwaysTells: false,
  directoryIn: ({ out }: ProgramResult) => /^ad\s+(\S+)/m.exec(out)?.[1] ?? null,
  proof: testJoin,
};

const astra = {
  takesUnit: false,
  find: (directory: string) => english('getent', 'ahosts', directory),
  join: ({ directory, login, password }: Join) =>
    withPassword(english('astra-ad-sssd-client', '-d', directory, '-u', login, '-y'), password),
  leave: ({ login, password }: Login) =>
    withPassword(english('astra-ad-sssd-client', '-U', '-u', login, '-y'), password),
  current: english('astra-ad-sssd-client', '-i'),
  alwaysTells: false,
  directoryIn: ({ out }: ProgramResult) => /(?:domain|домен)\S*\s*[:=]\s*(\S+\.\S+)/i.exec(out)?.[1] ?? null,
  proof: testJoin,
};

export const FAMILIES: readonly Family[] = [
  {
    id: 'redhat',
    title: 'Red Hat',
    osIds: [
      'rhel',
      'centos',
      'fedora',
      'rocky',
      'almalinux',
      'ol',
      'redos',
      'red',
      'rosa',
      'rels',
      'msvsphere',
      'sberlinux',
    ],
    packages: [
      'adcli',
      'realmd',
      'sssd',
      'krb5-workstation',
      'krb5-libs',
      'oddjob',
      'oddjob-mkhomedir',
      'samba-common-tools',
    ],
    ...rpm,
    ...realmd,
  },
  {
    id: 'alt',
    title: 'Alt',
    osIds: ['altlinux', 'alt', 'simply', 'basealt'],
    packages: ['task-auth-ad-sssd'],
    ...rpm,
    ...alt,
  },
  {
    id: 'astra',
    title: 'Astra',
    osIds: ['astra'],
    packages: ['ssh', 'astra-ad-sssd-client'],
    ...dpkg,
    ...astra,
  },
  {
    id: 'debian',
    title: 'Debian',
    osIds: ['debian', 'ubuntu'],
    packages: ['adcli', 'realmd', 'sssd-ad', 'sssd-tools', 'libnss-sss', 'libpam-sss', 'polkitd|policykit-1'],
    ...dpkg,
    ...debian,
  },
];

/** The family of an `ID`, else of the first `ID_LIKE` that is known. */
export function familyOf(id: string | undefined, idLike: string): Family | undefined {
  for (const name of [id ?? '', ...idLike.split(/\s+/)]) {
    const found = FAMILIES.find(({ osIds }) => osIds.includes(name.toLowerCase()));
    if (found) return found;
  }
  return undefined;
}

/**
 * The family of a running Linux guest.
 * @throws VirtkeepError guest_os_unsupported; those of the agent
 */
export async function requireFamily(guest: Guest, operation: string): Promise<Family> {
  const { id, prettyName, name } = await guest.osInfo();
  const family = familyOf(id, '') ?? familyOf(undefined, await idLikeOf(guest));
  if (family) return family;
  throw new VirtkeepError('guest_os_unsupported', {
    domain: guest.name,
    os: prettyName ?? name ?? id ?? 'unknown',
    operation,
  });
}

async function idLikeOf(guest: Guest): Promise<string> {
  const program = { path: '/bin/sh', args: ['-c', '. /etc/os-release && printf %s "$ID_LIKE"'] };
  try {
    return (await guest.run(program)).out;
  } catch (error) {
    if (hasKey(error, 'guest_agent_failed')) return ''; // no shell: no Linux that is known here
    throw error;
  }
}

/** @throws VirtkeepError guest_packages_missing, naming all that are missing */
export async function requirePackages(guest: Guest, family: Family, operation: string): Promise<void> {
  const { packages, packageQuery, missingPackages } = family;
  const missing = missingPackages(packages, await guest.run(packageQuery(packages)));
  if (missing.length === 0) return;
  throw new VirtkeepError('guest_packages_missing', {
    domain: guest.name,
    operation,
    missing: missing.join(', '),
  });
}

/** The unit as LDAP writes it. */
export function unitText(unit: readonly Rdn[]): string {
  return unit.map(({ type, value }) => `${type}=${value}`).join(',');
}

/** The unit as `net ads join` takes it: a path from the top, without the domain. */
export function unitPath(unit: readonly Rdn[]): string {
  return unit
    .filter(({ type }) => type !== 'DC')
    .map(({ value }) => value.replaceAll(/\\(?=[ #+,;<=>"\\])/g, '').replaceAll('/', '\\/'))
    .reverse()
    .join('/');
}

function escaped(name: string): string {
  return name.replaceAll(/[.+*?^$()[\]{}|\\]/g, '\\$&');
}
