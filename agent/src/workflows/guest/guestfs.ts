/** Runs libguestfs's programs (virt-customize, virt-sysprep, virt-cat) on images that nothing else has open. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';
import { failureOf, isSysAdmin } from '@virtkeep/shared/program';
import { MiB } from '@virtkeep/shared/units';
import { type Contained, containedCommand, NO_SUCH_PROGRAM, runContained } from '../contained-program.ts';

export interface GuestfsOptions {
  /** Name of the domain, for error texts. */
  domain: string;
  signal: AbortSignal;
  forceTcg: boolean;
  log: Logger;
}

/** Under emulation a run takes half a minute; large journals and many files take longer. */
const TIMEOUT_MS = 3_600_000;
const MAX_OUTPUT_BYTES = 4 * MiB;
const MAX_REASON = 600;

/** What libguestfs says when its appliance does not come up; the images are untouched then. */
const LAUNCH_FAILED =
  /guestfs_launch|appliance (closed|failed)|could not access KVM|failed to initialize kvm/i;

/** KVM was there and did not work: it is not tried again by this run of the agent. */
let isKvmBroken = false;

/**
 * Runs a program to its end and returns its output. Where its appliance does not start under KVM (a nested one, say) it is
 * run again under emulation. On abort all its processes are ended and waited for.
 * @throws VirtkeepError guestfs_failed, timed_out, or the signal's reason
 */
export async function runGuestfs(
  program: string,
  args: readonly string[],
  options: GuestfsOptions,
): Promise<string> {
  const emulated = options.forceTcg || isKvmBroken;
  try {
    return await runOnce(program, args, emulated, options);
  } catch (error) {
    const isRetried =
      !emulated && error instanceof VirtkeepError && LAUNCH_FAILED.test(error.params.reason ?? '');
    if (!isRetried || options.signal.aborted) throw error;
    options.log.warn('libguestfs does not start under KVM; it is emulated from now on', { program });
    isKvmBroken = true;
    return runOnce(program, args, true, options);
  }
}

/** libguestfs makes directories in /tmp, wherever else it is told to, and leaves them when it is killed. */
const IN_TMP = /^(.*:)?\/tmp\//;

/** How a program is run: with a /tmp of its own, unless it is given something of the machine's. */
export function commandOf(
  program: string,
  args: readonly string[],
  emulated: boolean,
  isPrivileged: boolean,
): Contained {
  // direct: the appliance is a process of ours, and no domain of libvirt's
  const settings = ['--unset=TMPDIR', 'LC_ALL=C', 'LIBGUESTFS_BACKEND=direct'];
  if (emulated) settings.push('LIBGUESTFS_BACKEND_SETTINGS=force_tcg');
  const argv = ['env', ...settings, program, ...args];
  const given = [program, ...args, process.env.SUPERMIN_KERNEL ?? '', process.env.SUPERMIN_MODULES ?? ''];
  const hasOwnTmp = !given.some(text => IN_TMP.test(text));
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

/** The error lines of a program that also tells what it does. */
export function reasonIn(stderr: string): string {
  const lines = stderr
    .split('\n')
    .map(line => line.trim())
    .filter(
      line => line !== '' && !/^(If reporting bugs|This may|Then|https?:|export |Make sure|- |\[)/.test(line),
    );
  const errors = lines.filter(line => /error|failed|cannot|could not/i.test(line));
  return (errors.length > 0 ? errors : lines)
    .join('; ')
    .replaceAll(/virt-(customize|sysprep|cat): (error: )?/g, '')
    .slice(0, MAX_REASON);
}
