/**
 * The arguments of the commands of the specification (4.4), as qemu-ga 9 documents them. A command that is not here is one
 * that a newer agent offers: it is passed on as it is.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { integerOf } from '@virtkeep/shared/exact-json';
import { KiB, MiB } from '@virtkeep/shared/units';

interface ArgumentRule {
  optional?: true;
  /** What is wrong with a value, as the rest of a sentence; undefined: nothing. */
  refuse: (value: unknown) => string | undefined;
}

/** Bytes of one guest-file-read, and of one guest-file-write. In base64 well below the 3 MB that libvirt takes. */
export const MAX_PIECE_BYTES = MiB;
/** Bytes of a program's standard input: one request. */
export const MAX_INPUT_BYTES = 90 * KiB;
const MAX_TEXT = 64 * KiB;
const MAX_ITEMS = 4_096;

const must = (refuse: ArgumentRule['refuse']): ArgumentRule => ({ refuse });
const may = (refuse: ArgumentRule['refuse']): ArgumentRule => ({ optional: true, refuse });
const check = (isRight: (value: unknown) => boolean, expected: string) => (value: unknown) =>
  isRight(value) ? undefined : `must be ${expected}`;

/** libvirt puts a question mark in the place of half a character. */
const isText = (value: unknown): value is string =>
  typeof value === 'string' && value.length <= MAX_TEXT && !value.includes('\0') && value.isWellFormed();
const isIntegerIn = (least: bigint, most: bigint) => (value: unknown) => {
  const integer = integerOf(value);
  return integer !== undefined && integer >= least && integer <= most;
};
type Fields = Record<string, (value: unknown) => boolean>;
const isRecordOf = (value: unknown, fields: Fields) =>
  typeof value === 'object' &&
  value !== null &&
  Object.keys(value).every(name => Object.hasOwn(fields, name)) &&
  Object.entries(fields).every(([name, isRight]) => isRight((value as Record<string, unknown>)[name]));

const TEXT = `of at most ${MAX_TEXT} characters, without NUL`;
const filled = check(value => isText(value) && value !== '', `a text ${TEXT}, not empty`);
const isBoolean = (value: unknown) => typeof value === 'boolean';
const boolean = check(isBoolean, 'true or false');
const integer = (least: bigint | number, most: bigint | number) =>
  check(isIntegerIn(BigInt(least), BigInt(most)), `an integer from ${least} to ${most}`);
const INT64 = 2n ** 63n - 1n;
const int64 = integer(-INT64 - 1n, INT64);
/** Nanoseconds since 1970, and bytes. */
const natural64 = integer(0, INT64);
/** Numbers that are taken down here, or are those of processes. */
const whole = integer(0, Number.MAX_SAFE_INTEGER);
const texts = check(
  value => Array.isArray(value) && value.length <= MAX_ITEMS && value.every(isText),
  `a list of at most ${MAX_ITEMS} texts ${TEXT}`,
);
const oneOf = (...allowed: (string | number | boolean)[]) =>
  check(value => allowed.includes(value as string), `one of ${allowed.join(', ')}`);
const records = (fields: Fields) =>
  check(
    value =>
      Array.isArray(value) && value.length <= MAX_ITEMS && value.every(item => isRecordOf(item, fields)),
    `a list of objects with ${Object.keys(fields).join(', ')}`,
  );
/** Base64 of so many bytes at most. */
const base64 = (maxBytes: number) => (value: unknown) => {
  if (typeof value !== 'string' || !/^[A-Za-z0-9+/]*={0,2}$/.test(value) || value.length % 4 !== 0)
    return 'must be base64';
  return value.length > Math.ceil(maxBytes / 3) * 4 ? `holds more than ${maxBytes} bytes` : undefined;
};
const environment = check(
  value =>
    Array.isArray(value) &&
    value.length <= MAX_ITEMS &&
    value.every(item => isText(item) && /^[^=]+=/.test(item)),
  `a list of at most ${MAX_ITEMS} texts NAME=value`,
);
const program = check(
  value => isText(value) && value !== '' && !value.startsWith('-'),
  `a path or the name of a program, ${TEXT}`,
);

const NONE: Record<string, ArgumentRule> = {};
const HANDLE = { handle: must(whole) };
const isUnit = isIntegerIn(0n, INT64);
/** Processors and memory blocks, as guest-get- tells them; whether one can be offline is not asked for. */
const unitsBy = (id: string) =>
  records({
    [id]: isUnit,
    online: isBoolean,
    'can-offline': value => value === undefined || isBoolean(value),
  });
