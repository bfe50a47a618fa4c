/** Runs libguestfs's programs (virt-customize, virt-sysprep, virt-cat) on images that nothing else has open. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import { failureOf, isSysAdmin } from '@virtkeep/shared/program';
import { MiB } from '@virtkeep/shared/units';
import { type Contained, containedCommand, NO_SUCH_PROGRAM, runContained } from '../contained-program.ts';
import {
  emulatedWhereNeeded,
  guestfsSettings,
  type LibguestfsOptions,
  mayHaveOwnTmp,
  reasonIn,
} from '../libguestfs.ts';

export interface GuestfsOptions extends LibguestfsOptions {
  /** Name of the domain, for error texts. */
  domain: string;
}

/** Under emulation a run takes half a minute; large journals and many files take longer. */
const TIMEOUT_MS = 3_600_000;
const MAX_OUTPUT_BYTES = 4 * MiB;

/**
 * Runs a program to its end and returns its output. Where its appliance does not start under KVM (a nested one, say) it is
 * run again under emulation. On abort all its processes are ended and waited for.
 * @throws VirtkeepError guestfs_failed, timed_out, or the signal's reason
 */
export const runGuestfs = (
  program: string,
  args: readonly string[],
  options: GuestfsOptions,
): Promise<string> =>
  emulatedWhereNeeded(program, options, emulated => runOnce(program, args, emulated, options));

/** How a program is run: with a /tmp of its own, unless it is given something of the machine's. */
export function commandOf(
  program: string,
  args: readonly string[],
  emulated: boolean,
  isPrivileged: boolean,
): Contained {
  const argv = ['env', '--unset=TMPDIR', ...guestfsSettings(emulated), program, ...args];
  const hasOwnTmp = mayHaveOwnTmp([program, ...args]);
  return containedCommand(argv, { name: 'guestfs', isPrivileged, hasOwnTmp, timeoutMs: TIMEOUT_MS });
}

async function runOnce(
  program: string,
  args: readonly string[],
  emulated: boolean,
  { domain, signal }: GuestfsOptions,
): Promise<string> {
  const command = commandOf(program, args, emulated, await isSysAdmin());
  const failed = (reason: string, cause?: unknown) =>
    new VirtkeepError('guestfs_failed', { program, domain, reason }, { cause });
  const end = await runContained(command, {
    signal,
    operation: program,
    timeoutMs: TIMEOUT_MS,
    maxOutputBytes: MAX_OUTPUT_BYTES,
    failed,
  });
  if (end.code === 0) return end.stdout;
  if (end.code === NO_SUCH_PROGRAM) throw failed('it is not installed; install guestfs-tools on the node');
  throw failed(reasonIn(end.stderr) || failureOf(end));
}
