/**
 * The arguments of a program as the audit keeps them. Secrets belong on standard input; one that is an argument all the same is
 * found by the name that it bears: `--password=x`, `--password x`, `PGPASSWORD=x`, `Authorization: Bearer x`, `ftp://me:x@host`.
 */
const NAME = String.raw`[\w-]{0,32}(?:pass(?:word|wd|phrase)?|pwd|secret|token|api[-_]?key|credential|authorization|bearer)[\w-]{0,32}`;
const VALUE = String.raw`(?:(?:bearer|basic|jwt)\s+)?(?:"[^"]*"|'[^']*'|[^\s"';|&]+)`;
const NAMED = new RegExp(String.raw`(${NAME}["']?\s{0,4}[=:]\s{0,4})${VALUE}`, 'gi');
const OPTION = new RegExp(`^(?:--?|/)${NAME}$`, 'i');
const IN_ADDRESS = /(:\/\/[^\s:/@]{0,256}:)[^\s/@]{1,256}@/g;
const HIDDEN = '[redacted]';
/** Of all arguments together: the audit keeps no more. */
const MAX_CHARACTERS = 8192;

/** @param args of a program, as they were sent: anything */
export function withoutSecretArguments(args: unknown): unknown {
  if (!Array.isArray(args)) return args;
  let left = MAX_CHARACTERS;
  return args.slice(0, MAX_CHARACTERS).map((given: unknown, index) => {
    if (typeof given !== 'string') return given;
    const arg = given.length > left ? `${given.slice(0, left)}…` : given;
    left = Math.max(0, left - given.length);
    const before: unknown = args[index - 1];
    if (typeof before === 'string' && OPTION.test(before)) return HIDDEN;
    return arg.replaceAll(NAMED, `$1${HIDDEN}`).replaceAll(IN_ADDRESS, `$1${HIDDEN}@`);
  });
}
