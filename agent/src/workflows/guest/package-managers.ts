/**
 * The package managers of Linux guests: which packages are there, and how more are fetched and installed. None of the programs
 * asks a question, waits for ever, removes a package, or takes one whose signature is not known.
 */
import { LARGE_OUTPUT_BYTES, type Program, type ProgramResult } from './guest.ts';

/** Names of packages; `a|b`: one of the two is enough. */
export type PackageList = readonly string[];

export interface PackageManager {
  /** Asks which of the packages are installed. */
  query(packages: PackageList): Program;
  /** Those that the answer to `query` does not name. */
  missing(packages: PackageList, answer: ProgramResult): string[];
  /** Tells name, version and "installed" of all that is there, one package a line; one that is half installed has another word. */
  listing: Program;
  /** Fetches the lists of its sources; absent where `fetch` does that, too. */
  refresh?: Program;
  /** Asks whether the sources have packages of these names; absent where no entry has a choice. */
  sources?: (names: readonly string[]) => Program;
  /** Fetches packages and all that they need, and installs nothing: it may be ended at any moment. */
  fetch(names: readonly string[]): Program;
  /** Installs what was fetched. It is not ended when it takes long: that would leave packages half installed. */
  install(names: readonly string[]): Program;
}

/** Limit of a program that only reads. */
const LOOK_TIMEOUT_MS = 120_000;
/** Lists and packages come from servers that may not answer, or slowly; the guest itself ends what takes longer. */
const REFRESH_TIMEOUT_S = 180;
const FETCH_TIMEOUT_S = 480;
const KILL_AFTER_S = 15;
/** Unpacking and configuring a hundred packages takes minutes in slow guests. */
const INSTALL_TIMEOUT_MS = 1_800_000;
/** A server that does not answer, s. */
const SERVER_TIMEOUT_S = 20;

/** Texts are read: no translations. */
export function english(path: string, ...args: string[]): Program {
  return { path: '/usr/bin/env', args: ['LC_ALL=C', path, ...args], timeoutMs: LOOK_TIMEOUT_MS };
}

/** The same for a list of all packages, with room for all of it: a cut list would hide what was installed. */
const listing = (path: string, ...args: string[]): Program => ({
  ...english(path, ...args),
  maxOutputBytes: LARGE_OUTPUT_BYTES,
});

/** A program that the guest ends when its time is over. */
const bounded = (seconds: number, { path, args }: Program): Program => ({
  path: '/usr/bin/env',
  args: ['LC_ALL=C', 'timeout', '-k', String(KILL_AFTER_S), String(seconds), path, ...args],
  timeoutMs: (seconds + 2 * KILL_AFTER_S) * 1000,
});

/** The guest ended it because its time was over: exit codes of `timeout`. */
export const isTimeOver = ({ exitCode }: ProgramResult): boolean => exitCode === 124 || exitCode === 137;

const BUSY =
  /Could not get lock|Unable to (?:lock|acquire)|is another process using it|Existing lock|(?:create|obtain|get) (?:the )?(?:transaction )?lock/i;
const NOT_BUSY = /Permission denied|Read-only file system|are you root/i;
/** Of dnf and yum: somebody else has their lock. */
const EXIT_LOCKED = 200;

/** Another package manager is at work in the guest: updates that it makes by itself, say. */
export function isBusy({ exitCode, out, err }: ProgramResult): boolean {
  if (exitCode === 0) return false;
  const said = `${out}\n${err}`;
  return exitCode === EXIT_LOCKED || (BUSY.test(said) && !NOT_BUSY.test(said));
}

/** Nothing is asked, settings that were changed by hand stay, and no service is restarted: the guest's agent may be one of them. */
const APT_ENVIRONMENT = [
  'DEBIAN_FRONTEND=noninteractive',
  'DEBIAN_PRIORITY=critical',
  'APT_LISTCHANGES_FRONTEND=none',
  'NEEDRESTART_SUSPEND=1',
];
const APT_OPTIONS = [
  'Acquire::Retries=1',
  ...['http', 'https', 'ftp'].map(scheme => `Acquire::${scheme}::Timeout=${SERVER_TIMEOUT_S}`),
  'Dpkg::Use-Pty=0',
  'Dpkg::Options::=--force-confdef',
  'Dpkg::Options::=--force-confold',
  'APT::Get::Remove=false',
].flatMap(option => ['-o', option]);

