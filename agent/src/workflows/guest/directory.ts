/**
 * Joins a running guest to a directory domain, and takes it out again (specification 4.6): Linux by the tools of its family
 * (families.ts), Windows by Add-Computer and Remove-Computer. That the directory knows the computer is asked afterwards.
 */
import { sleep, throwIfAborted } from '@virtkeep/shared/abort';
import { reasonOf, VirtkeepError } from '@virtkeep/shared/errors';
import { isWindows } from '../../guest/index.ts';
import type { OperationContext, Workflow } from '../context.ts';
import type { Effect } from '../effect.ts';
import { changing } from './change.ts';
import { directoryFailure, isBelow, leaveRefused, placeIn } from './directory-answers.ts';
import { type GuestOperations, guestOf, inDomain, requireRunning } from './domain.ts';
import { type Family, requireFamily, unitText } from './families.ts';
import { failureText, type Guest, operationFailed } from './guest.ts';
import { linuxName, nameLinux } from './hostname.ts';
import { type Rdn, requireComputerName } from './names.ts';
import { installPackages, missingPackages, packagesMissing } from './packages.ts';
import { restartGuest } from './restart.ts';
import { type Failures, JOIN, LEAVE, powershell, READ_DOMAIN, runScript } from './windows.ts';

export interface JoinRequest {
  domainId: string;
  /** DNS name of the directory. */
  directory: string;
  login: string;
  password: string;
  /** Empty: as it is. */
  computerName: string;
  /** Innermost part first; empty: the directory's default. */
  unit: Rdn[];
  restart: boolean;
  /** Linux: install packages that are missing; absent: where the guest's package manager gets them. */
  installPackages?: boolean | undefined;
}

export interface LeaveRequest {
  domainId: string;
  login: string;
  password: string;
  /** Linux; empty: the one it is in. */
  directory: string;
  restart: boolean;
}

const JOINING = 'joining the directory';
const toJoin = (directory: string) => `join the directory ${directory}`;
const LEAVING = 'leaving the directory';
const TO_LEAVE = 'leave its directory';
const WINDOWS_TIMEOUT_MS = 600_000;
/** How long a guest may take to have its former name again, also when the operation was canceled. */
const NAME_BACK_MS = 60_000;

/** The workflow. Result: `{"domain","computer_name","restarted","warnings":[…],"installed":[…]}`. */
export function joinDirectory(operations: GuestOperations, request: JoinRequest): Workflow {
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const { config, guest } = await requireRunning(operations, domain, context.signal);
      const guestUntil = (signal: AbortSignal) => guestOf(operations, domain, config.name, signal);
      const onWindows = isWindows(await guest.osInfo());
      const { computer, installed } = onWindows
        ? { computer: await joinWindows(context, guest, request), installed: [] }
        : await joinLinux(context, guest, request, guestUntil);
      const restarted =
        request.restart &&
        (await context.step('restart', () => restartGuest(context, guest, onWindows ? 'windows' : 'linux')));
      const warnings: string[] = [];
      if (restarted) warnings.push(...(await provenAgain(context, guest, { ...request, onWindows })));
      if (onWindows && !request.restart) warnings.push('The guest is in the directory when it is restarted.');
      for (const warning of warnings) context.warn(warning);
      const value = { domain: request.directory, computerName: computer, restarted, warnings, installed };
      context.commit({ $case: 'joinDirectory', value });
    });
}

/** The workflow. Result: `{"domain","restarted"}`. */
export function leaveDirectory(operations: GuestOperations, request: LeaveRequest): Workflow {
  return context =>
    inDomain(operations, request.domainId, context, async domain => {
      const { guest } = await requireRunning(operations, domain, context.signal);
      const onWindows = isWindows(await guest.osInfo());
      const directory = onWindows
        ? await leaveWindows(context, guest, request)
        : await leaveLinux(context, guest, request);
      const restarted =
        request.restart &&
        (await context.step('restart', () => restartGuest(context, guest, onWindows ? 'windows' : 'linux')));
      context.commit({ $case: 'leaveDirectory', value: { domain: directory, restarted } });
    });
}

async function joinLinux(
  context: OperationContext,
  guest: Guest,
  request: JoinRequest,
  guestUntil: (signal: AbortSignal) => Guest,
): Promise<{ computer: string; installed: string[] }> {
  const { directory, unit } = request;
  const { family, before, computer, missing } = await context.step('check', () => looked(guest, request));
  const { manager } = family;
  const installed = await installPackages(context, {
    ...{ guest, manager, missing, operation: JOINING, install: request.installPackages },
  });
  await context.step('find', async () => {
    refuseJoined(guest, await directoryOf(guest, family, JOINING));
    await requireFound(guest, family, directory);
  });
  const isRenamed = request.computerName !== '' && before.split('.')[0] !== request.computerName;
  const name = isRenamed ? renamed(before, computer) : before;
  const effect = { type: 'guest_name', domain: guest.name, before, name } as const;
  const kept = isRenamed ? context.effects.begin(effect, 'failure') : undefined;
  const isOut = async () => (await directoryOf(guest, family, JOINING)) === null;
  const joining = changing(context, guest, toJoin(directory), isOut);
  try {
    if (isRenamed) await context.step('rename', () => nameLinux(guest, name));
    await context.step('join', async () => {
      const result = await joining.run(family.join({ ...request, computer, unit }));
      if (result.exitCode !== 0) throw directoryFailure(guest, JOINING, request, result);
    });
    await context.step('verify', () => verifyJoined(guest, family, request, computer));
  } catch (error) {
    // a guest that may be in the directory is known there by its new name
    if (kept && !joining.mayStand()) {
      // else its effect tells
      const back = guestUntil(AbortSignal.timeout(NAME_BACK_MS));
      await nameLinux(back, before)
        .then(kept.keep)
        .catch(() => {});
    }
    throw error;
  }
  return { computer, installed };
}

