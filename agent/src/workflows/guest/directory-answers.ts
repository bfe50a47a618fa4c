/** What the programs of a join and a leave say of the directory: where an account stands, and why something failed. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { failureText, type Guest, operationFailed, type ProgramResult } from './guest.ts';

/** The account's DN: among the attributes that `adcli show-computer` tells, or, with most versions, only in its messages. */
export function placeIn({ exitCode, out, err }: ProgramResult): string | undefined {
  if (exitCode !== 0) return undefined;
  const found = /(?:^distinguishedName:|Found computer account for .{1,256}? at:)\s*(\S.*)$/m.exec(
    `${out}\n${err}`,
  );
  return found?.[1]?.trim();
}

/** Directly in the unit; LDAP takes capitals and spaces after commas for the same. */
export function isBelow(place: string, unit: string): boolean {
  const plain = (text: string) =>
    text
      .toLowerCase()
      .split(',')
      .map(part => part.trim())
      .join(',');
  const cut = plain(place).search(/(?<!\\),/);
  return cut >= 0 && plain(place).slice(cut + 1) === plain(unit);
}

/** The directory refuses the login, in the words of adcli, realmd, Samba and Kerberos. */
const LOGIN_FAILED =
  /Preauthentication failed|not found in Kerberos database|Couldn't authenticate|Invalid credentials|LOGON_FAILURE|incorrect password|wrong password|Password incorrect|credentials have been revoked|CLIENT_REVOKED|password has expired/i;
const NOT_FOUND =
  /No such realm|Couldn't (discover|find usable domain)|Cannot (contact any|find) KDC|Cannot resolve|DOMAIN_NOT_FOUND|No logon servers/i;

/** What a failed join or leave means. */
export function directoryFailure(
  guest: Pick<Guest, 'name'>,
  operation: string,
  { directory, login, password }: { directory: string; login: string; password: string },
  result: ProgramResult,
): VirtkeepError {
  const reason = failureText(result, password);
  const said = `${result.out}\n${result.err}`;
  if (LOGIN_FAILED.test(said)) return new VirtkeepError('directory_login_failed', { directory, login });
  if (NOT_FOUND.test(said))
    return new VirtkeepError('directory_not_found', { domain: guest.name, directory, reason });
  return operationFailed(guest, operation, reason);
}

/** adcli: the guest's account is gone already, which leaving does not need. */
const NO_ACCOUNT = /\bNo (?:\w{1,256} )?account for .{1,256} exists|\baccount for .{1,256} does not exist/;

/**
 * Why a guest is not to be taken out of its directory: what leaving would delete there must be reached by that login, or the guest
 * would be out and its account stay. Undefined: it can leave.
 */
export function leaveRefused(
  guest: Pick<Guest, 'name'>,
  operation: string,
  who: { directory: string; login: string; password: string },
  checked: ProgramResult,
): VirtkeepError | undefined {
  if (checked.exitCode === 0) return undefined;
  const isLogin = LOGIN_FAILED.test(checked.err + checked.out);
  if (!isLogin && NO_ACCOUNT.test(checked.err + checked.out)) return undefined;
  return directoryFailure(guest, operation, who, checked);
}
