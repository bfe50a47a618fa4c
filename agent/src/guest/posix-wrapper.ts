/**
 * Bounds what a program in a Unix guest can say. qemu-ga keeps up to 16 MiB of each stream and hands all of it out in one
 * answer; one of 10 MiB ends the connection between libvirt and the agent. So the program's output goes through pipes of which
 * only the first bytes are passed on, and the rest is read and dropped: a program that says too much neither blocks nor dies.
 *
 * The shell that qemu-ga starts becomes the program (exec), so exit code and signal are the program's own, and its standard
 * input is that of qemu-ga. The arguments go to it as they are, never through the shell's syntax.
 *
 * A shell can make a pipe only between two processes; `pipe` makes one whose reading end a sleeper holds, and the shell opens
 * it through /proc (Linux). Opened for reading and writing it neither blocks nor ends, until both sides have opened it anew.
 */

/** What becomes of a stream: passed on up to the limit, dropped, or put into the other one (standard error only). */
export interface OutputLimits {
  /** Bytes of standard output that are passed on; 0: none. */
  out: number;
  /** Bytes of standard error; 0: none. */
  err: number;
  /** Standard error goes where standard output goes. */
  merged: boolean;
}

const TAP = `tap() { PATH=/usr/bin:/bin:$PATH; [ "$1" = 0 ] || head -c "$1"; cat >/dev/null; }`;
const PIPE = `pipe() { : | { exec 9<&0; PATH=/usr/bin:/bin:$PATH sleep 60 >/dev/null 2>&1 & echo $!; }; }`;

/** Arguments: limit of standard output, of standard error, "merged" or "", the program and its arguments. */
const SCRIPT = `
${TAP}
${PIPE}
o=$1 e=$2 m=$3
shift 3
command -v "$1" >/dev/null || { echo "$1: not found" >&2; exit 127; }
p=$(pipe)
q=$(pipe)
exec 7<>"/proc/$p/fd/9" 8<>"/proc/$q/fd/9"
kill "$p" "$q"
( exec </proc/self/fd/7 7>&- 8>&- 2>/dev/null; tap "$o" ) &
( exec </proc/self/fd/8 7>&- 8>&- >&2 2>/dev/null; tap "$e" ) &
exec >/proc/self/fd/7 2>/proc/self/fd/8 7>&- 8>&-
[ -z "$m" ] || exec 2>&1
unset o e m p q
exec "$@"
`;

export const SHELL = '/bin/sh';

/** The arguments of {@link SHELL} that run a program with its output bounded. */
export function posixArguments(path: string, args: readonly string[], limits: OutputLimits): string[] {
  return [
    '-c',
    SCRIPT,
    'sh',
    String(limits.out),
    String(limits.err),
    limits.merged ? 'merged' : '',
    path,
    ...args,
  ];
}
