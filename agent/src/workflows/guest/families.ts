/**
 * The families of guest systems (specification 4.6): how each is known, what it must have installed to join a directory, and
 * the commands that do it. All that differs between Linux guests stands in this table.
 */
import { hasKey, VirtkeepError } from '@virtkeep/shared/errors';
import type { Guest, Program, ProgramResult } from './guest.ts';
import type { Rdn } from './names.ts';
import {
  APT,
  APT_RECOMMENDED,
  APT_RPM,
  DNF_OR_YUM,
  english,
  type PackageManager,
} from './package-managers.ts';

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
  /** Of those, what leaving needs. */
  leavePackages: readonly string[];
  manager: PackageManager;
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
  proof: (login: Pick<Login, 'directory' | 'login'>) => Program;
  /** Shows the guest's account in the directory, and where it stands if the unit can be chosen; fails when there is none. */
  account: (login: Login, computer: string) => Program;
  /**
   * Logs in to the directory and changes nothing, for a leave that would take the guest out although the login is refused.
   * Null: leaving does that first.
   */
  loginCheck: ((login: Login, computer: string) => Program) | null;
}

/** Joining asks several servers and starts services; slow links and emulated guests take minutes. */
const JOIN_TIMEOUT_MS = 600_000;

const withPassword = (program: Program, password: string): Program => ({
  ...program,
  input: `${password}\n`,
  timeoutMs: JOIN_TIMEOUT_MS,
});

/** The host name need not have the directory's name in it, so that is given. */
const testJoin = ({ directory }: { directory: string }) =>
  english('adcli', 'testjoin', `--domain=${directory}`);

const showComputer = ({ directory, login }: Login, computer: string): string[] => [
  ...['show-computer', '--verbose', `--domain=${directory}`, `--login-user=${login}`, '--stdin-password'],
  computer,
];

/** By its login, which the directory checks so. */
const adcliAccount = (login: Login, computer: string): Program => ({
  ...english('adcli', ...showComputer(login, computer)),
  input: `${login.password}\n`,
});

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
  account: adcliAccount,
  loginCheck: adcliAccount,
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
/**
 * Alt leaves by itself, once the account in the directory is deleted by Samba, with which it joined; the directory checks the login
 * for that. The password is read from standard input.
 */
const ALT_LEAVE = 'PASSWD_FD=0 net ads leave --user="$1" && exec system-auth write local';
/** By the guest's own account. It succeeds when nothing is found, too. */
const ALT_ACCOUNT = `a=$(net ads search -P "(sAMAccountName=$1\\$)" distinguishedName) || exit
printf '%s\\n' "$a" | grep -i '^distinguishedName:' || { echo "the directory knows no $1" >&2; exit 1; }`;

const alt = {
  takesUnit: true,
  find: (directory: string) => english('getent', 'ahosts', directory),
  join: ({ directory, login, password, computer, unit }: Join) => {
    const workgroup = directory.split('.')[0]!.toUpperCase().slice(0, 15);
    const place = unit.length > 0 ? [`--createcomputer=${unitPath(unit)}`] : [];
    const args = ['-c', ALT_JOIN, 'sh', directory, computer, workgroup, login, ...place];
    return withPassword(english('/bin/sh', ...args), password);
  },
  leave: ({ login, password }: Login) =>
    withPassword(english('/bin/sh', '-c', ALT_LEAVE, 'sh', login), password),
  current: english('system-auth', 'status'),
  alwaysTells: false,
  directoryIn: ({ out }: ProgramResult) => /^ad\s+(\S+)/m.exec(out)?.[1] ?? null,
  proof: () => english('net', 'ads', 'testjoin'),
  account: (_login: Login, computer: string) => english('/bin/sh', '-c', ALT_ACCOUNT, 'sh', computer),
  loginCheck: null,
};

/**
 * Astra's list does not name adcli, so that may be absent. sssd, which its join sets up, knows the directory's users only as long
 * as the directory takes the guest's account; just started it knows none for a moment.
 */
const ASTRA_PROOF = `command -v adcli >/dev/null && exec adcli testjoin "--domain=$1"
case $2 in *[@\\\\]*) u=$2 ;; *) u=$2@$1 ;; esac
for i in 1 2 3 4 5 6 7 8 9 10; do getent passwd "$u" && exit; sleep 3; done
echo "sssd does not find $u" >&2
exit 1`;
const ASTRA_ACCOUNT = 'command -v adcli >/dev/null || exit 0; exec adcli "$@"';
const astraAccount = (login: Login, computer: string): Program => ({
  ...english('/bin/sh', '-c', ASTRA_ACCOUNT, 'sh', ...showComputer(login, computer)),
  input: `${login.password}\n`,
});

/**
 * A guest writes what is looked through, and with parts as long as one likes that would take for ever. A domain name has at most 253
 * characters, and neither a colon nor an equals sign in it.
 */
const NAMED_DOMAIN =
  /(?:domain|домен)\S{0,64}\s{0,64}[:=]\s{0,64}(?=[^\s:=]{1,252}\.[^\s:=])([^\s:=]{3,253})(?![^\s:=])/i;

const astra = {
  takesUnit: false,
  find: (directory: string) => english('getent', 'ahosts', directory),
  join: ({ directory, login, password }: Join) =>
    withPassword(english('astra-ad-sssd-client', '-d', directory, '-u', login, '-y'), password),
  leave: ({ login, password }: Login) =>
    withPassword(english('astra-ad-sssd-client', '-U', '-u', login, '-y'), password),
  current: english('astra-ad-sssd-client', '-i'),
  alwaysTells: false,
  directoryIn: ({ out }: ProgramResult) => NAMED_DOMAIN.exec(out)?.[1] ?? null,
  proof: ({ directory, login }: Pick<Login, 'directory' | 'login'>) =>
    english('/bin/sh', '-c', ASTRA_PROOF, 'sh', directory, login),
  account: astraAccount,
  loginCheck: astraAccount,
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
    leavePackages: ['adcli', 'realmd'],
    manager: DNF_OR_YUM,
    ...realmd,
  },
  {
    id: 'alt',
    title: 'Alt',
    osIds: ['altlinux', 'alt', 'simply', 'basealt'],
    packages: ['task-auth-ad-sssd'],
    leavePackages: [],
    manager: APT_RPM,
    ...alt,
  },
  {
    id: 'astra',
    title: 'Astra',
    osIds: ['astra'],
    packages: ['ssh', 'astra-ad-sssd-client'],
    leavePackages: ['astra-ad-sssd-client'],
    manager: APT_RECOMMENDED,
    ...astra,
  },
  {
    id: 'debian',
    title: 'Debian',
    osIds: ['debian', 'ubuntu'],
    packages: ['adcli', 'realmd', 'sssd-ad', 'sssd-tools', 'libnss-sss', 'libpam-sss', 'polkitd|policykit-1'],
    leavePackages: ['adcli', 'realmd', 'polkitd|policykit-1'],
    manager: APT,
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
