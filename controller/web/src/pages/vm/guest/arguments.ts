/** The arguments of the commands of guest agents, as forms ask for them; of a command that is not here they are written as JSON. Pure. */

export interface Argument {
  name: string;
  /** text; one text a line; a whole number; yes or no; one of some; text that goes as base64; any JSON */
  kind: 'text' | 'list' | 'number' | 'truth' | 'choice' | 'base64' | 'json';
  isRequired?: boolean;
  isSecret?: boolean;
  options?: readonly string[];
  /** Given before anybody writes one. */
  first?: string;
}

const text = (name: string, isRequired = true): Argument => ({ name, kind: 'text', isRequired });
const number = (name: string, isRequired = true): Argument => ({ name, kind: 'number', isRequired });
const truth = (name: string, first = ''): Argument => ({ name, kind: 'truth', first });
const HANDLE = number('handle');
const USER = text('username');
const KEYS: Argument = { name: 'keys', kind: 'list', isRequired: true };

const ARGUMENTS: Readonly<Record<string, readonly Argument[]>> = {
  'guest-sync': [number('id')],
  'guest-sync-delimited': [number('id')],
  'guest-set-time': [number('time', false)],
  'guest-shutdown': [{ name: 'mode', kind: 'choice', options: ['powerdown', 'halt', 'reboot'] }],
  'guest-file-open': [text('path'), text('mode', false)],
  'guest-file-close': [HANDLE],
  'guest-file-read': [HANDLE, number('count', false)],
  'guest-file-write': [HANDLE, { name: 'buf-b64', kind: 'base64', isRequired: true }],
  'guest-file-seek': [
    HANDLE,
    number('offset'),
    { name: 'whence', kind: 'choice', options: ['set', 'cur', 'end'], isRequired: true, first: 'set' },
  ],
  'guest-file-flush': [HANDLE],
  'guest-fsfreeze-freeze-list': [{ name: 'mountpoints', kind: 'list' }],
  'guest-fstrim': [number('minimum', false)],
  'guest-set-vcpus': [{ name: 'vcpus', kind: 'json', isRequired: true }],
  'guest-set-memory-blocks': [{ name: 'mem-blks', kind: 'json', isRequired: true }],
  'guest-set-user-password': [
    USER,
    { name: 'password', kind: 'base64', isRequired: true, isSecret: true },
    { ...truth('crypted', 'false'), isRequired: true },
  ],
  'guest-exec': [
    text('path'),
    { name: 'arg', kind: 'list' },
    { name: 'env', kind: 'list' },
    { name: 'input-data', kind: 'base64' },
    truth('capture-output', 'true'),
  ],
  'guest-exec-status': [number('pid')],
  'guest-ssh-get-authorized-keys': [USER],
  'guest-ssh-add-authorized-keys': [USER, KEYS, truth('reset')],
  'guest-ssh-remove-authorized-keys': [USER, KEYS],
};
const WITHOUT = [
  /^guest-get-/,
  /^guest-(info|ping|network-get-interfaces|fsfreeze-(status|freeze|thaw)|suspend-(disk|ram|hybrid))$/,
];

/** Undefined: they are not known. */
export function argumentsOf(command: string): readonly Argument[] | undefined {
  return ARGUMENTS[command] ?? (WITHOUT.some(pattern => pattern.test(command)) ? [] : undefined);
}

/** As they were written; by name. */
export type Written = Readonly<Record<string, string>>;

export const firstOf = (known: readonly Argument[]): Written =>
  Object.fromEntries(known.map(({ name, first = '' }) => [name, first]));

/** Whether it is a whole number, or not there. */
export const isNumber = (written: string): boolean => /^(-?\d+)?$/.test(written);

export const isComplete = (known: readonly Argument[], written: Written): boolean =>
  known.every(({ name, kind, isRequired }) => {
    const value = written[name] ?? '';
    return (!isRequired || value !== '') && (kind !== 'number' || isNumber(value));
  });

/** As the agent takes them; what is empty is left out. @throws SyntaxError for what is no JSON */
export function valuesOf(known: readonly Argument[], written: Written): Record<string, unknown> {
  const given = known.filter(({ name }) => (written[name] ?? '') !== '');
  return Object.fromEntries(given.map(({ name, kind }) => [name, asAgentTakes(kind, written[name] ?? '')]));
}

function asAgentTakes(kind: Argument['kind'], written: string): unknown {
  switch (kind) {
    case 'list':
      return written.split('\n').filter(line => line !== '');
    case 'number':
      return Number(written);
    case 'truth':
      return written === 'true';
    case 'base64':
      return base64Of(new TextEncoder().encode(written));
    case 'json':
      return JSON.parse(written);
    default:
      return written;
  }
}

export function base64Of(bytes: Uint8Array): string {
  const CHUNK = 0x80_00;
  let binary = '';
  for (let from = 0; from < bytes.length; from += CHUNK)
    binary += String.fromCharCode(...bytes.subarray(from, from + CHUNK));
  return btoa(binary);
}

export function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const binary = atob(base64);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  return bytes;
}
