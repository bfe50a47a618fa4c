/**
 * The packages that an operation needs in a guest: which are missing, and their installation by the guest's own package manager.
 *
 * Only fetching the packages shows whether the package manager reaches its sources. Until then nothing in the guest is changed.
 * Installed packages stay, also when the operation fails later; the effect `guest_packages` says so.
 */
import { sleep } from '@virtkeep/shared/abort';
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { OperationContext } from '../context.ts';
import type { Effect } from '../effect.ts';
import { failureText, type Guest, type Program, type ProgramResult } from './guest.ts';
import {
  chosenNames,
  isBusy,
  isTimeOver,
  newlyInstalled,
  type PackageList,
  type PackageManager,
  packagesText,
} from './package-managers.ts';

/** Packages that are missing, for an operation in a guest. */
export interface Installation {
  guest: Guest;
  manager: PackageManager;
  missing: PackageList;
  /** Completes "lacks what … needs". */
  operation: string;
  /** False: nothing is installed. Absent: packages are installed when they can be fetched, else reported as missing. */
  install: boolean | undefined;
}

/** Those of the packages that the guest does not have. */
export async function missingPackages(
  guest: Guest,
  manager: PackageManager,
  packages: PackageList,
): Promise<string[]> {
  return packages.length === 0 ? [] : manager.missing(packages, await guest.run(manager.query(packages)));
}

/** Names all that are missing. */
export function packagesMissing({
  guest,
  missing,
  operation,
}: Pick<Installation, 'guest' | 'missing' | 'operation'>): VirtkeepError {
  const params = { domain: guest.name, operation, missing: packagesText(missing) };
  return new VirtkeepError('guest_packages_missing', params);
}

/**
 * Installs what is missing.
 * @param busy how long another package manager in the guest is waited for
 * @returns the names of all packages that are new in the guest, or of another version
 * @throws VirtkeepError guest_packages_missing when it is not to be installed, or cannot be fetched; guest_install_failed;
 *   those of the agent
 */
export async function installPackages(
  context: OperationContext,
  installation: Installation,
  busy: Patience = BUSY_PATIENCE,
): Promise<string[]> {
  const { guest, manager, missing, install } = installation;
  if (missing.length === 0) return [];
  if (install === false) throw packagesMissing(installation);
  const run = (program: Program) => whenFree(context, installation, program, busy);
  context.progress.message(`Fetching ${packagesText(missing)} in the guest.`);
  const names = await context.step('fetch packages', async () => {
    const { names, reason } = await fetched(installation, run);
    if (reason === null) return names;
    if (install === true) throw installFailed(installation, reason);
    context.warn(`The packages were not installed: ${reason}`);
    throw packagesMissing(installation);
  });
  context.progress.message(`Installing ${packagesText(missing)} in the guest.`);
  return context.step('install packages', async () => {
    const { result, installed } = await declared(context, installation, names, run);
    if (result.exitCode !== 0) throw installFailed(installation, failureText(result));
    const left = await missingPackages(guest, manager, missing);
    if (left.length > 0)
      throw installFailed(installation, `it succeeded, and ${packagesText(left)} is not there`);
    return installed;
  });
}

const installFailed = ({ guest, missing }: Installation, reason: string): VirtkeepError =>
  new VirtkeepError('guest_install_failed', { domain: guest.name, missing: packagesText(missing), reason });

/** The names to install; with a reason they cannot be had. */
async function fetched(
  { guest, manager, missing }: Installation,
  run: (program: Program) => Promise<ProgramResult>,
): Promise<{ names: string[]; reason: string | null }> {
  const { refresh, sources, fetch } = manager;
  // one source of several that fails is no reason: what counts is that the packages can be fetched
  const refreshed = refresh && (await run(refresh));
  if (refreshed && isTimeOver(refreshed)) return { names: [], reason: 'its sources did not answer in time' };
  const hasChoice = missing.some(entry => entry.includes('|'));
  const names =
    sources && hasChoice
      ? chosenNames(missing, await guest.run(sources(missing.flatMap(entry => entry.split('|')))))
      : missing.map(entry => entry.split('|')[0]!);
  const result = await run(fetch(names));
  if (result.exitCode === 0) return { names, reason: null };
  return { names, reason: isTimeOver(result) ? 'they were not fetched in time' : failureText(result) };
}

/** Runs an installation and declares it as an effect: first the requested packages, then those that were installed. */
async function declared(
  context: OperationContext,
  { guest, manager }: Installation,
  names: readonly string[],
  run: (program: Program) => Promise<ProgramResult>,
): Promise<{ result: ProgramResult; installed: string[] }> {
  const before = await guest.run(manager.listing);
  const effect = { type: 'guest_packages', domain: guest.name } as const;
  const requestEffect = context.effects.begin({ ...effect, packages: names, installed: false }, 'failure');
  const result = await run(manager.install(names));
  const installed = newlyInstalled(before, await guest.run(manager.listing));
  if (installed.length > 0)
    context.effects.begin({ ...effect, packages: installed, installed: true }, 'failure');
  requestEffect.keep();
  return { result, installed };
}

/** The warning that packages stay in a guest although the operation that needed them failed. */
export function stayingPackages({
  domain,
  packages,
  installed,
}: Extract<Effect, { type: 'guest_packages' }>): string {
  const names = packages.join(', ');
  return installed
    ? `What was installed in the guest of ${domain} stays: ${names}.`
    : `The package manager in the guest of ${domain} was installing ${names}. It goes on with that, and what it installs stays.`;
}

/** How long, and how often, something is tried, ms. */
export interface Patience {
  totalMs: number;
  retryMs: number;
}

/** Longer than a fetch that a cancelled operation left behind. */
const BUSY_PATIENCE: Patience = { totalMs: 600_000, retryMs: 5_000 };

/** Runs a package manager when no other one is at work in the guest. @throws VirtkeepError guest_install_failed */
async function whenFree(
  context: OperationContext,
  installation: Installation,
  program: Program,
  { totalMs, retryMs }: Patience,
): Promise<ProgramResult> {
  const endMs = performance.now() + totalMs;
  for (;;) {
    const result = await installation.guest.run(program);
    if (!isBusy(result)) return result;
    if (performance.now() >= endMs)
      throw installFailed(installation, `another one is at work there: ${failureText(result)}`);
    context.progress.message('Another package manager is at work in the guest; it is waited for.');
    await sleep(retryMs, context.signal);
  }
}