const USER_KEYS = { username: must(filled), keys: must(texts) };

const ARGUMENTS: Record<string, Record<string, ArgumentRule>> = {
  'guest-sync': { id: must(int64) },
  'guest-sync-delimited': { id: must(int64) },
  'guest-ping': NONE,
  'guest-info': NONE,
  'guest-get-time': NONE,
  'guest-set-time': { time: may(natural64) },
  'guest-shutdown': { mode: may(oneOf('powerdown', 'halt', 'reboot')) },
  'guest-file-open': {
    path: must(filled),
    mode: may(
      check(
        value => typeof value === 'string' && /^[rwa]b?\+?b?$/.test(value),
        'a mode of fopen: r, w, a, each also with + and b',
      ),
    ),
  },
  'guest-file-close': HANDLE,
  'guest-file-read': { ...HANDLE, count: may(integer(0, MAX_PIECE_BYTES)) },
  'guest-file-write': { ...HANDLE, 'buf-b64': must(base64(MAX_PIECE_BYTES)), count: may(whole) },
  'guest-file-seek': {
    ...HANDLE,
    offset: must(int64),
    whence: must(oneOf(0, 1, 2, 'set', 'cur', 'end')),
  },
  'guest-file-flush': HANDLE,
  'guest-fsfreeze-status': NONE,
  'guest-fsfreeze-freeze': NONE,
  'guest-fsfreeze-freeze-list': { mountpoints: may(texts) },
  'guest-fsfreeze-thaw': NONE,
  'guest-fstrim': { minimum: may(natural64) },
  'guest-suspend-disk': NONE,
  'guest-suspend-ram': NONE,
  'guest-suspend-hybrid': NONE,
  'guest-network-get-interfaces': NONE,
  'guest-get-vcpus': NONE,
  'guest-set-vcpus': { vcpus: must(unitsBy('logical-id')) },
  'guest-get-disks': NONE,
  'guest-get-fsinfo': NONE,
  'guest-set-user-password': {
    username: must(filled),
    password: must(base64(4 * KiB)),
    crypted: must(boolean),
  },
  'guest-get-memory-blocks': NONE,
  'guest-set-memory-blocks': { 'mem-blks': must(unitsBy('phys-index')) },
  'guest-get-memory-block-info': NONE,
  'guest-exec': {
    path: must(program),
    arg: may(texts),
    env: may(environment),
    'input-data': may(base64(MAX_INPUT_BYTES)),
    'capture-output': may(oneOf(true, false, 'none', 'stdout', 'stderr', 'separated', 'merged')),
  },
  'guest-exec-status': { pid: must(whole) },
  'guest-get-host-name': NONE,
  'guest-get-users': NONE,
  'guest-get-timezone': NONE,
  'guest-get-osinfo': NONE,
  'guest-get-devices': NONE,
  'guest-ssh-get-authorized-keys': { username: must(filled) },
  'guest-ssh-add-authorized-keys': { ...USER_KEYS, reset: may(boolean) },
  'guest-ssh-remove-authorized-keys': USER_KEYS,
};

/** The commands whose arguments are known, as the specification lists them. */
export const KNOWN_COMMANDS: readonly string[] = Object.keys(ARGUMENTS);

/**
 * Checks a command's arguments before it is sent.
 * @param domain name of the guest's domain, for the error text
 * @throws VirtkeepError guest_argument_invalid naming the argument; guest_command_unknown for what cannot be a name
 */
export function checkArguments(domain: string, command: string, args: Record<string, unknown>): void {
  if (!/^[a-z_][\w.-]{0,63}$/i.test(command))
    throw new VirtkeepError('guest_command_unknown', { domain, command: command.slice(0, 100) });
  if (!Object.hasOwn(ARGUMENTS, command)) return;
  const rules = ARGUMENTS[command]!;
  const invalid = (field: string, reason: string) =>
    new VirtkeepError('guest_argument_invalid', { command, field: field.slice(0, 100), reason });
  for (const name of Object.keys(args)) if (!Object.hasOwn(rules, name)) throw invalid(name, 'is not known');
  for (const [name, { optional, refuse }] of Object.entries(rules)) {
    if (args[name] === undefined) {
      if (!optional) throw invalid(name, 'is required');
      continue;
    }
    const reason = refuse(args[name]);
    if (reason !== undefined) throw invalid(name, reason);
  }
}
