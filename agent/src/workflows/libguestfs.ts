/** What all programs of libguestfs have in common, whatever they work on: how they are run, with KVM or without, and what they say. */
import { VirtkeepError } from '@virtkeep/shared/errors';
import type { Logger } from '@virtkeep/shared/log';

export interface LibguestfsOptions {
  signal: AbortSignal;
  forceTcg: boolean;
  log: Logger;
}

const MAX_REASON = 600;

/** What libguestfs says when its appliance does not come up; the images are untouched then. */
const LAUNCH_FAILED =
  /guestfs_launch|appliance (closed|failed)|could not access KVM|failed to initialize kvm/i;

/** KVM was there and did not work: it is not tried again by this run of the agent. */
let isKvmBroken = false;

/**
 * Does that under KVM, and once more under emulation when libguestfs's appliance does not start under it.
 * @param run its error of the table tells the program's words as `reason`
 */
export async function emulatedWhereNeeded<T>(
  program: string,
  { forceTcg, signal, log }: LibguestfsOptions,
  run: (emulated: boolean) => Promise<T>,
): Promise<T> {
  const emulated = forceTcg || isKvmBroken;
  try {
    return await run(emulated);
  } catch (error) {
    const isRetried =
      !emulated && error instanceof VirtkeepError && LAUNCH_FAILED.test(error.params.reason ?? '');
    if (!isRetried || signal.aborted) throw error;
    log.warn('libguestfs does not start under KVM; it is emulated from now on', { program });
    isKvmBroken = true;
    return run(true);
  }
}

/** libguestfs makes directories in /tmp, wherever else it is told to, and leaves them when it is killed. */
const IN_TMP = /^(.*:)?\/tmp\//;

/** Whether a program of libguestfs may have a /tmp of its own: not when it is given one of these paths of the machine's. */
export const mayHaveOwnTmp = (given: readonly string[]): boolean =>
  ![...given, process.env.SUPERMIN_KERNEL ?? '', process.env.SUPERMIN_MODULES ?? ''].some(text =>
    IN_TMP.test(text),
  );

/** direct: the appliance is a process of ours, and no domain of libvirt's. */
export const guestfsSettings = (emulated: boolean): string[] => [
  'LC_ALL=C',
  'LIBGUESTFS_BACKEND=direct',
  ...(emulated ? ['LIBGUESTFS_BACKEND_SETTINGS=force_tcg'] : []),
];

/** The error lines of a program that also tells what it does. */
export function reasonIn(stderr: string): string {
  const lines = stderr
    .split('\n')
    .map(line => line.trim())
    .filter(
      line =>
        line !== '' &&
        !/^(If reporting bugs|To see full error|This may|Then|https?:|export |Make sure|- |\[)/.test(line),
    );
  const errors = lines.filter(line => /error|failed|cannot|could not/i.test(line));
  return (errors.length > 0 ? errors : lines)
    .join('; ')
    .replaceAll(/virt-(customize|sysprep|cat|v2v-in-place): (error: )?/g, '')
    .slice(0, MAX_REASON);
}
