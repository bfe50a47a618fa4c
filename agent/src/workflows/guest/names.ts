/** Checks of what a request names in a guest, before anything is asked. All throw VirtkeepError invalid_field. */
import { VirtkeepError } from '@virtkeep/shared/errors';

/** Linux takes no longer host name (HOST_NAME_MAX). */
const MAX_LINUX_HOSTNAME = 64;
const MAX_NETBIOS_NAME = 15;
const MAX_DNS_NAME = 253;
const MAX_LABEL = 63;
const MAX_SECRET = 256;
const MAX_LOGIN = 256;
const MAX_DN = 2048;

function refuse(field: string, reason: string): never {
  throw new VirtkeepError('invalid_field', { field, reason });
}

/** RFC 1123: labels of letters, digits and hyphens between dots; not all digits, or it would read as an address. */
export function requireDnsName(field: string, value: string, maxLength = MAX_DNS_NAME): string {
  if (value === '') refuse(field, 'is empty');
  if (value.length > maxLength) refuse(field, `is longer than ${maxLength} characters`);
  const labels = value.split('.');
  const bad = labels.find(
    label => !/^[a-z0-9]([a-z0-9-]*[a-z0-9])?$/i.test(label) || label.length > MAX_LABEL,
  );
  if (bad !== undefined)
    refuse(
      field,
      'is no host name: its parts have 1–63 letters, digits and hyphens, none at an end (RFC 1123)',
    );
  if (/^\d+$/.test(labels.at(-1)!)) refuse(field, 'ends with a number, as only addresses do');
  return value;
}

/** A host name of Linux: a name, or a full one with dots. */
export function requireHostname(field: string, value: string): string {
  return requireDnsName(field, value, MAX_LINUX_HOSTNAME);
}

/** A computer name of Windows and of a directory: 15 characters, no dots, not all digits. */
export function requireComputerName(field: string, value: string): string {
  if (value.length > MAX_NETBIOS_NAME)
    refuse(field, `is longer than the ${MAX_NETBIOS_NAME} characters that Windows and directories take`);
  if (value.includes('.')) refuse(field, 'has a dot; a computer name has none');
  return requireDnsName(field, value);
}

/** A login as the directory takes it: `name`, `name@domain` or `DOMAIN\name`. */
export function requireLogin(field: string, value: string): string {
  if (value === '') refuse(field, 'is empty');
  if (value.length > MAX_LOGIN) refuse(field, `is longer than ${MAX_LOGIN} characters`);
  if (/[\p{C}"/[\]:;|=,+*?<>]/u.test(value) || value.startsWith('-') || value.trim() !== value)
    refuse(field, 'has characters that no login has');
  return value;
}

/** A password goes to programs as one line. */
export function requirePassword(field: string, value: string): string {
  if (value === '') refuse(field, 'is empty');
  if (value.length > MAX_SECRET) refuse(field, `is longer than ${MAX_SECRET} characters`);
  if (/[\0\r\n]/.test(value)) refuse(field, 'has a line break');
  return value;
}

/** One part of a DN (RFC 4514): `OU=Servers`; characters that mean something are written with a backslash. */
const RDN =
  /^\s*(?<type>[a-z][a-z0-9-]*)\s*=(?<value>(?:[^,+"\\<>;=\p{C}]|\\[ #+,;<=>"\\]|\\[0-9a-f]{2})+)$/iu;
const UNIT_TYPES = new Set(['ou', 'cn', 'dc', 'o']);

export interface Rdn {
  /** Upper case: "OU". */
  type: string;
  /** As written, escapes included. */
  value: string;
}

/**
 * The parts of a distinguished name, innermost first.
 * @throws VirtkeepError invalid_field when it is none, or not a full one (it must end with the domain's DC parts)
 */
export function requireUnit(field: string, value: string): Rdn[] {
  if (value.length > MAX_DN) refuse(field, `is longer than ${MAX_DN} characters`);
  const parts = value.split(/(?<!(?<!\\)(?:\\\\)*\\),/).map(part => {
    const { type, value: inner } = RDN.exec(part)?.groups ?? {};
    if (
      type === undefined ||
      inner === undefined ||
      inner.trim() === '' ||
      !UNIT_TYPES.has(type.toLowerCase())
    )
      refuse(field, 'is no distinguished name, such as OU=Servers,DC=example,DC=com');
    return { type: type.toUpperCase(), value: inner.trim() };
  });
  const firstDc = parts.findIndex(({ type }) => type === 'DC');
  if (firstDc < 1 || parts.slice(firstDc).some(({ type }) => type !== 'DC'))
    refuse(field, 'is no full distinguished name: a unit, then the DC parts of the domain');
  return parts;
}

/** A user of Linux, as useradd takes it; letters of either case. */
export function requireUser(field: string, value: string): string {
  if (!/^[a-z_][a-z0-9_.-]{0,31}$/i.test(value)) refuse(field, 'is no user name of Linux');
  return value;
}