const aptGet = (...args: string[]): Program => ({
  path: '/usr/bin/env',
  args: ['LC_ALL=C', ...APT_ENVIRONMENT, 'apt-get', '-q', '-y', ...APT_OPTIONS, ...args],
});

/** @param options of its own, such as to leave out what is only recommended */
const apt = (...options: string[]) => ({
  refresh: bounded(REFRESH_TIMEOUT_S, aptGet('update')),
  fetch: (names: readonly string[]) =>
    bounded(FETCH_TIMEOUT_S, aptGet(...options, 'install', '--download-only', ...names)),
  install: (names: readonly string[]) => ({
    ...aptGet(...options, 'install', ...names),
    timeoutMs: INSTALL_TIMEOUT_MS,
  }),
});

const rpm = {
  query: (packages: PackageList) => english('rpm', '-q', ...packages),
  missing: (packages: PackageList, { out }: ProgramResult) =>
    packages.filter(name => new RegExp(`^package ${escaped(name)} is not installed`, 'm').test(out)),
  listing: listing('rpm', '-qa', '--qf', '%{NAME} %{VERSION}-%{RELEASE} installed\\n'),
};

const dpkg = {
  query: (packages: PackageList) => {
    const names = packages.flatMap(entry => entry.split('|'));
    return english('dpkg-query', '-W', '-f', `\${Package} \${db:Status-Status}\\n`, ...names);
  },
  missing: (packages: PackageList, { out }: ProgramResult) => {
    const isInstalled = (name: string) => new RegExp(`^${escaped(name)} installed$`, 'm').test(out);
    return packages.filter(entry => !entry.split('|').some(isInstalled));
  },
  listing: listing('dpkg-query', '-W', '-f', `\${Package} \${Version} \${db:Status-Status}\\n`),
  sources: (names: readonly string[]) => english('apt-cache', 'policy', ...names),
};

/** Of Debian; what is only recommended is not needed to join, and is a lot. */
export const APT: PackageManager = { ...dpkg, ...apt('--no-install-recommends') };
/** Of Astra, whose own instructions take what is recommended. */
export const APT_RECOMMENDED: PackageManager = { ...dpkg, ...apt() };
/** Of Alt, where apt installs rpm packages. */
export const APT_RPM: PackageManager = { ...rpm, ...apt() };

/** yum is what there was before dnf. */
const DNF =
  'p=$(command -v dnf || command -v yum) || { echo "there is neither dnf nor yum" >&2; exit 127; }; exec "$p" "$@"';
const DNF_OPTIONS = [
  '-y',
  '--setopt=exit_on_lock=1',
  `--setopt=timeout=${SERVER_TIMEOUT_S}`,
  '--setopt=retries=2',
  '--setopt=*.skip_if_unavailable=1',
];
const dnf = (...args: string[]): Program => ({
  path: '/usr/bin/env',
  args: ['LC_ALL=C', '/bin/sh', '-c', DNF, 'sh', ...DNF_OPTIONS, ...args],
});

/** Of Red Hat and kin. */
export const DNF_OR_YUM: PackageManager = {
  ...rpm,
  fetch: names => bounded(FETCH_TIMEOUT_S, dnf('install', '--downloadonly', ...names)),
  install: names => ({ ...dnf('install', ...names), timeoutMs: INSTALL_TIMEOUT_MS }),
};

/** Of each entry the name to install: the first that the sources have, by what `sources` answered; else the first. */
export function chosenNames(packages: PackageList, { out }: ProgramResult): string[] {
  const isThere = (name: string) =>
    new RegExp(`^${escaped(name)}:\\n(?: .*\\n)*? +Candidate: (?!\\(none\\))`, 'm').test(out);
  return packages.map(entry => {
    const names = entry.split('|');
    return names.find(isThere) ?? names[0]!;
  });
}

/** The packages whose line is in one listing and not in the one before: new, or of another version. */
export function newlyInstalled(before: ProgramResult, after: ProgramResult): string[] {
  const linesBefore = new Set(before.out.split('\n'));
  const names = after.out
    .split('\n')
    .filter(line => line.endsWith(' installed') && !linesBefore.has(line))
    .map(line => line.split(' ')[0]!);
  return [...new Set(names)].sort();
}

/** The packages as a text for people. */
export const packagesText = (packages: PackageList): string =>
  packages.map(entry => entry.replaceAll('|', ' or ')).join(', ');

function escaped(name: string): string {
  return name.replaceAll(/[.+*?^$()[\]{}|\\]/g, '\\$&');
}
