/**
 * Programs that start others, which might outlive them: all of them end when the program does, when it is stopped, or when the agent is
 * killed. The agent's own unit has neither the devices nor the system calls that some of them need: there systemd runs the program, as
 * a unit of its own.
 */
import { execFile } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { type ProgramEnd, type ProgramOptions, runProgram } from '@virtkeep/shared/program';

export interface Contained {
  argv: readonly string[];
  /** The unit that runs it, when systemd does. */
  unit: string | null;
}

export interface ContainedOptions {
  /** Part of the unit's name. */
  name: string;
  /** The agent may make namespaces, `isSysAdmin`. */
  isPrivileged: boolean;
  /** It gets a /tmp of its own. */
  hasOwnTmp: boolean;
  /** It gets no network. */
  isOffline?: boolean;
  timeoutMs: number;
}

/** What env says of one that is not installed. */
export const NO_SUCH_PROGRAM = 127;

const OWN_TMP = 'mount -t tmpfs -o mode=1777 tmpfs /tmp && "$@"';
const SHARED_TMP = '"$@"; exit $?';
/**
 * Its standard input is a pipe that only the agent has open: when that ends, the shell does, and systemd ends the rest of the
 * unit. BindsTo= would start the program again with the agent.
 */
const LIFELINE = 'exec 3<&0 </dev/null; { read -r _ <&3; kill -9 $$; } >/dev/null 2>&1 & "$@" 3<&-';

/** How such a program is run. */
export function containedCommand(
  program: readonly string[],
  { name, isPrivileged, hasOwnTmp, isOffline = false, timeoutMs }: ContainedOptions,
): Contained {
  if (isPrivileged) {
    const dying = ['setpriv', '--pdeathsig', 'KILL', 'unshare', '--mount', '--pid', '--kill-child'];
    const alone = isOffline ? ['--net'] : [];
    // a shell is the first process of the namespace, as which programs do not expect to be
    const shell = ['sh', '-c', hasOwnTmp ? OWN_TMP : SHARED_TMP, 'sh'];
    return { argv: [...dying, ...alone, '--', ...shell, ...program], unit: null };
  }
  const unit = `virtkeep-${name}-${randomUUID()}.service`;
  const properties = [
    `RuntimeMaxSec=${timeoutMs / 1000}`,
    'KillSignal=SIGKILL',
    ...(hasOwnTmp ? ['TemporaryFileSystem=/tmp:mode=1777'] : []),
    ...(isOffline ? ['PrivateNetwork=yes'] : []),
  ].map(property => `--property=${property}`);
  const how = ['--quiet', '--collect', '--wait', '--pipe', `--unit=${unit}`];
  // systemd looks for variables in arguments
  const plain = ['/bin/sh', '-c', LIFELINE, 'sh', ...program].map(text => text.replaceAll('$', () => '$$'));
  return { argv: ['systemd-run', ...how, ...properties, '--', ...plain], unit };
}

/** Runs it to its end. On abort all its processes are ended. @throws as `runProgram` */
export function runContained(
  { argv, unit }: Contained,
  options: Omit<ProgramOptions, 'lifeline' | 'group' | 'stop'>,
): Promise<ProgramEnd> {
  return runProgram(argv, {
    ...options,
    lifeline: unit !== null,
    // what it works on is thrown away then: there is nothing to end in an orderly way
    stop: child => {
      if (!unit) {
        child.kill('SIGKILL');
        return;
      }
      execFile('systemctl', ['stop', unit], () => {});
      // a unit that is not there yet ends by its lifeline, as soon as it begins
      child.stdin?.destroy();
    },
  });
}