/** Reads what a join needs to know of a guest, before anything in it is changed. */
async function looked(guest: Guest, { unit, computerName }: JoinRequest) {
  const family = await requireFamily(guest, JOINING);
  if (unit.length > 0 && !family.takesUnit)
    throw new VirtkeepError('invalid_field', {
      field: 'organizational_unit',
      reason: `cannot be chosen for guests of the family ${family.title}; leave it out`,
    });
  const before = await linuxName(guest);
  const computer = requireComputerName('computer_name', computerName || before.split('.')[0]!);
  const missing = await missingPackages(guest, family.manager, family.packages);
  if (missing.length > 0) {
    // nothing is installed in a guest that is joined already; the program that tells so may itself be missing
    const answer = await guest.run(family.current);
    if (answer.exitCode === 0) refuseJoined(guest, family.directoryIn(answer));
  }
  return { family, before, computer, missing };
}

function refuseJoined(guest: Guest, current: string | null): void {
  if (current !== null)
    throw operationFailed(guest, JOINING, `it is in the directory ${current}; leave that first`);
}

/** The warning that a guest may have another name although its join failed. */
export function stayingName({ domain, before, name }: Extract<Effect, { type: 'guest_name' }>): string {
  return `The guest of ${domain} may have the name ${name} now, which it was to join under; before, it was ${before}.`;
}

/** A full name keeps its domain part. */
function renamed(before: string, computer: string): string {
  const dot = before.indexOf('.');
  return dot < 0 ? computer : `${computer}${before.slice(dot)}`;
}

/** What realmd's service needs to start in a slow guest may be more than D-Bus waits for it, 25 s. */
const MAX_ATTEMPTS = 3;

/**
 * The directory that a guest is in; null: none.
 * @throws VirtkeepError guest_operation_failed when it does not tell
 */
export async function directoryOf(guest: Guest, family: Family, operation: string): Promise<string | null> {
  for (let left = MAX_ATTEMPTS - 1; ; left -= 1) {
    const result = await guest.run(family.current);
    if (result.exitCode === 0) return family.directoryIn(result);
    if (!family.alwaysTells) return null;
    if (left === 0) throw operationFailed(guest, operation, failureText(result));
  }
}

async function requireFound(guest: Guest, family: Family, directory: string): Promise<void> {
  const result = await guest.run(family.find(directory));
  if (result.exitCode === 0 && result.out.trim() !== '') return;
  const reason = failureText(result);
  if (/Not authorized|connect to realm service/i.test(reason)) throw operationFailed(guest, JOINING, reason);
  throw new VirtkeepError('directory_not_found', { domain: guest.name, directory, reason });
}

/** The guest says that it is in, the directory takes its own account, and that stands where it was wished. */
async function verifyJoined(
  guest: Guest,
  family: Family,
  request: JoinRequest,
  computer: string,
): Promise<void> {
  const { directory, password, unit } = request;
  const current = await directoryOf(guest, family, JOINING);
  if (current?.toLowerCase() !== directory.toLowerCase())
    throw operationFailed(guest, JOINING, `it is not in ${directory} afterwards`);
  const proof = await guest.run(family.proof(request));
  if (proof.exitCode !== 0)
    throw operationFailed(guest, JOINING, `the directory does not take its account: ${failureText(proof)}`);
  const shown = await guest.run(family.account(request, computer));
  if (shown.exitCode !== 0)
    throw operationFailed(
      guest,
      JOINING,
      `the directory has no account ${computer}: ${failureText(shown, password)}`,
    );
  if (unit.length === 0) return;
  const place = placeIn(shown);
  if (place === undefined)
    throw operationFailed(guest, JOINING, `the directory does not tell where the account ${computer} is`);
  if (!isBelow(place, unitText(unit)))
    throw operationFailed(guest, JOINING, `its account is ${place}, and not in ${unitText(unit)}`);
}

