/**
 * The arguments of the commands of the specification (4.4), as qemu-ga 9 documents them. A command that is not here is one
 * that a newer agent offers: it is passed on as it is.
 */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { integerOf } from '@virtkeep/shared/exact-json';
import { KiB, MiB } from '@virtkeep/shared/units';
import { z } from 'zod';

/** Bytes of one guest-file-read, and of one guest-file-write. In base64 well below the 3 MB that libvirt takes. */
export const MAX_PIECE_BYTES = MiB;
/** Bytes of a program's standard input: one request. */
export const MAX_INPUT_BYTES = 90 * KiB;
const MAX_TEXT = 64 * KiB;
const MAX_ITEMS = 4_096;

/** A schema, described by what its argument must be: that stands in the error, never the value. */
const must = <T extends z.ZodType>(schema: T, be: string) => schema.describe(`must be ${be}`);

const TEXT = `of at most ${MAX_TEXT} characters, without NUL`;
/** libvirt puts a question mark in the place of half a character. */
const text = z
  .string()
  .max(MAX_TEXT)
  .refine(value => !value.includes('\0') && value.isWellFormed());
/** The number of items is judged before them: a fault is kept for each. */
const list = (item: z.ZodType) => z.array(z.unknown()).max(MAX_ITEMS).pipe(z.array(item));
const integerIn = (least: bigint, most: bigint) =>
  z.unknown().refine(value => {
    const integer = integerOf(value);
    return integer !== undefined && integer >= least && integer <= most;
  });

const filled = must(text.min(1), `a text ${TEXT}, not empty`);
const boolean = must(z.boolean(), 'true or false');
const integer = (least: bigint | number, most: bigint | number) =>
  must(integerIn(BigInt(least), BigInt(most)), `an integer from ${least} to ${most}`);
const INT64 = 2n ** 63n - 1n;
const int64 = integer(-INT64 - 1n, INT64);
/** Nanoseconds since 1970, and bytes. */
const natural64 = integer(0, INT64);
/** Numbers that are taken down here, or are those of processes. */
const whole = integer(0, Number.MAX_SAFE_INTEGER);
const texts = must(list(text), `a list of at most ${MAX_ITEMS} texts ${TEXT}`);
const oneOf = (...allowed: (string | number | boolean)[]) =>
  must(z.literal(allowed), `one of ${allowed.join(', ')}`);
/** Base64 of so many bytes at most. */
const base64 = (maxBytes: number) =>
  z
    .string('must be base64')
    .refine(value => value.length % 4 === 0 && /^[A-Za-z0-9+/]*={0,2}$/.test(value), 'must be base64')
    .max(Math.ceil(maxBytes / 3) * 4, `holds more than ${maxBytes} bytes`);
const environment = must(list(text.regex(/^[^=]+=/)), `a list of at most ${MAX_ITEMS} texts NAME=value`);
const program = must(text.regex(/^[^-]/), `a path or the name of a program, ${TEXT}`);
const fileMode = must(z.string().regex(/^[rwa]b?\+?b?$/), 'a mode of fopen: r, w, a, each also with + and b');

/** Processors and memory blocks, as guest-get- tells them; whether one can be offline is not asked for. */
const unitsBy = (id: string) =>
  must(
    list(
      z.strictObject({
        [id]: integerIn(0n, INT64),
        online: z.boolean(),
        'can-offline': z.boolean().optional(),
      }),
    ),
    `a list of objects with ${id}, online, can-offline`,
  );

const NONE = {};
const HANDLE = { handle: whole };
const USER_KEYS = { username: filled, keys: texts };

const ARGUMENTS: Record<string, Record<string, z.ZodType>> = {
  'guest-sync': { id: int64 },
  'guest-sync-delimited': { id: int64 },
  'guest-ping': NONE,
  'guest-info': NONE,
  'guest-get-time': NONE,
  'guest-set-time': { time: natural64.optional() },
  'guest-shutdown': { mode: oneOf('powerdown', 'halt', 'reboot').optional() },
  'guest-file-open': {
    path: filled,
    mode: fileMode.optional(),
  },
  'guest-file-close': HANDLE,
  'guest-file-read': { ...HANDLE, count: integer(0, MAX_PIECE_BYTES).optional() },
  'guest-file-write': { ...HANDLE, 'buf-b64': base64(MAX_PIECE_BYTES), count: whole.optional() },
  'guest-file-seek': {
    ...HANDLE,
    offset: int64,
    whence: oneOf(0, 1, 2, 'set', 'cur', 'end'),
  },
  'guest-file-flush': HANDLE,
  'guest-fsfreeze-status': NONE,
  'guest-fsfreeze-freeze': NONE,
  'guest-fsfreeze-freeze-list': { mountpoints: texts.optional() },
  'guest-fsfreeze-thaw': NONE,
  'guest-fstrim': { minimum: natural64.optional() },
  'guest-suspend-disk': NONE,
  'guest-suspend-ram': NONE,
  'guest-suspend-hybrid': NONE,
  'guest-network-get-interfaces': NONE,
  'guest-get-vcpus': NONE,
  'guest-set-vcpus': { vcpus: unitsBy('logical-id') },
  'guest-get-disks': NONE,
  'guest-get-fsinfo': NONE,
  'guest-set-user-password': {
    username: filled,
    password: base64(4 * KiB),
    crypted: boolean,
  },
  'guest-get-memory-blocks': NONE,
  'guest-set-memory-blocks': { 'mem-blks': unitsBy('phys-index') },
  'guest-get-memory-block-info': NONE,
  'guest-exec': {
    path: program,
    arg: texts.optional(),
    env: environment.optional(),
    'input-data': base64(MAX_INPUT_BYTES).optional(),
    'capture-output': oneOf(true, false, 'none', 'stdout', 'stderr', 'separated', 'merged').optional(),
  },
  'guest-exec-status': { pid: whole },
  'guest-get-host-name': NONE,
  'guest-get-users': NONE,
  'guest-get-timezone': NONE,
  'guest-get-osinfo': NONE,
  'guest-get-devices': NONE,
  'guest-ssh-get-authorized-keys': { username: filled },
  'guest-ssh-add-authorized-keys': { ...USER_KEYS, reset: boolean.optional() },
  'guest-ssh-remove-authorized-keys': USER_KEYS,
};

const SCHEMAS = new Map(
  Object.entries(ARGUMENTS).map(([command, shape]) => [command, z.strictObject(shape)]),
);

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
  const schema = SCHEMAS.get(command);
  const issues = schema?.safeParse(args).error?.issues;
  if (schema === undefined || issues === undefined) return;
  const invalid = (field: string, reason: string) =>
    new VirtkeepError('guest_argument_invalid', { command, field: field.slice(0, 100), reason });
  const unknown = issues.find(issue => issue.path.length === 0);
  if (unknown?.code === 'unrecognized_keys') throw invalid(unknown.keys[0]!, 'is not known');
  const [issue] = issues as [z.core.$ZodIssue];
  const field = String(issue.path[0]);
  if (args[field] === undefined) throw invalid(field, 'is required');
  const rule = schema.shape[field];
  const required = rule instanceof z.ZodOptional ? (rule.unwrap() as z.ZodType) : rule;
  throw invalid(field, required?.description ?? issue.message);
}