async function leaveLinux(context: OperationContext, guest: Guest, request: LeaveRequest): Promise<string> {
  const { login, password } = request;
  const { family, directory } = await context.step('check', async () => {
    const family = await requireFamily(guest, LEAVING);
    const missing = await missingPackages(guest, family.manager, family.leavePackages);
    if (missing.length > 0) throw packagesMissing({ guest, missing, operation: LEAVING });
    const current = await directoryOf(guest, family, LEAVING);
    if (current === null) throw operationFailed(guest, LEAVING, 'it is in no directory');
    const directory = request.directory || current;
    if (directory.toLowerCase() !== current.toLowerCase())
      throw operationFailed(guest, LEAVING, `it is in the directory ${current}, not in ${directory}`);
    return { family, directory: current };
  });
  const computer = (await linuxName(guest)).split('.')[0]!;
  await context.step('leave', async () => {
    const who = { directory, login, password };
    const refused =
      family.loginCheck &&
      leaveRefused(guest, LEAVING, who, await guest.run(family.loginCheck(who, computer)));
    if (refused) throw refused;
    const isIn = async () => (await directoryOf(guest, family, LEAVING)) !== null;
    const result = await changing(context, guest, TO_LEAVE, isIn).run(family.leave(who));
    if (result.exitCode !== 0) throw directoryFailure(guest, LEAVING, who, result);
  });
  await context.step('verify', async () => {
    const left = await directoryOf(guest, family, LEAVING);
    if (left !== null) throw operationFailed(guest, LEAVING, `it still is in ${left}`);
  });
  return directory;
}

/** The agent of a guest answers before its network is up and the services of the join run. */
const PROOF_PATIENCE_MS = 300_000;
const PROOF_RETRY_MS = 2_000;

/**
 * After a restart the directory must still take the guest; one that does not is told, since the join itself stands.
 * @returns warnings
 * @throws canceled
 */
export async function provenAgain(
  context: OperationContext,
  guest: Guest,
  { onWindows, ...request }: JoinRequest & { onWindows: boolean },
  patienceMs = PROOF_PATIENCE_MS,
): Promise<string[]> {
  const deadline = Date.now() + patienceMs;
  return context.step('read back', async () => {
    for (;;) {
      const reason = await refusedBecause(guest, onWindows, request);
      if (reason === null) return [];
      throwIfAborted(context.signal);
      if (Date.now() >= deadline) return [`After its restart: ${reason}`];
      await sleep(PROOF_RETRY_MS, context.signal);
    }
  });
}

/** Why the directory does not take the guest; null when it does. */
async function refusedBecause(
  guest: Guest,
  onWindows: boolean,
  request: JoinRequest,
): Promise<string | null> {
  try {
    if (onWindows) {
      await requireWindowsIn(guest, request.directory);
      return null;
    }
    const proof = await guest.run((await requireFamily(guest, JOINING)).proof(request));
    return proof.exitCode === 0 ? null : failureText(proof);
  } catch (error) {
    return reasonOf(error);
  }
}

async function joinWindows(context: OperationContext, guest: Guest, request: JoinRequest): Promise<string> {
  const { directory, login, password, unit } = request;
  const name = request.computerName === '' ? '' : requireComputerName('computer_name', request.computerName);
  await context.step('check', async () => {
    const { joined, domain } = await readWindowsDomain(guest, JOINING);
    if (joined === true)
      throw operationFailed(guest, JOINING, `it is in the directory ${String(domain)}; leave that first`);
  });
  const answer = await context.step('join', () => {
    const given = { directory, login, password, name, unit: unitText(unit) };
    const isOut = async () => (await readWindowsDomain(guest, JOINING)).joined === false;
    return runScript(
      changing(context, guest, toJoin(directory), isOut),
      JOINING,
      powershell(JOIN, given, WINDOWS_TIMEOUT_MS),
      failuresOf(guest, directory, login),
    );
  });
  await context.step('verify', () => requireWindowsIn(guest, directory));
  return name || String(answer.name);
}

async function leaveWindows(context: OperationContext, guest: Guest, request: LeaveRequest): Promise<string> {
  const { login, password } = request;
  const answer = await context.step('leave', () => {
    const program = powershell(LEAVE, { login, password }, WINDOWS_TIMEOUT_MS);
    const isIn = async () => (await readWindowsDomain(guest, LEAVING)).joined === true;
    const leaving = changing(context, guest, TO_LEAVE, isIn);
    return runScript(leaving, LEAVING, program, failuresOf(guest, 'of the guest', login));
  });
  await context.step('verify', async () => {
    const { joined, domain } = await readWindowsDomain(guest, LEAVING);
    if (joined !== false) throw operationFailed(guest, LEAVING, `it still is in ${String(domain)}`);
  });
  return String(answer.former);
}

function readWindowsDomain(guest: Guest, operation: string): Promise<Record<string, unknown>> {
  return runScript(guest, operation, powershell(READ_DOMAIN, {}, WINDOWS_TIMEOUT_MS));
}

async function requireWindowsIn(guest: Guest, directory: string): Promise<void> {
  const { joined, domain } = await readWindowsDomain(guest, JOINING);
  if (joined !== true || String(domain).toLowerCase() !== directory.toLowerCase())
    throw operationFailed(guest, JOINING, `it is not in ${directory} afterwards`);
}

function failuresOf(guest: Guest, directory: string, login: string): Failures {
  return {
    login: () => new VirtkeepError('directory_login_failed', { directory, login }),
    directory: reason => new VirtkeepError('directory_not_found', { domain: guest.name, directory, reason }),
  };
}
